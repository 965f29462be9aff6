"""A program that reaches a cluster by Ray Client (``ray://``), with and without a hook in it and in the cluster."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import start_head, stop_head
from ports import free_port
from support import (
    CLIENT_SERVER,
    HOOK,
    INSIDE,
    Run,
    await_spans,
    by_name,
    check_links,
    command,
    path_with,
    run_client,
    spans_in,
    tree,
)

from ray_tracing_hooks._insight.model.span import Span

pytestmark = pytest.mark.slow  # Ray starts a server for each client, and no other test may have clients meanwhile

CALLS = {
    "__main__.add": (12, 12),  # of which one fails, three are made by `below` and one by an actor
    "__main__.below": (1, 1),
    "__main__.fail": (2, 2),
    "Counter.add": (4, 3),  # the last one of an actor that has been killed
    "Counter.add_below": (1, 1),
}
"""How often each was submitted and executed."""

UNTRACED = "this cluster was started without a hook of this package"


@dataclass
class Head:
    """A head node with a Ray Client server; ``folder`` is where its spans and files of ours go."""

    address: str
    folder: Path

    @property
    def spans(self) -> Path:
        return self.folder / "spans"

    def run(self, program: str, *arguments: str, **variables: str) -> Run:
        """Run a program as a client of this cluster, which may fail."""
        variables |= {
            "RTH_ADDRESS": self.address,
            "RAY_TRACING_LOCAL_DIR": str(self.spans),
            "TMPDIR": str(self.folder),
            # Seconds that a server waits for a client that was killed, and with it the end of the cluster.
            "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "1",
            "PYTHONPATH": path_with(INSIDE),
        }
        return run_client(program, *arguments, check=False, **variables)

    def trace(self, script: str, enough: Callable[[list[Span]], bool], known: set[str] | None = None) -> list[Span]:
        """The spans of the one trace that has a root span of this script, and is none of the ``known`` ones."""

        def spans_of(spans: list[Span]) -> list[Span]:
            roots = [span for span in by_name(spans, f"{script} ray.driver") if span.trace_id not in (known or ())]
            return [span for span in spans if span.trace_id == roots[0].trace_id] if len(roots) == 1 else []

        return spans_of(await_spans(self.spans, lambda spans: enough(spans_of(spans))))


@pytest.fixture(scope="module")
def heads(short_tmp: Callable[[], Path], only_clients: None) -> Iterator[tuple[Head, Head]]:
    """A cluster without a hook, and one with."""
    heads = []
    with ExitStack() as running:
        for options in ([], [f"--tracing-startup-hook={HOOK}"]):
            folder, port = short_tmp(), free_port()
            variables = {"RAY_TRACING_LOCAL_DIR": str(folder / "spans"), "RAY_TRACING_RAY": "task,actor,get"}
            variables = CLIENT_SERVER | (variables if options else {})
            head, _ = start_head(folder, f"--ray-client-server-port={port}", *options, **variables)
            running.callback(stop_head, head)
            heads.append(Head(f"ray://127.0.0.1:{port}", folder))
        yield heads[0], heads[1]


@pytest.fixture(scope="module")
def plain(heads: tuple[Head, Head]) -> Run:
    """What the program says where nothing is traced."""
    run = heads[0].run("client_calls")
    assert run.returncode == 0, run.stderr
    return run


def missing(spans: list[Span]) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The calls that are not there as often as they were made: (submitted, executed) as expected, and as found."""
    names = Counter(span.name for span in spans)
    found = {call: (names[f"{call} ray.remote"], names[f"{call} ray.remote_worker"]) for call in CALLS}
    return {call: (expected, found[call]) for call, expected in CALLS.items() if found[call] != expected}


def check_same(plain: Run, traced: Run) -> None:
    """The program has said the same both times."""
    assert traced.returncode == 0, traced.stderr
    different = {name: (plain.result[name], traced.result[name]) for name in plain.result}
    different = {name: (before, after) for name, (before, after) in different.items() if before != after}
    print(f"client_calls: {len(plain.result) - len(different)} scenarios the same, {len(different)} different")
    assert not different


def test_a_client_of_a_traced_cluster(heads: tuple[Head, Head], plain: Run) -> None:
    """It gets the results, errors and output that an untraced one gives; its calls are traced from the server on."""
    traced = heads[1].run("client_calls")
    check_same(plain, traced)
    assert "ray_tracing_hooks" not in traced.stdout + traced.stderr, "a client hears nothing of its server's tracing"
    # The root span is that of the server's connection for the client.
    spans = heads[1].trace("ray.util.client.server", lambda spans: missing(spans) == {})
    assert missing(spans) == {}
    check_links(spans)
    assert by_name(spans, "ray.get"), "as the settings of the cluster say"


def test_a_traced_client_of_a_traced_cluster(heads: tuple[Head, Head], plain: Run) -> None:
    """Results, errors and output are the same; the root span of the client is that of all calls, and the only one."""
    traced = heads[1].run("../inside/hooked", "client_calls.py", RAY_TRACING_RAY="get")
    check_same(plain, traced)
    said = [line for line in traced.stderr.splitlines() if "ray_tracing_hooks:" in line]
    assert len(said) == 1, said
    assert f"tracing is on, spans go to {heads[1].spans}" in said[0]
    spans = heads[1].trace("client_calls.py", lambda spans: missing(spans) == {})
    assert missing(spans) == {}
    check_links(spans)
    (root,) = [span for span in spans if span.name.endswith(" ray.driver")]
    assert root.attributes["ray.namespace"] == "client"
    assert "ray.node_id" not in root.attributes
    of_driver = {span.attributes.get("ray.parent_task_id") for span in spans if span.parent_id == root.span_id}
    of_driver -= {None}  # of a call that Ray refuses
    assert of_driver == {root.attributes["ray.task_id"]}
    assert {span.attributes["ray.job_id"] for span in spans} == {root.attributes["ray.job_id"]}
    assert {span.parent_id for span in by_name(spans, "ray.await")} == {root.span_id}
    waiting = [span for span in by_name(spans, "ray.get") if span.parent_id == root.span_id]
    assert {span.attributes["ray.pid"] for span in waiting} == {root.attributes["ray.pid"]}, "where the program waits"


def test_a_traced_client_of_an_untraced_cluster(heads: tuple[Head, Head], plain: Run) -> None:
    """It works normally, reports once that the cluster is not traced, and its own span is recorded."""
    traced = heads[0].run("../inside/hooked", "client_calls.py")
    check_same(plain, traced)
    assert traced.stderr.count(UNTRACED) == 1
    (root,) = await_spans(heads[0].spans, bool)
    assert root.name == "client_calls.py ray.driver"


OF_CALLS = """\
__main__.double call
  in task"""

TREE = """\
__main__.double call x2
  in task
first
  __main__.below call
    __main__.double call
      in task
    ray.get
  __main__.double call
    in task
  failing
    __main__.fail call !ValueError
second
  Actor.__init__ call
  Actor.later call
  Actor.one call
  __main__.count call
  __main__.double call
    in task"""

RESULTS = [2, 4, 6, "RayTaskError(ValueError)", 1, 2, [0, 1], True, 8]

PATCHED = {"ray.util.client._ClientContext connect", "ray.util.client.worker.Worker close"}


def test_spans_of_clients_are_around_their_calls(heads: tuple[Head, Head]) -> None:
    """Of several clients at once: one that shuts down, one that is killed, and one that was late to call the hook and
    stops tracing for a while. What they have replaced in Ray is put back.
    """
    head = heads[1]
    known = {span.trace_id for span in await_spans(head.spans, lambda _: True)}
    endings = {"shutdown": [], "kill": ["kill"], "late": ["late", "stop"]}
    with ThreadPoolExecutor() as pool:
        runs = pool.map(lambda arguments: head.run("../inside/client_spans", *arguments), endings.values())
        done = dict(zip(endings, runs, strict=True))
    for ending, run in done.items():
        assert run.returncode == (-9 if ending == "kill" else 0), run.stderr
        expected = [*RESULTS, 10, 12] if ending == "late" else RESULTS
        assert run.result["results"] == expected
        api = {f"opentelemetry.trace {name}" for name in ("_TRACER_PROVIDER", "_set_tracer_provider")}
        of_ray = {"ray._private.client_mode_hook is_client_mode_enabled", "ray.util.client _all_contexts"}
        calls = {"ray.util.client.worker.Worker _call_schedule_for_task"}
        assert {*run.result["traced"]} - api == PATCHED | calls
        assert {*run.result.get("stopped", ())} - api == set()
        if ending != "kill":
            assert {*run.result["disconnected"]} - api - of_ray == {"ray.util.client._ClientContext connect"}

    def roots(spans: list[Span]) -> list[Span]:
        return [span for span in by_name(spans, "client_spans.py ray.driver") if span.trace_id not in known]

    def traces_of(spans: list[Span]) -> list[list[Span]]:
        return [[span for span in spans if span.trace_id == root.trace_id] for root in roots(spans)]

    wanted = sorted([OF_CALLS, TREE, TREE, TREE])
    spans = await_spans(head.spans, lambda spans: sorted(map(tree, traces_of(spans))) == wanted)
    traces = traces_of(spans)
    for trace in traces:
        check_links(trace)
    (again,) = [trace for trace in traces if not by_name(trace, "first")]
    assert tree(again) == OF_CALLS, "what it calls once it is traced again"
    trees = [tree(trace) for trace in traces if trace is not again]
    assert trees == [TREE] * 3
    died = [root for root in roots(spans) if root.status_code == 2]
    assert [root.attributes["error.type"] for root in died] == ["driver_died"]
    deadline = time.monotonic() + 60
    # The folder itself stays if its shipper ends while a client exits, which has found the shipper there.
    while [*head.folder.glob("ray_tracing_hooks-*/client-*/*")] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [*head.folder.glob("ray_tracing_hooks-*/client-*/*")], "what is in spools goes with their shippers"
    assert len([*head.folder.glob("ray_tracing_hooks-*/client-*/")]) <= 1, "all clients of a cluster have the same"


def test_a_client_is_traced_without_an_edit(heads: tuple[Head, Head]) -> None:
    """By `ray-tracing-hooks run`, since Ray calls no hook in it; the summary is of the trace of this client."""
    traced = heads[1].run("../inside/by_command", "small.py")
    assert traced.result == [2, 3], traced.stderr
    (trace,) = re.findall(r"ray-tracing-hooks view \S+ --trace (\w{32}) --open", traced.stderr)
    of_it = [span for span in spans_in(heads[1].spans) if span.trace_id == trace]
    assert len(by_name(of_it, "small.py ray.driver")) == 1
    assert by_name(of_it, "ray.get"), "waiting is recorded"


def test_doctor_looks_at_a_cluster_as_a_client(heads: tuple[Head, Head]) -> None:
    """From a machine that is no node. The process that serves it makes no spans."""
    head = heads[1]
    known = {span.span_id for span in spans_in(head.spans)}
    settings = {"RAY_TRACING_LOCAL_DIR": str(head.spans), "RAY_TRACING_RAY": "task,actor,get"}
    done = command("doctor", "--address", head.address, "--json", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert not [finding for finding in report["findings"] if finding["severity"] != "ok"], report["findings"]
    assert report["hook"] == HOOK
    assert [(node["answered"], node["exporters"]) for node in report["nodes"]] == [(True, ["local"])]
    # Whatever it recorded would come before what is recorded now.
    head.run("../inside/by_command", "small.py")
    made = [span.name for span in spans_in(head.spans) if span.span_id not in known]
    assert "small.py ray.driver" in made
    assert not [name for name in made if name.startswith("ray.util.client.server") or "doctor" in name]


def test_a_process_is_a_client_and_a_driver_in_turn(heads: tuple[Head, Head]) -> None:
    """Calling the hook once, before all of them: each traced turn is a trace, and nothing is said of the untraced one.
    The last one ends with the interpreter, by an error.
    """
    run = heads[1].run("../inside/client_turns")
    assert run.returncode == 1, run.stderr
    assert run.stderr.rstrip().endswith("ValueError: on purpose"), run.stderr
    said = [line for line in run.stderr.splitlines() if "ray_tracing_hooks:" in line and " next: " not in line]
    assert ["tracing is on" in line for line in said] == [True] * 3, said
    spans = spans_in(heads[1].spans)
    roots = {span.trace_id: span for span in by_name(spans, "client_turns.py ray.driver")}
    of_roots = [span for span in spans if span.parent_id in {root.span_id for root in roots.values()}]
    called = {span.name: roots[span.trace_id] for span in of_roots}
    assert sorted(called) == [f"__main__.{name} ray.remote" for name in ("again", "client", "traced")]
    failed = [name for name, root in called.items() if root.attributes.get("error.type") == "ValueError"]
    assert failed == ["__main__.again ray.remote"]
