"""One program with everything in it is one connected trace, from the process that submits it as a job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import dashboard_options, start_head, stop_head
from ports import free_port
from support import ANY_PORTS, HOOK, PROGRAMS, await_spans, environment, run_program, tree, with_extras

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import Span

SETTINGS = {
    "RAY_TRACING_RAY": "task,actor,job,get,wait,put",
    "RAY_TRACING_INSTRUMENT": "threading",
}
TIGHT = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "2000"}
"""A node whose memory monitor kills every task."""


@pytest.mark.slow  # two nodes and a dashboard
def test_everything_is_one_trace(short_tmp: Callable[[], Path], tmp_path: Path) -> None:
    folder, port = short_tmp(), free_port()
    spans = tmp_path / "spans"
    variables = {**SETTINGS, **with_extras(), "RAY_TRACING_LOCAL_DIR": str(spans)}
    options = [*dashboard_options(port), f"--tracing-startup-hook={HOOK}"]
    head, address = start_head(folder, *options, **variables)
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    command = [ray, "start", f"--address={address}", "--block", "--num-cpus=0", '--resources={"tight":1}']
    command.append(f"--dashboard-agent-listen-port={free_port()}")
    with open(folder / "node.log", "wb") as log:
        node = subprocess.Popen(
            [*command, *ANY_PORTS, "--object-store-memory=100000000"],
            env=environment(**variables, **TIGHT),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        job = [sys.executable, str(PROGRAMS / "story.py"), str(tmp_path)]
        run = run_program("../inside/telling", f"http://127.0.0.1:{port}", *job, **with_extras())
        print(run.stdout)
        trace_id, status = run.result
        assert status == "SUCCEEDED", run.stdout
        found = await_spans(spans, settled)
    finally:
        stop_head(node)
        stop_head(head)
    assert {span.trace_id for span in found} == {trace_id}
    known = {span.span_id for span in found}
    (top,) = [span for span in found if span.parent_id not in known]
    assert top.name == "ray.job"
    assert tree(of_the_last_to_run_out(found)) == STORY.strip()
    (restarted,) = [span for span in found if any(event.name == names.ACTOR_RESTARTED for event in span.events)]
    assert restarted.name == "Restarts.__init__ ray.remote_worker"


def settled(spans: list[Span]) -> bool:
    """Whether the nodes have delivered: every submission has its execution, but for those that may have none."""
    parents = {span.parent_id for span in spans}
    calls = [span for span in spans if span.name.endswith(" ray.remote")]
    ended = {"ray.job", "__main__.runs_out_of_memory ray.remote_worker"}
    return ended <= {span.name for span in spans} and all(
        span.span_id in parents or "out_of_memory" in span.name for span in calls
    )


def of_the_last_to_run_out(spans: list[Span]) -> list[Span]:
    """Without the attempts that the memory monitor ended before they had begun, and the waiting for these."""
    parents = {span.parent_id for span in spans}
    too_early = {
        span.attributes[names.RAY_TASK_ID]
        for span in spans
        if span.name == "__main__.runs_out_of_memory ray.remote" and span.span_id not in parents
    }
    waited = {f"{task_id}01000000" for task_id in too_early}
    return [
        span
        for span in spans
        if span.attributes.get(names.RAY_TASK_ID) not in too_early
        and not waited & {*span.attributes.get(names.RAY_OBJECT_IDS, [])}
    ]


STORY = """
ray.job
  story.py ray.driver
    Asynchronous.__init__ call
    Asynchronous.later call
      __main__.inner call
        computes
      ray.await
    Restarts.__init__ ray.remote
      Restarts.__init__ ray.remote_worker
      Restarts.__init__ ray.remote_worker #1
    Restarts.work ray.remote
      Restarts.work ray.remote_worker !worker_died
      Restarts.work ray.remote_worker #1
    __main__.fails_once ray.remote
      __main__.fails_once ray.remote_worker !OSError
      __main__.fails_once ray.remote_worker #1
    __main__.is_cancelled call !ray.exceptions.TaskCancelledError
    __main__.is_killed call !worker_died
    __main__.outer call
      __main__.inner call x2
        computes
      ray.get
    __main__.runs_out_of_memory call !ray.exceptions.OutOfMemoryError
    __main__.starts_a_thread call
      __main__.inner call
        computes
      ray.get
    ray.get x3
    ray.get !ray.exceptions.OutOfMemoryError
    ray.get !ray.exceptions.TaskCancelledError
    ray.get !ray.exceptions.WorkerCrashedError
    ray.put
    ray.wait
"""
