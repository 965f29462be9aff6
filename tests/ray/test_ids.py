"""Ids of spans that are made of those of tasks, and the traces that calls belong to which carry nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Cluster
from support import HOOK, Run, await_spans, by_name, check_links, run_program, spans_in

from ray_tracing_hooks._insight.model.span import Span


@pytest.mark.slow(older_rays=True)  # many calls; test_calls.py checks the ids of its programs
def test_no_two_spans_of_a_trace_have_one_id(cluster: Cluster, tmp_path: Path) -> None:
    """Over retries, dead workers, actors made anew and objects made again, in two jobs of one cluster and in another
    cluster, all parts of the trace that their environment tells of. What a task calls is below the attempt that did.
    """
    trace = f"{51:032x}"
    within = f"00-{trace}-{52:016x}-01"
    run: Callable[..., Run] = run_program
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(run, "again", str(tmp_path), TRACEPARENT=within, **where)
            for where in (
                {"RTH_ADDRESS": cluster.address, "RAY_TRACING_LOCAL_DIR": str(cluster.spans)},
                {"RTH_ADDRESS": cluster.address, "RAY_TRACING_LOCAL_DIR": str(cluster.spans)},
                {"RTH_HOOK": HOOK, "RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans")},
            )
        ]
    assert [each.result().result for each in runs] == [[[[0, 1]] * 2, [0, 1]]] * 2 + [[[[0, 1]] * 2, [0, 1], 1_000_000]]
    # What ran on another node than the driver's is written by the shipper of that node, in its own time.
    await_spans(tmp_path / "spans", lambda spans: len(by_name(spans, "__main__.large ray.remote_worker")) == 2)
    spans = [
        span for folder in (cluster.spans, tmp_path / "spans") for span in spans_in(folder) if span.trace_id == trace
    ]
    executions = Counter(span.name for span in spans if span.name.endswith("ray.remote_worker"))
    # Two attempts of each, in each of three drivers. One run of `dies` and of `call` was interrupted, and is there too.
    assert executions["__main__.fails ray.remote_worker"] == executions["__main__.dies ray.remote_worker"] == 6
    assert executions["Restarted.__init__ ray.remote_worker"] == executions["Restarted.call ray.remote_worker"] == 6
    assert executions["__main__.large ray.remote_worker"] == 2
    check_links(spans, outside=f"{52:016x}")
    by_id = {span.span_id: span for span in spans}
    for span in by_name(spans, "__main__.leaf ray.remote"):
        assert span.attributes["ray.parent_task_id"] == by_id[span.parent_id].attributes["ray.task_id"]


def test_each_of_many_calls_at_once_is_below_its_own_submission(cluster: Cluster) -> None:
    """Also asynchronous generators, which Ray calls where another call may be the current task already."""
    run = cluster.run("crowded")
    check_links(run.spans)
    by_id = {span.span_id: span for span in run.spans}
    for kind, task_id, span_id in run.result:
        execution = by_id[span_id]
        assert execution.name == f"Crowded.{kind} ray.remote_worker"
        assert execution.attributes["ray.task_id"] == task_id
        assert by_id[execution.parent_id].attributes["ray.task_id"] == task_id
    assert Counter(kind for kind, _, _ in run.result) == {"coroutine": 10, "function": 10, "generator": 20}
    executions = Counter(span.name for span in run.spans if span.name.endswith("ray.remote_worker"))
    assert executions["Crowded.generator ray.remote_worker"] == 10


def test_calls_that_belong_to_no_trace_are_in_none(cluster: Cluster) -> None:
    """Those that a driver without tracing makes to an actor of a traced job are not in that job's trace. A function
    that makes no span, called where no span is around it, is in its job's trace, below the driver.
    """
    run = cluster.run("outside")
    (root,) = by_name(run.spans, "outside.py ray.driver")
    assert run.result["mine"] == root.trace_id
    assert run.result["of another"] != root.trace_id
    assert run.result["hidden"] == root.trace_id
    (hidden,) = by_name(run.spans, "in hidden")
    assert hidden.parent_id == root.span_id
    check_links(run.spans)
    others = [span for span in spans_in(cluster.spans) if span.trace_id == run.result["of another"]]
    assert _names(others) == {"in detached", "__main__.seen ray.remote", "__main__.seen ray.remote_worker"}
    assert [span.name for span in others if not span.parent_id] == ["in detached"]
    check_links(others)


def test_a_detached_actor_whose_driver_has_ended_calls_within_its_trace(cluster: Cluster) -> None:
    """Its calls carry nothing, and run in workers that start when the driver is gone."""
    cluster.run("left_behind", "leave")
    trace_id, _ = cluster.run("left_behind", "come").result
    spans = await_spans(
        cluster.spans, lambda found: {"in leaf", "Stays.work ray.remote_worker"} <= _names(_of(found, trace_id))
    )
    of_trace = _of(spans, trace_id)
    assert "left_behind.py ray.driver" in _names(of_trace)
    (submission,) = by_name(of_trace, "__main__.leaf ray.remote")
    (execution,) = by_name(of_trace, "__main__.leaf ray.remote_worker")
    (work,) = by_name(of_trace, "Stays.work ray.remote_worker")
    (inner,) = by_name(of_trace, "in leaf")
    assert (submission.parent_id, execution.parent_id) == (work.span_id, submission.span_id)
    assert inner.parent_id == execution.span_id
    assert "ray.submit_time_unix_nano" not in execution.attributes, "it carried nothing"
    check_links(of_trace)


def _of(spans: list[Span], trace_id: str) -> list[Span]:
    return [span for span in spans if span.trace_id == trace_id]


def _names(spans: list[Span]) -> set[str]:
    return {span.name for span in spans}


def test_calls_need_no_answer_of_the_clusters_head(tmp_path: Path) -> None:
    """Actors that were made before the head stopped to answer are traced, from the first call that carries nothing."""
    run = run_program("held_cluster", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path))
    assert run.result == [0, 1, 2] * 2
    spans = spans_in(tmp_path)
    executions = Counter(span.name for span in spans if span.name.endswith(".call ray.remote_worker"))
    assert executions == {"Plain.call ray.remote_worker": 4, "Async.call ray.remote_worker": 4}
    check_links(spans)
