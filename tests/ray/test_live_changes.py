"""``enable``, ``disable`` and ``configure`` on running clusters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import start_head, stop_head
from support import HOOK, await_spans, command, run_program, spans_in, with_extras

from ray_tracing_hooks._insight.model.span import Span

pytestmark = pytest.mark.slow  # a cluster of its own, changed again and again under load

POLL, LEFT_OUT, APP = "Poller.poll ray.remote_worker", "Poller.left_out ray.remote_worker", "App.__call__ serve.replica"
HTTP = "GET /"


class Changed(NamedTuple):
    """The program's result, and the spans of the folder before the change of folders, and of the one after it."""

    result: Any
    spans: list[Span]
    moved: list[Span]
    address: str
    folder: Path

    def names(self, phase: str) -> Counter[str]:
        """The names of the spans that have begun in this phase."""
        began, ended = self.result["phases"][phase]
        return Counter(span.name for span in [*self.spans, *self.moved] if began <= span.start_ns <= ended)

    def requests(self, phase: str, kind: str) -> int:
        """How many requests have begun and ended in this phase."""
        began, ended = self.result["phases"][phase]
        return sum(
            name.startswith(kind) and began <= first and last <= ended for name, first, last in self.result["ended"]
        )


def said_to(*words: str, address: str) -> tuple[int, dict[str, Any], str]:
    # A busy machine may need longer to answer than the command waits by default.
    done = command(*words, "--timeout", "60", "--json", "--address", address)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.fixture(scope="module")
def changed(short_tmp: Callable[[], Path]) -> Iterator[Changed]:
    """A cluster whose hook records nothing at first, with an application under load while it is changed."""
    folder = short_tmp()
    variables: dict[str, Any] = {
        **with_extras(),
        "OTEL_SDK_DISABLED": "true",
        "RAY_TRACING_LOCAL_DIR": str(folder / "spans"),
        "RTH_OTHER_FOLDER": str(folder / "other"),
    }
    head, address = start_head(folder, f"--tracing-startup-hook={HOOK}", **variables)
    try:
        run = run_program("../inside/live_changes", RTH_ADDRESS=address, **variables)
        driver = "live_changes.py ray.driver"
        spans = await_spans(folder / "spans", lambda found: any(span.name == driver for span in found))
        yield Changed(run.result, spans, spans_in(folder / "other"), address, folder)
    finally:
        stop_head(head)


def test_no_request_fails(changed: Changed) -> None:
    """While settings change under load."""
    assert changed.result["failed"] == []
    assert all(changed.requests(phase, kind) > 5 for phase in changed.result["phases"] for kind in ("http", "actor"))


def test_every_process_is_reached(changed: Changed) -> None:
    """The driver, the actor, Serve's controller, its proxy and the replicas: each says that it has applied it."""
    for said in changed.result["said"].values():
        assert (said["code"], said["failed"], said["silent"]) == (0, 0, 0), said
        assert said["applied"] == len(said["processes"]) >= 6
    assert [said["set"]["version"] for said in changed.result["said"].values()] == [1, 2, 3, 4, 5, 6]


def test_traces_begin_and_end(changed: Changed) -> None:
    """Nothing is recorded before `enable`, after `disable`, and with the settings that the cluster was started with; in
    between everything is.
    """
    assert changed.names("dormant") == changed.names("as_started") == changed.names("off") == Counter()
    for phase in ("on", "moved"):
        names = changed.names(phase)
        assert names[HTTP] >= changed.requests(phase, "http")
        assert names[APP] >= changed.requests(phase, "http") + changed.requests(phase, "handle")
        assert min(names[POLL], names[LEFT_OUT]) >= changed.requests(phase, "actor")


def test_the_spans_fit_together(changed: Changed) -> None:
    """No parent is missing, no span comes twice, and none is left open, although callers and workers change apart."""
    spans = [*changed.spans, *changed.moved]
    known = {span.span_id for span in spans}
    assert len(known) == len(spans)
    assert [span.name for span in spans if span.parent_id and span.parent_id not in known] == []
    assert [span.name for span in spans if span.status_code == 2] == []


def test_filters_and_rate_limits_apply_to_actors_that_run(changed: Changed) -> None:
    names = changed.names("filtered")
    assert names[LEFT_OUT] == 0
    assert names[POLL] < changed.requests("filtered", "actor") / 2
    assert names[HTTP] >= changed.requests("filtered", "http")


def test_the_sampler_applies_to_traces_that_begin(changed: Changed) -> None:
    """Requests by HTTP begin one; what the driver does goes on in the driver's."""
    names = changed.names("sampled")
    assert names[HTTP] == 0
    assert names[POLL] >= changed.requests("sampled", "actor")


def test_spans_go_where_they_are_sent_now(changed: Changed) -> None:
    """And arguments are recorded from then on."""
    began = changed.result["phases"]["moved"][0]
    (root,) = (span for span in changed.spans if span.name.endswith(" ray.driver"))
    assert [span.name for span in changed.spans if span.start_ns > began] == []
    assert all(span.start_ns > changed.result["phases"]["sampled"][1] for span in changed.moved)
    arguments = [span for span in changed.moved if span.name == POLL and span.start_ns > began]
    assert all("ray.arguments" in span.attributes for span in arguments)
    assert {span.trace_id for span in arguments} == {root.trace_id}


def test_an_exporter_that_no_node_has_is_wrong_usage(changed: Changed) -> None:
    """It is not found out by spans that wait."""
    code, _, problem = said_to("configure", "exporters=oltp", address=changed.address)
    assert code == 2
    assert "unknown exporter 'oltp'" in problem
    assert "nothing has been changed" in " ".join(problem.split())


def test_processes_that_start_later_have_it_too(changed: Changed) -> None:
    """A driver and its workers, while nothing is recorded, and after that."""
    address, other = changed.address, changed.folder / "other"
    variables: dict[str, Any] = {"RTH_ADDRESS": address, "RAY_TRACING_LOCAL_DIR": str(changed.folder / "spans")}
    before = len(spans_in(other))
    off = run_program("hello", **variables)
    assert "tracing of this cluster is off" in off.stderr
    assert len(spans_in(other)) == before
    code, said, _ = said_to("enable", f"local_dir={other}", address=address)
    assert (code, said["set"]["enabled"], said["set"]["version"]) == (0, True, 7)
    assert said["set"]["variables"]["RAY_TRACING_LOCAL_DIR"] == str(other)
    run_program("hello", **variables)
    spans = await_spans(other, lambda found: any(span.name == "hello.py ray.driver" for span in found))
    assert [span.name for span in spans].count("hello.py ray.driver") == 1
    status = command("status", "--address", address)
    assert "tracing was switched on (version 7)" in " ".join(status.stdout.split())


def test_the_hook_runs_in_actors_of_serve_that_have_started_without_it(short_tmp: Callable[[], Path]) -> None:
    """With `--actors`, under load: no request fails, and requests by HTTP are traced from then on."""
    folder = short_tmp()
    variables: dict[str, Any] = {**with_extras(), "RAY_TRACING_LOCAL_DIR": str(folder / "spans")}
    head, address = start_head(folder, **variables)
    try:
        run = run_program("../inside/live_changes", "late", RTH_ADDRESS=address, **variables)
        result = run.result
        found = Changed(result, [], [], address, folder)
        spans = await_spans(
            folder / "spans", lambda each: found._replace(spans=each).names("on")[HTTP] >= found.requests("on", "http")
        )
        found = found._replace(spans=spans)
    finally:
        stop_head(head)
    assert result["failed"] == []
    said = result["said"]["on"]
    assert [each["error"] for each in said["actors"]] == [None] * 4  # the controller, the proxy and two replicas
    assert (said["code"], said["applied"], said["failed"], said["silent"]) == (1, 4, 0, 2)
    titles = sorted(each["title"] for each in said["processes"] if each["state"] == "silent")
    assert titles[1].startswith("ray::Poller"), titles  # the other is the driver
    names = found.names("on")
    assert names[HTTP] >= found.requests("on", "http")
    assert names[APP] >= found.requests("on", "http")
    assert found.names("dormant") == found.names("off") == Counter()
    known = {span.span_id for span in found.spans}
    assert [span.name for span in found.spans if span.parent_id and span.parent_id not in known] == []


def test_a_cluster_without_a_hook_gets_one_for_what_starts(untraced: str, tmp_path: Path) -> None:
    """What runs is left as it is, and the command says so."""
    variables: dict[str, Any] = {"RTH_ADDRESS": untraced, "RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans")}
    run_program("hello", **variables)
    code, _, problem = said_to("enable", address=untraced)
    assert code == 2
    assert "this cluster was started without a tracing hook" in problem
    code, said, _ = said_to("enable", "--hook", HOOK, address=untraced)
    assert (said["hook"], said["hook_is_late"], said["applied"], said["failed"]) == (HOOK, True, 0, 0)
    assert code == (1 if said["silent"] else 0)
    run_program("hello", **variables)
    spans = await_spans(tmp_path / "spans", lambda found: any(span.name == "hello.py ray.driver" for span in found))
    assert any(span.name.endswith(" ray.remote") for span in spans)
    known = {span.span_id for span in spans}
    assert [span.name for span in spans if span.parent_id and span.parent_id not in known] == []
    _, said, _ = said_to("disable", address=untraced)
    assert said["hook"] is None
    run_program("hello", **variables)
    assert len(spans_in(tmp_path / "spans")) == len(spans)
