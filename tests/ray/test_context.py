"""What travels with a call, and what can be chosen about spans."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from conftest import Cluster
from support import HOOK, Run, by_name, check_links, of_driver, run_program, spans_in, tree

BAGGAGE = {"user": "zoë=1"}


def test_trace_state_and_baggage_travel_with_calls(cluster: Cluster) -> None:
    """Tasks, creations and methods, and what they call, see the baggage of the caller and continue its trace."""
    run = cluster.once("context")
    for what, result, number in (
        ("sampled", run.result["sampled"], 11),
        ("actor", run.result["actor"][2], 12),
    ):
        assert result == [f"{number:032x}", True, "vendor=value", BAGGAGE], what
    assert run.result["actor"][:2] == [BAGGAGE, BAGGAGE]
    continued = [span for span in spans_in(cluster.spans) if span.trace_id == f"{11:032x}"]
    assert len(continued) == 5
    assert [span.name for span in continued if span.parent_id == f"{7:016x}"] == ["__main__.inside ray.remote"]


def test_a_call_in_a_trace_that_is_not_sampled_leaves_no_span(cluster: Cluster) -> None:
    """The decision reaches nested calls, and the trace continues with the same id."""
    run = cluster.once("context")
    assert run.result["not sampled"] == [f"{13:032x}", False, "vendor=value", BAGGAGE]
    assert not [span for span in spans_in(cluster.spans) if span.trace_id == f"{13:032x}"]
    assert run.result["after"][1:] == [True, "", {}], "nothing of it stays behind in the worker"


def test_what_an_actor_begins_after_the_end_of_a_call_that_started_it_is_a_trace_of_its_own(cluster: Cluster) -> None:
    """Calls and spans of the program: each with a link to the execution of that call. Sooner they are in its trace."""
    with_span, alone = cluster.once("context").result["outlived"]
    spans = spans_in(cluster.spans)
    (start,) = by_name(spans, "Loop.start ray.remote_worker")
    soon = [span.name for span in spans if span.parent_id == start.span_id]
    assert soon == ["__main__.inside ray.remote"]
    for trace_id, root in ((with_span, "later"), (alone, "__main__.inside ray.remote")):
        found = [span for span in spans if span.trace_id == trace_id]
        calls = "__main__.inside call\n  deepest"
        assert tree(found) == (calls if root != "later" else "later\n  " + calls.replace("\n", "\n  "))
        (first,) = (span for span in found if not span.parent_id)
        assert [(link.trace_id, link.span_id) for link in first.links] == [(start.trace_id, start.span_id)]
        assert first.attributes["ray.after_end"] >= 1
    assert len({start.trace_id, with_span, alone}) == 3


SPAN = f"{22:016x}"


def test_a_driver_that_is_started_within_a_trace_continues_it(tmp_path: Path) -> None:
    """By variables of its environment. What its calls see is the same as if it had begun the trace, and its workers,
    which have the same variables, are not within it but by their calls.
    """
    trace = f"{21:032x}"
    run = started_within(f"00-{trace}-{SPAN}-01", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path))
    assert run.result == [[trace, True, "vendor=value", BAGGAGE], trace]
    spans = spans_in(tmp_path)
    assert {span.trace_id for span in spans} == {trace}
    assert [span.name for span in spans if span.parent_id == SPAN] == ["started_within.py ray.driver"]
    assert len([span for span in spans if span.name.endswith("ray.remote_worker")]) == 2


@pytest.mark.slow(older_rays=True)  # eight drivers, one after the other
def test_each_driver_of_a_process_has_a_trace_of_its_own(cluster: Cluster) -> None:
    """However the one before it has ended, and whatever has gone wrong before; but for a span of the program's that is
    open around several.
    """
    hooks = " ".join(f"ray_tracing_hooks.{name}:setup" for name in ("otlp", "local", "jaeger"))
    run = cluster.run("drivers_in_a_row", RTH_HOOKS=hooks)
    assert run.result == "kept"
    for unused in ("otlp", "jaeger"):
        said = f"started with the hook {HOOK}; ray_tracing_hooks.{unused}:setup, which ray.init() names in this program"
        assert run.stderr.count(said) == 1
    assert run.stderr.count(" is not used") == 2
    spans = spans_in(cluster.spans)
    drivers = sorted(by_name(spans, "drivers_in_a_row.py ray.driver"), key=lambda span: span.start_ns)
    by_id = {span.span_id: span.name for span in spans}
    above = [by_id.get(span.parent_id, span.parent_id) for span in drivers]
    assert above == ["", "", "", "around", "around", "", "", "across"]
    assert len({span.trace_id for span in drivers}) == 6
    assert {span.status_code for span in drivers} == {0}, "none has failed"
    own = {span.name: by_id.get(span.parent_id, span.parent_id) for span in spans if span.scope == "in a row"}
    assert [own[name] for name in ("after shutdown", "around", "within around")] == ["", "", "around"]
    calls = Counter(span.parent_id for span in by_name(spans, "__main__.work ray.remote"))
    assert [calls[driver.span_id] for driver in drivers] == [1] * 7 + [2]


def test_a_driver_within_a_trace_that_is_not_sampled_leaves_no_span(cluster: Cluster) -> None:
    trace = f"{41:032x}"
    run = started_within(f"00-{trace}-{SPAN}-00", **on(cluster))
    assert run.result == [[trace, False, "vendor=value", BAGGAGE], trace]
    assert not [span for span in spans_in(cluster.spans) if span.trace_id == trace]


def test_what_is_no_traceparent_is_as_if_it_were_not_there(cluster: Cluster) -> None:
    run = started_within("what is this", **on(cluster))
    (seen, other) = run.result
    assert seen[1:] == [True, "", BAGGAGE]
    (root,) = [span for span in spans_in(cluster.spans) if span.trace_id == seen[0] and not span.parent_id]
    assert root.name == "started_within.py ray.driver"
    assert other == seen[0]


def on(cluster: Cluster) -> dict[str, str]:
    """The variables of a driver that joins this cluster."""
    return {"RTH_ADDRESS": cluster.address, "RAY_TRACING_LOCAL_DIR": str(cluster.spans)}


def started_within(traceparent: str, **variables: str) -> Run:
    around = {"TRACEPARENT": traceparent, "TRACESTATE": "vendor=value", "BAGGAGE": "user=zo%C3%AB%3D1"}
    return run_program("started_within", check=True, **around, **variables)


LEFT = """
__main__.nested call
  __main__.nested call
    __main__.nested call
library.in_library_too call
outer
  inner
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program whose workers run in another one, and whose settings name relative paths, and calls."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "code").mkdir()
    (folder / "code" / "module.py").touch()
    (folder / "settings.yaml").write_text("local_dir: out/spans")
    run = run_program(
        "tasks",
        RTH_FOLDER=str(folder),
        RTH_HOOK=HOOK,
        RTH_WORKING_DIR=str(folder / "code"),
        RAY_TRACING_CONFIG="settings.yaml",
        RAY_TRACING_SPOOL_DIR="spool",
        RAY_TRACING_INCLUDE="*.in_library*,__main__.nested",
        RAY_TRACING_EXCLUDE="*.in_library",
        OTEL_SERVICE_NAME="my job",
        OTEL_RESOURCE_ATTRIBUTES="team=a%20b,service.name=other,bad",
    )
    assert run.result[-1] == 3
    return folder


def test_calls_can_be_left_out_by_name_and_what_they_call_stays_in_the_trace(elsewhere: Path) -> None:
    """An excluded call makes no span on either side; the calls below it are children of the span above it."""
    assert tree(spans_in(elsewhere / "out" / "spans")) == LEFT.strip()


def test_the_resource_says_what_the_user_says(elsewhere: Path) -> None:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are on the spans of the driver and of the workers."""
    spans = spans_in(elsewhere / "out" / "spans")
    assert {(span.resource["service.name"], span.resource["team"]) for span in spans} == {("my job", "a b")}
    assert {span.resource["ray.worker.process_type"] for span in spans} == {"driver", "worker"}
    assert len({span.resource["service.instance.id"] for span in spans}) == len(
        {span.resource["process.pid"] for span in spans}
    )


def test_relative_paths_in_settings_are_relative_to_where_ray_was_started(elsewhere: Path) -> None:
    """Of the workers too, which have another working directory: their spans are beside those of the driver."""
    check_links(of_driver(spans_in(elsewhere / "out" / "spans"), "tasks"))
    assert {*os.listdir(elsewhere)} == {"code", "out", "settings.yaml", "spool"}


@pytest.mark.slow  # a thousand traces, in a cluster with settings of its own
def test_a_ratio_keeps_whole_traces_and_about_so_many(tmp_path: Path) -> None:
    """The decision is made at the root and holds through every hop: no trace is torn."""
    run = run_program(
        "many_roots",
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        RAY_TRACING_ROOT_SPAN="0",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0.1",
    )
    assert run.result == 499500
    traces: dict[str, list[str]] = {}
    for span in spans_in(tmp_path / "spans"):
        traces.setdefault(span.trace_id, []).append(span.name)
    calls = {trace: sorted(names) for trace, names in traces.items() if any(".__init__" not in name for name in names)}
    whole = [
        "Inner.call ray.remote",
        "Inner.call ray.remote_worker",
        "Outer.call ray.remote",
        "Outer.call ray.remote_worker",
        "around",
        "deep",
    ]
    assert {tuple(names) for names in calls.values()} == {tuple(whole)}
    assert 50 <= len(calls) <= 155, "five standard deviations around 100 of 1000"


@pytest.mark.slow  # another cluster
def test_other_propagators_carry_the_context_too(tmp_path: Path) -> None:
    """With B3 and baggage the trace is as whole as with the standard headers."""
    run = run_program(
        "context",
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        OTEL_PROPAGATORS="b3multi,baggage,jaeger",
    )
    assert run.result["sampled"][:2] == [f"{11:032x}", True]
    assert run.result["sampled"][3] == BAGGAGE
    assert run.result["not sampled"][:2] == [f"{13:032x}", False]
    continued = [span for span in spans_in(tmp_path / "spans") if span.trace_id == f"{11:032x}"]
    assert len(continued) == 5
