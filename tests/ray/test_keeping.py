"""Traces that are not sampled, and are kept for an error or a slow call: on a cluster of two nodes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Cluster, start_head, stop_head
from shippers import running_shippers
from support import ANY_PORTS, HOOK, PATIENCE, PROGRAMS, RAY, Run, await_spans, environment, run_program, spans_in, tree

from ray_tracing_hooks._insight.model.span import Span

pytestmark = pytest.mark.slow  # a cluster of two nodes

SETTINGS = {
    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": "0",
    "RAY_TRACING_KEEP_ERRORS": "1",
    "RAY_TRACING_KEEP_SLOWER": "2",
    "RAY_TRACING_KEEP_WAIT": "60",  # longer than a worker takes to start on a busy machine
    # A worker that starts is not slow here: it is started before.
    "RAY_TRACING_EXCLUDE": "Actor.__init__",
}


@pytest.fixture(scope="module")
def nodes(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    folder = short_tmp()
    settings = {**SETTINGS, "RAY_TRACING_LOCAL_DIR": str(folder / "spans")}
    options = [f"--tracing-startup-hook={HOOK}", '--resources={"first":1}']
    head, address = start_head(folder, *options, **settings)
    command = [*RAY, "start", f"--address={address}", "--block", "--num-cpus=1", '--resources={"second":1}']
    with open(folder / "node.log", "wb") as log:
        node = subprocess.Popen(
            [*command, *ANY_PORTS, "--object-store-memory=100000000"],
            env=environment(**settings),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    yield Cluster(address, folder / "spans")
    stop_head(node)
    stop_head(head)


def variables(cluster: Cluster, **more: str) -> dict[str, Any]:
    return {**SETTINGS, "RTH_ADDRESS": cluster.address, "RAY_TRACING_LOCAL_DIR": str(cluster.spans), **more}


def shippers(cluster: Cluster) -> list[psutil.Process]:
    return running_shippers(str(cluster.spans.parent))


def by_what(spans: list[Span]) -> dict[str, list[Span]]:
    """The spans of each trace, by what was called in it."""
    traces: dict[str, list[Span]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    whats = {
        trace_id: {str(span.attributes["what"]) for span in found if "what" in span.attributes}
        for trace_id, found in traces.items()
    }
    return {"+".join(sorted(whats[trace_id] - {"good"})) or "good": found for trace_id, found in traces.items()}


def test_errors_and_slow_calls_are_kept_and_nothing_else(nodes: Cluster, tmp_path: Path) -> None:
    """Each trace in full on each node that saw an error or something slow in it, also if shippers are killed."""
    environ = environment(**variables(nodes, RAY_TRACING_ROOT_SPAN="0"))
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "keeping.py"), str(tmp_path)], env=environ, stdout=subprocess.PIPE, text=True
    )
    with program:
        until((tmp_path / "began").exists)
        killed = shippers(nodes)
        assert len(killed) == 2
        for process in killed:
            process.kill()
        (tmp_path / "go").touch()
        output, _ = program.communicate(timeout=PATIENCE)
    error = "RayTaskError(ValueError)"
    ended = {"good": 0, "fail": error, "slow": 0, "caught": 0, "late": error, "die": "RayTaskError(WorkerCrashedError)"}
    assert f"RESULT {ended}".replace("'", '"') in output
    # The workers of another job see to it that there are shippers on both nodes.
    assert run_program("second_node", **variables(nodes)).result == [True, 2]

    expected = {"fail": 10, "slow": 10, "caught": 4, "late": 10, "die": 10}

    def complete(spans: list[Span]) -> bool:
        found = by_what(spans)
        return all(len(found.get(what, [])) >= number for what, number in expected.items())

    found = by_what(await_spans(nodes.spans, complete, timeout=30))
    print("spans expected", expected, "found", {what: len(spans) for what, spans in found.items()})
    assert {what: len(found.get(what, [])) for what in expected} == expected
    assert found.keys() - {"warm"} == expected.keys()
    reasons = {what: {str(span.attributes["ray.kept"]) for span in found[what]} for what in expected}
    assert reasons == {**{what: {"error"} for what in expected}, "slow": {"slow"}}
    for what, its_tree in TREES.items():
        assert tree(found[what]) == its_tree.strip()
    # Only the node of the leaf has seen the error that its caller caught.
    assert Counter(span.name for span in found["caught"]) == {"__main__.leaf ray.remote_worker": 2, "in leaf": 2}


def test_a_driver_that_fails_is_kept_and_one_that_does_not_is_not(nodes: Cluster) -> None:
    """With a root span a program is one trace."""
    assert run_program("small", **variables(nodes)).result == [2, 3]
    failed = fails(nodes)
    assert failed.returncode == 1
    spans = await_spans(nodes.spans, lambda spans: any(span.name == "-c ray.driver" for span in spans))
    (root,) = [span for span in spans if span.name == "-c ray.driver"]
    assert root.attributes["ray.kept"] == "error"
    assert root.attributes["error.type"] == "ZeroDivisionError"
    kept = [span for span in spans if span.trace_id == root.trace_id]
    assert tree(kept) == FAILED.strip()
    assert "small.py ray.driver" not in {span.name for span in spans_in(nodes.spans)}


def fails(cluster: Cluster) -> Run:
    program = """
import os, ray
ray.init(address=os.environ["RTH_ADDRESS"], log_to_driver=False)
task = ray.remote(lambda: 1)
ray.get(task.options(num_cpus=0, resources={"first": 0.01}).remote())
1 / 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(**variables(cluster)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Run(None, done.stdout, done.stderr, done.returncode)


def until(condition: Callable[[], bool], timeout: float = 60) -> None:
    await_spans(Path("/nowhere"), lambda _spans: condition(), timeout)
    assert condition()


FAILED = """
__main__.<lambda> ray.remote
  __main__.<lambda> ray.remote_worker
"""

TREES = {
    "fail": """
Actor.call ray.remote
  Actor.call ray.remote_worker !ValueError
    __main__.branch ray.remote
      __main__.branch ray.remote_worker !ValueError
        __main__.leaf ray.remote
          __main__.leaf ray.remote_worker
            in leaf
        __main__.leaf ray.remote
          __main__.leaf ray.remote_worker !ValueError
            in leaf !error
""",
    "slow": """
Actor.call ray.remote
  Actor.call ray.remote_worker
    __main__.branch ray.remote
      __main__.branch ray.remote_worker
        __main__.leaf ray.remote x2
          __main__.leaf ray.remote_worker
            in leaf
""",
    "die": """
Actor.call ray.remote
  Actor.call ray.remote_worker !ray.exceptions.WorkerCrashedError
    __main__.branch ray.remote
      __main__.branch ray.remote_worker !ray.exceptions.WorkerCrashedError
        __main__.leaf ray.remote
          __main__.leaf ray.remote_worker
            in leaf
        __main__.leaf ray.remote
          __main__.leaf ray.remote_worker !worker_died
            in leaf !worker_died
""",
}
