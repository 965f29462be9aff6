"""What every call costs, counted in instructions of the interpreter: a number that no busy machine changes.

With the compiled part, what Python still executes is counted, stand-ins for Ray included: if a common call is not made
there any more, it is many times as much.
"""

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
from stand_ins import DRIVER_TASK_ID, TASK_ID, worker_of_job

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._ray import execution, submission, targets, tracing
from ray_tracing_hooks._ray.arguments import KEY
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._record import carrier

JOB = JobTrace(os.urandom(16), os.urandom(8), 0x03, DRIVER_TASK_ID)
UNSAMPLED = JOB._replace(flags=0x02)

PYTHON = sys.version_info[:2]

IN_PYTHON = {
    "execution, nothing carried": {(3, 10): 527, (3, 11): 535, (3, 12): 480, (3, 13): 475},
    "execution, context carried": {(3, 10): 800, (3, 11): 815, (3, 12): 745, (3, 13): 725},
    "execution, not sampled": {(3, 10): 137, (3, 11): 130, (3, 12): 123, (3, 13): 125},
    "submission, sampled": {(3, 10): 472, (3, 11): 475, (3, 12): 432, (3, 13): 426},
    "submission, not sampled": {(3, 10): 187, (3, 11): 170, (3, 12): 161, (3, 13): 160},
}
COMPILED = {
    "execution, nothing carried": {(3, 10): 90, (3, 11): 90, (3, 12): 90, (3, 13): 90},
    "execution, context carried": {(3, 10): 90, (3, 11): 90, (3, 12): 90, (3, 13): 90},
    "execution, not sampled": {(3, 10): 137, (3, 11): 130, (3, 12): 123, (3, 13): 125},
    "submission, sampled": {(3, 10): 19, (3, 11): 21, (3, 12): 20, (3, 13): 20},
    "submission, not sampled": {(3, 10): 13, (3, 11): 15, (3, 12): 14, (3, 13): 14},
}
"""How many instructions a call may take, by version of Python: each has other instructions."""

pytestmark = [
    pytest.mark.usefixtures("each_way"),
    pytest.mark.skipif(
        any(PYTHON not in limits for limits in IN_PYTHON.values()),
        reason="there are no limits for this version of Python",
    ),
]


def most(what: str) -> int:
    return (COMPILED if _compiled.use.is_on else IN_PYTHON)[what][PYTHON]


def instructions(call: Callable[[], Any]) -> int:
    """How many instructions Python runs for ``call``, when it has been called before."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    call()
    before = sys.gettrace()
    # Python 3.12 does not count in code that is traced for the first time.
    for _ in range(2):
        sys.settrace(trace)
        try:
            call()
            count = 0
            call()
        finally:
            sys.settrace(before)
    return count


def method() -> bytes:
    return b"result"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[[JobTrace], None]:
    def is_job(trace: JobTrace) -> None:
        monkeypatch.setattr(Cluster, "all_traced", True)
        monkeypatch.setattr(Cluster, "publish", lambda _self, _job_id, _trace: True)
        monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: trace)

    return is_job


@pytest.mark.parametrize(
    ("trace", "carried", "what"),
    [(JOB, False, "nothing carried"), (JOB, True, "context carried"), (UNSAMPLED, False, "not sampled")],
)
def test_an_execution(
    trace: JobTrace,
    carried: bool,
    what: str,
    job: Callable[[JobTrace], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job(trace)
    monkeypatch.setattr(tracing, "active", worker_of_job(tmp_path))
    context = carrier.encode(JOB.trace_id, JOB.root_span_id, JOB.flags, time.time_ns(), DRIVER_TASK_ID, None)
    arguments = {KEY: context} if carried else {}
    execute = execution._function_executor(method, execution.Beginning("Actor", "method").begin)
    assert instructions(lambda: execute(**arguments)) - instructions(method) < most(f"execution, {what}")


@pytest.mark.parametrize(("trace", "what"), [(JOB, "sampled"), (UNSAMPLED, "not sampled")])
def test_a_submission(
    trace: JobTrace,
    what: str,
    job: Callable[[JobTrace], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job(trace)
    monkeypatch.setattr(tracing, "active", stand_ins.driver_of_job(tmp_path, trace))
    result, called = stand_ins.ObjectRef(TASK_ID), stand_ins.Method()
    call = submission.traced(targets._describe_method, key_of=targets._key_of)(lambda *_arguments, **_options: result)
    assert instructions(lambda: call(called, (), {})) < most(f"submission, {what}")
