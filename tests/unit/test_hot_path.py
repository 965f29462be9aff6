"""What every call costs, counted in instructions of the interpreter: a number that no busy machine changes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import stand_ins
from stand_ins import DRIVER_TASK_ID, TASK_ID, tracing_of

from ray_tracing_hooks._ray import actors, cluster, execution, submission, tracing
from ray_tracing_hooks._ray.arguments import KEY
from ray_tracing_hooks._ray.cluster import JobTrace
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._record import carrier
from ray_tracing_hooks._record.span import Parent

JOB = JobTrace(os.urandom(16), os.urandom(8), 0x03, DRIVER_TASK_ID)
UNSAMPLED = JOB._replace(flags=0x02)

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="each version of Python has other instructions; the limits are those of 3.11",
)


def instructions(call: Callable[[], Any]) -> int:
    """How many instructions Python runs for ``call``, when it has been called before."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    call()
    call()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def method() -> bytes:
    return b"result"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[[JobTrace], None]:
    def is_job(trace: JobTrace) -> None:
        monkeypatch.setattr(cluster, "all_traced", True)
        monkeypatch.setattr(cluster, "publish", lambda _job_id, _trace: True)
        monkeypatch.setattr(cluster, "published", lambda _job_id: trace)

    return is_job


@pytest.mark.parametrize(
    ("trace", "carried", "most"),
    [(JOB, False, 535), (JOB, True, 815), (UNSAMPLED, False, 130)],
    ids=["nothing carried", "context carried", "not sampled"],
)
def test_an_execution(
    trace: JobTrace,
    carried: bool,
    most: int,
    job: Callable[[JobTrace], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job(trace)
    monkeypatch.setattr(tracing, "active", tracing_of(tmp_path))
    context = carrier.encode(JOB.trace_id, JOB.root_span_id, JOB.flags, time.time_ns(), DRIVER_TASK_ID, None)
    arguments = {KEY: context} if carried else {}
    execute = execution._function_executor(method, execution.Beginning("Actor", "method"))
    assert instructions(lambda: execute(**arguments)) - instructions(method) < most


@pytest.mark.parametrize(("trace", "most"), [(JOB, 475), (UNSAMPLED, 170)], ids=["sampled", "not sampled"])
def test_a_submission(
    trace: JobTrace,
    most: int,
    job: Callable[[JobTrace], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job(trace)
    driver = tracing_of(tmp_path, DRIVER)
    driver.recorder.fallback = Parent(trace.trace_id, trace.root_span_id, trace.flags, None, remote=False)
    driver.publish_job_trace()
    monkeypatch.setattr(tracing, "active", driver)
    result, called = stand_ins.Id(TASK_ID), stand_ins.Method()
    call = submission.traced(actors._describe)(lambda *_arguments, **_options: result)
    assert instructions(lambda: call(called, (), {})) < most
