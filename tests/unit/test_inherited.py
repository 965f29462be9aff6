"""What calls need not carry: both sides know the trace of the job, and make the id of the submission's span of the
task's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import stand_ins
from opentelemetry.sdk.trace.sampling import Decision, SamplingResult
from stand_ins import DRIVER_TASK_ID, JOB_ID, PARTS, TASK_ID, driver_of_job, tracing_of, worker_of_job

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import cluster, execution, submission, targets, tracing
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._ray.templates import Selection
from ray_tracing_hooks._record import carrier, ids
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._sdk.tracers import of_sdk

pytestmark = pytest.mark.usefixtures("each_way")


class Raises:
    def __getattr__(self, name: str) -> object:
        raise ValueError(name)


JOB = JobTrace(os.urandom(16), os.urandom(8), 0x03, DRIVER_TASK_ID)


@pytest.fixture
def in_traced_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "all_traced", True)


def submitted(
    active: tracing.Tracing, method: stand_ins.Method | None = None, rest: tuple[str, ...] = (), **options: int
) -> submission.Submission | None:
    """A call of a method that is being submitted."""
    return submission.begin(
        active.calls, targets._describe_method, method or stand_ins.Method(), (), {}, rest, options or {}
    )


def began() -> RecordedSpan:
    """The span of a method that has begun without a carried context."""
    begun = execution.Beginning("Actor", "method").begin(None)
    assert begun is not None
    span = begun[1]
    assert isinstance(span, RecordedSpan)
    return span


def parent_of(span: RecordedSpan) -> bytes:
    assert span.parent is not None
    return span.parent.span_id.to_bytes(8, "big")


@contextmanager
def within_a_task() -> Iterator[None]:
    """As in a method that runs, and that has begun without a carried context."""
    begun = execution.Beginning("Actor", "method").begin(None)
    assert begun is not None
    token = attach(begun[0])
    try:
        yield
    finally:
        detach(token)


def test_ids_of_tasks_spans() -> None:
    """The same on both sides, others for another task or another driver in the same trace, and never all zero."""
    mask = ids.mask_of_driver(b"a" * 8)
    first, second = (ids.span_id_of_task(TASK_ID, ids.mask_of_driver(root_id)) for root_id in (b"a" * 8, b"b" * 8))
    assert first == ids.span_id_of_task(TASK_ID, mask)
    assert len({first, second, ids.span_id_of_task(TASK_ID[::-1], mask)}) == 3
    assert len(first) == 8
    assert any(ids.span_id_of_task(bytes(24), ids.mask_of_driver(bytes(8))))


@pytest.mark.usefixtures("in_traced_cluster")
def test_submission_and_execution_meet_without_anything_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, JobTrace] = {}
    monkeypatch.setattr(Cluster, "publish", lambda _self, job_id, trace: told.setdefault(job_id, trace) is trace)
    monkeypatch.setattr(Cluster, "published", lambda _self, job_id: told.get(job_id))
    driver = driver_of_job(tmp_path / "driver", JOB)
    call = submitted(driver)
    assert call is not None
    assert call.carried is None
    call.submitted(stand_ins.ObjectRef(TASK_ID), submission.task_of, (), {})
    monkeypatch.setattr(tracing, "active", worker_of_job(tmp_path / "worker"))
    span = began()
    assert span.trace_id == JOB.trace_id
    assert parent_of(span) == call._span_id
    assert span.attributes[names.RAY_PARENT_TASK_ID] == DRIVER_TASK_ID.hex()
    span.end()


@pytest.mark.usefixtures("in_traced_cluster")
@pytest.mark.parametrize(
    ("rest", "options"),
    [(("unknown",), {}), ((), {"num_returns": 0})],
    ids=["arguments of another Ray", "no result that tells the task"],
)
def test_a_call_whose_task_may_not_be_known_carries_its_context(
    rest: tuple[str, ...], options: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "publish", lambda _self, _job_id, _trace: True)
    driver = driver_of_job(tmp_path, JOB)
    call = submitted(driver, None, rest, **options)
    assert call is not None
    assert call.carried is not None


@pytest.mark.usefixtures("in_traced_cluster")
def test_what_is_not_sampled_carries_and_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsampled = JOB._replace(flags=0x02)
    monkeypatch.setattr(Cluster, "publish", lambda _self, _job_id, _trace: True)
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: unsampled)
    driver = driver_of_job(tmp_path / "driver", unsampled)
    assert submitted(driver) is None
    monkeypatch.setattr(tracing, "active", worker_of_job(tmp_path / "worker"))
    begun = execution.Beginning("Actor", "method").begin(None)
    assert begun is not None
    assert begun[1] is None, "and what the task does is known to be in a trace that is not sampled"
    assert not list(tmp_path.rglob("*.spool"))


@pytest.mark.usefixtures("in_traced_cluster")
@pytest.mark.parametrize(("flags", "metrics"), [(0x02, False), (0x03, False), (0x02, True), (0x03, True)])
def test_calls_of_a_task_carry_nothing_unless_metrics_need_their_submission_time(
    flags: int, metrics: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their workers know the trace of the job as well. Calls that are not recorded have no metrics."""
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: JOB._replace(flags=flags))
    worker = tracing_of(tmp_path, carries_submit_time=metrics)
    worker.job.load_job_trace(JOB_ID, task_is_there=True)
    monkeypatch.setattr(tracing, "active", worker)
    with within_a_task():
        call = submitted(worker)
    is_recorded = flags == 0x03
    assert (call is not None) is is_recorded
    assert (call is not None and call.carried is not None) is (is_recorded and metrics)


@pytest.mark.usefixtures("in_traced_cluster")
def test_a_call_of_a_task_meets_its_execution_without_anything_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution knows that not the driver made the call: only the submission has the caller."""
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: JOB)
    caller = worker_of_job(tmp_path / "caller")
    monkeypatch.setattr(tracing, "active", caller)
    with within_a_task():
        call = submitted(caller)
        assert call is not None
        call.submitted(stand_ins.ObjectRef(TASK_ID), submission.task_of, (), {})
    callee = worker_of_job(tmp_path / "callee")
    callee.process.worker.core_worker.depth = 2
    monkeypatch.setattr(tracing, "active", callee)
    span = began()
    assert span.trace_id == JOB.trace_id
    assert parent_of(span) == call._span_id
    assert names.RAY_PARENT_TASK_ID not in span.attributes


@pytest.mark.usefixtures("in_traced_cluster")
def test_a_cluster_that_does_not_answer_is_asked_again_beside_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """Tasks run untraced meanwhile, none waits for an answer, and it is said once."""
    asked: list[threading.Thread] = []
    answers, has_answered = threading.Event(), threading.Event()

    def published(_self: Cluster, _job_id: str) -> JobTrace | None:
        asked.append(threading.current_thread())
        if not answers.is_set():
            raise RuntimeError("no answer")
        has_answered.set()
        return JOB

    monkeypatch.setattr(Cluster, "published", published)
    monkeypatch.setattr(cluster, "_RETRY_SECONDS", 0.01)
    active = tracing_of(tmp_path)
    monkeypatch.setattr(tracing, "active", active)
    active.job.load_job_trace(JOB_ID, task_is_there=True)
    for _ in range(3):
        assert execution.Beginning("Actor", "method").begin(None) is None
    answers.set()
    assert has_answered.wait(20)
    asked[-1].join(20)
    began().end()
    assert asked.count(threading.current_thread()) == 1, "only where Ray loaded the function"
    (report,) = reports
    assert "no answer" in report


def test_a_worker_that_was_started_ahead_asks_again_when_a_task_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts workers for a job before its driver has told its trace."""
    answers: list[JobTrace | None] = [JOB, None]
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: answers.pop())
    active = tracing_of(tmp_path)
    active.job.load_job_trace(JOB_ID, task_is_there=False)
    assert active.job.inherited is None
    for _ in range(2):
        active.job.load_job_trace(JOB_ID, task_is_there=True)
    assert active.job.inherited == JOB


def test_a_hook_that_could_not_be_asked_for_at_the_start_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """Otherwise one failed look-up would cost all calls of the worker, for as long as it lives, their short form."""

    def ask(*_keys: bytes) -> dict[bytes, bytes]:
        if not reports:
            raise RuntimeError("no answer")
        return {cluster.HOOK: b"ray_tracing_hooks.local:setup"}

    monkeypatch.setattr(cluster, "_ask", ask)
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: JOB)
    asked = Cluster()
    asked.look(hook_runs=True)
    assert not asked.all_traced
    active = tracing_of(tmp_path, cluster=asked)
    active.job.load_job_trace(JOB_ID, task_is_there=True)
    assert asked.all_traced
    assert active.job.inherited == JOB
    assert len(reports) == 1


@pytest.mark.usefixtures("in_traced_cluster")
@pytest.mark.parametrize(
    ("of_this_job", "job", "expected"),
    [
        (True, JOB, JOB.root_span_id),
        (True, None, None),
        (False, JOB, carrier.NO_TRACE),
        (False, None, carrier.NO_TRACE),
    ],
    ids=["job with a trace", "job without a trace", "actor of another job", "both"],
)
def test_a_call_without_a_span_or_context_is_not_taken_for_the_drivers(
    of_this_job: bool,
    job: JobTrace | None,
    expected: bytes | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its task is below the root span of the job, where that is known, or in no trace: below no span that nobody
    records.
    """
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: job)
    caller = tracing_of(tmp_path / "caller", selection=Selection(PARTS, exclude=["Actor.*"]))
    caller.job.load_job_trace(JOB_ID, task_is_there=True)
    method = stand_ins.Method()
    if not of_this_job:
        method._actor._ray_actor_id = stand_ins.Id(TASK_ID[8:-4] + b"\x09\x00\x00\x00")
    call = submitted(caller, method)
    carried = None if call is None else call.carried
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: JOB if not of_this_job else job)
    monkeypatch.setattr(tracing, "active", worker_of_job(tmp_path / "callee"))
    begun = execution.Beginning("Actor", "method").begin(carried)
    if expected in {None, carrier.NO_TRACE}:
        assert carried == expected
        assert begun is None
    else:
        assert begun is not None
        span = begun[1]
        assert isinstance(span, RecordedSpan)
        assert span.parent is not None
        assert parent_of(span) == expected
        span.end()


def test_where_not_every_worker_has_the_hook_nothing_is_left_out(tmp_path: Path) -> None:
    driver = driver_of_job(tmp_path, JOB)
    call = submitted(driver)
    assert call is not None
    assert call.carried is not None


@pytest.mark.usefixtures("in_traced_cluster")
def test_a_sampler_that_may_change_its_mind_is_asked_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the program's, such as a limit of the rate: for each submission, and for each execution."""

    class Limiter:
        left = 3

        def should_sample(self, *_question: object) -> SamplingResult:
            self.left -= 1
            return SamplingResult(Decision.RECORD_AND_SAMPLE if self.left >= 0 else Decision.DROP)

    monkeypatch.setattr(Cluster, "publish", lambda _self, _job_id, _trace: True)
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: JOB)
    driver = driver_of_job(tmp_path / "driver", JOB)
    driver.recorder.sampler = of_sdk(Limiter())
    calls = [submitted(driver) for _ in range(5)]
    assert [call is not None and call.carried is None for call in calls] == [True] * 3 + [False] * 2
    worker = worker_of_job(tmp_path / "worker")
    worker.recorder.sampler = of_sdk(Limiter())
    monkeypatch.setattr(tracing, "active", worker)
    beginning = execution.Beginning("Actor", "method")
    begun = [beginning.begin(None) for _ in range(5)]
    assert [each is not None and each[1] is not None for each in begun] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("strange", [SimpleNamespace(task_id="mine"), Raises()], ids=["no method", "raises"])
def test_what_a_decorated_call_returns_may_be_anything(
    strange: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """The program gets it, and it is said once that the call could not be recorded."""
    driver = driver_of_job(tmp_path, JOB)
    monkeypatch.setattr(tracing, "active", driver)
    call = submission.traced(targets._describe_method)(lambda *_arguments, **_options: strange)
    assert call(stand_ins.Method(), (), {}) is strange
    assert len(reports) == 1
