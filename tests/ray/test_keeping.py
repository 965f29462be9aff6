"""Spans of traces that are not sampled, which are recorded if they failed or were slow: on a cluster of two nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from conftest import Cluster, Nodes, start_head, stop_head
from support import HOOK, await_spans, ended, run_program, spans_in, tree, with_extras

from ray_tracing_hooks._insight.model.span import Span

pytestmark = pytest.mark.slow  # a cluster of two nodes

RATIO = 0.01
SETTINGS = {
    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": str(RATIO),
    "RAY_TRACING_KEEP_ERRORS": "1",
    "RAY_TRACING_KEEP_SLOWER": "3",
}


@pytest.fixture(scope="module")
def nodes(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    folder = short_tmp()
    settings = {**SETTINGS, "RAY_TRACING_LOCAL_DIR": str(folder / "spans")}
    options = [f"--tracing-startup-hook={HOOK}", '--resources={"first":1}']
    head, address = start_head(folder, *options, **settings)
    nodes = Nodes(address, folder)
    nodes.start("second", '--resources={"second":1}', **settings)
    yield Cluster(address, folder / "spans")
    nodes.stop()
    stop_head(head)


def variables(cluster: Cluster, **more: str) -> dict[str, Any]:
    return {**SETTINGS, "RTH_ADDRESS": cluster.address, "RAY_TRACING_LOCAL_DIR": str(cluster.spans), **more}


def reason(span: Span) -> object:
    return span.attributes.get("ray.sampling.reason")


def is_sampled(span: Span) -> bool:
    return int(span.trace_id[16:], 16) < RATIO * (1 << 64)


def test_failed_and_slow_chains_are_whole_and_nothing_else_is_recorded(nodes: Cluster) -> None:
    """From the driver to the other node. Of the worker that is killed there is nothing but what its callers see."""
    run = run_program("keeping", **variables(nodes, RAY_TRACING_ROOT_SPAN="0"))
    failed, died = "RayTaskError(ValueError)", "RayTaskError(WorkerCrashedError)"
    assert run.result == [failed, failed, failed, 0, 0, 0, died]
    many = sum(len(chain.split("\n")) for chain in CHAINS)

    def kept(spans: list[Span]) -> list[Span]:
        return [span for span in spans if reason(span) is not None]

    spans = await_spans(nodes.spans, lambda spans: len(kept(spans)) >= many)
    assert sorted(chains(kept(spans))) == sorted(CHAINS)
    assert all(is_sampled(span) for span in spans if reason(span) is None), "all others are in traces that are sampled"
    reasons = {"error": 3 * 7 + 3 + 4, "slow": 2 * 7}
    assert {each: sum(reason(span) == each for span in spans) for each in reasons} == reasons


def chains(spans: list[Span]) -> list[str]:
    """The tree of each trace."""
    traces: dict[str, list[Span]] = {}
    for span in spans:
        assert not is_sampled(span)
        traces.setdefault(span.trace_id, []).append(span)
    return [tree(each) for each in traces.values()]


def test_a_submission_is_recorded_with_its_execution(nodes: Cluster) -> None:
    """As a span of a process that is not known, with what its worker knows of it."""
    program = """
fails = ray.remote(lambda: 1 / 0)
ray.get(fails.options(name="a name", num_cpus=0, resources={"second": 0.01}).remote())
"""
    before = spans_in(nodes.spans)
    assert driver(nodes, program).returncode == 1
    spans = added(nodes, before, 3)
    root, call, execution = (span for name in ("-c ray.driver", SUBMITTED, RAN) for span in spans if span.name == name)
    assert (root.attributes["error.type"], root.parent_id) == ("ray.exceptions.RayTaskError(ZeroDivisionError)", "")
    assert (call.parent_id, execution.parent_id) == (root.span_id, call.span_id)
    assert (call.start_ns, call.end_ns) == (execution.attributes["ray.submit_time_unix_nano"],) * 2
    assert root.start_ns < call.start_ns < execution.start_ns
    assert call.attributes == {
        "ray.remote": "function",
        "ray.function": "__main__.<lambda>",
        "ray.job_id": root.attributes["ray.job_id"],
        "ray.task_id": execution.attributes["ray.task_id"],
        "ray.parent_task_id": root.attributes["ray.task_id"],
        "ray.name": "a name",
        "ray.sampling.reason": "error",
    }
    assert call.resource.items() < execution.resource.items()
    assert not {"host.name", "process.pid", "service.instance.id", "ray.node.id"} & call.resource.keys()


def test_a_driver_that_neither_fails_nor_is_slow_leaves_nothing(nodes: Cluster) -> None:
    program = "ray.get(ray.remote(lambda: 1).options(num_cpus=0, resources={'first': 0.01}).remote())"
    before = spans_in(nodes.spans)
    assert driver(nodes, program).returncode == 0
    assert driver(nodes, "1 / 0").returncode == 1
    assert [(span.name, reason(span)) for span in added(nodes, before, 1)] == [("-c ray.driver", "error")]


def added(cluster: Cluster, before: list[Span], least: int) -> list[Span]:
    """The spans that have come since, once there are so many."""
    known = {span.span_id for span in before}
    spans = await_spans(cluster.spans, lambda spans: len(spans) >= len(before) + least)
    return [span for span in spans if span.span_id not in known]


def test_a_request_that_fails_is_whole(tmp_path: Path) -> None:
    """From the proxy to the replica that fails. The calls of deployments are recorded by the replicas."""
    settings: dict[str, Any] = {"OTEL_TRACES_SAMPLER": "always_off", "RAY_TRACING_KEEP_ERRORS": "1"}
    run = run_program("serve_keeping", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path), **settings, **with_extras())
    assert run.result == [200, 500, 200]
    spans = spans_in(tmp_path)
    assert tree(spans) == REQUEST.strip()
    assert {reason(span) for span in spans} == {"error"}
    calls = [span for span in spans if span.name.endswith(" serve.remote")]
    assert {call.attributes["ray.serve.deployment"] for call in calls} == {"Front", "Back"}
    assert all(call.start_ns == call.end_ns and "ray.pid" not in call.attributes for call in calls)


def driver(cluster: Cluster, program: str) -> CompletedProcess[str]:
    """A driver in a trace that is not sampled."""
    begin = 'import os, ray\nray.init(address=os.environ["RTH_ADDRESS"], log_to_driver=False)\n'
    settings = variables(cluster, OTEL_TRACES_SAMPLER_ARG="0", RAY_TRACING_KEEP_SLOWER="3600")
    return ended([sys.executable, "-c", begin + program], **settings)


SUBMITTED, RAN = "__main__.<lambda> ray.remote", "__main__.<lambda> ray.remote_worker"

FAILED = """
Actor.call call !ValueError
  __main__.branch call !ValueError
    __main__.leaf call !ValueError
      in leaf !error
"""

SLOW = FAILED.replace(" !ValueError", "").replace(" !error", "")

CAUGHT = """
__main__.leaf call !ValueError
  in leaf !error
"""

KILLED = """
Actor.call call !ray.exceptions.WorkerCrashedError
  __main__.branch call !ray.exceptions.WorkerCrashedError
"""

REQUEST = """
GET /keeping !500
  Front.__call__ serve.remote
    Front.__call__ serve.replica !ValueError
      Back.answer serve.remote
        Back.answer serve.replica !ValueError
"""

CHAINS = [each.strip() for each in (FAILED, FAILED, FAILED, SLOW, SLOW, CAUGHT, KILLED)]
