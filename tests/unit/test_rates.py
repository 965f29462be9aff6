"""Token buckets, and the counts of what they leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import stand_ins
from opentelemetry import trace
from opentelemetry.context import Context
from stand_ins import DRIVER_TASK_ID, JOB_ID, TASK_ID, recorder, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._ray import execution, rates, submission, targets, tracing
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._ray.execution import Beginning
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.propagation import TASK_KEY
from ray_tracing_hooks._ray.rates import LEFT_OUT, RateLimits
from ray_tracing_hooks._record import carrier, ids
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import Parent

SECOND = 10**9
CALLER = b"c" * 24


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [SECOND]
    monkeypatch.setattr(rates, "monotonic_ns", lambda: now[0])
    return now


def template(function: str) -> Template:
    return Template(function, 4, {names.RAY_FUNCTION: function})


def limit(limits: RateLimits, function: str = "f") -> rates.RateLimit:
    found = limits.of(template(function))
    assert found is not None
    return found


@pytest.mark.parametrize("rate", [1, 3, 7, 10, 1000])
def test_a_second_allows_as_many_as_the_rate_says_and_as_many_at_once(rate: int, clock: list[int]) -> None:
    bucket = limit(RateLimits([("*", rate)]))
    assert [bucket.take(CALLER) for _ in range(rate + 5)].count(LEFT_OUT) == 5
    clock[0] += SECOND
    assert [bucket.take(CALLER) for _ in range(rate + 5)].count(LEFT_OUT) == 5


def test_less_than_one_call_a_second_is_one_call_at_once(clock: list[int]) -> None:
    bucket = limit(RateLimits([("*", 0.1)]))
    assert [bucket.take(CALLER) for _ in range(3)] == [0, LEFT_OUT, LEFT_OUT]
    clock[0] += 10 * SECOND
    assert [bucket.take(CALLER) for _ in range(2)] == [2, LEFT_OUT]


def test_a_method_is_limited_wherever_its_class_is_defined() -> None:
    attributes = {
        names.RAY_FUNCTION: "main.<locals>.Noisy.ping",
        names.RAY_ACTOR_CLASS: "main.<locals>.Noisy",
        names.RAY_ACTOR_METHOD: "ping",
    }
    submission = Template("main.<locals>.Noisy.ping ray.remote", 4, attributes)
    assert RateLimits([("Noisy.ping", 1)]).of(submission) is not None
    assert RateLimits([("Other.ping", 1)]).of(submission) is None


def test_the_first_pattern_that_fits_counts(clock: list[int]) -> None:
    limits = RateLimits([("Worker.*", 2), ("Worker.process", 5), ("mod.*", 3)])
    assert [limit(limits, "Worker.process").take(CALLER) for _ in range(3)] == [0, 0, 0]
    bucket = limit(limits, "Worker.process")
    assert [bucket.take(CALLER) for _ in range(3)] == [0, 0, LEFT_OUT]
    assert limits.of(template("other.f")) is None


def test_each_caller_tells_of_its_own_calls(clock: list[int]) -> None:
    """Each count is recorded once: on the next call of the same function, or at the end of the caller."""
    limits = RateLimits([("*", 1)])
    first, second = limit(limits, "f"), limit(limits, "g")
    for bucket in (first, second):
        assert [bucket.take(caller) for caller in (CALLER, CALLER, b"other", b"other")] == [0, *[LEFT_OUT] * 3]
    clock[0] += SECOND
    assert first.take(CALLER) == 1
    assert limits.claim(CALLER) == 1, "of g"
    assert limits.claim(CALLER) == 0
    assert limits.unreported() == {"f": 2, "g": 2}
    assert limits.unreported() == {}
    assert limits.left_out == {}


def call(active: Any) -> submission.Submission:
    made = submission.begin(active.calls, targets._describe_method, stand_ins.Method(), (), {}, (), {})
    assert made is not None
    return made


def test_a_call_above_the_limit_tells_its_worker(
    tmp_path: Path, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It carries the span around it; the next call that makes a span says how many did not."""
    driver = tracing_of(tmp_path, DRIVER, rate_limits=RateLimits([("*", 1)]))
    written: list[bytes] = []
    monkeypatch.setattr(driver.recorder, "_write", lambda _prefix, encoded: written.append(encoded))
    driver.recorder.fallback = parent = Parent(ids.new_trace_id(), ids.new_span_id(), 0x03, None, remote=False)
    for seconds in (0, 0, 0, 1):
        clock[0] += seconds * SECOND
        made = call(driver)
        made.submitted(stand_ins.ObjectRef(TASK_ID), submission.task_of, (), {})
        assert made.carried is not None
        carried = carrier.decode(made.carried)
        if carried.without_span:
            assert (carried.span_id, carried.flags, carried.parent_task_id) == (parent.span_id, 0x03, DRIVER_TASK_ID)
    spans = [decode_span(encoded) for encoded in written]
    assert [span.attributes.get(names.RAY_LEFT_OUT) for span in spans] == [None, 2]


def test_the_limit_holds_where_no_span_is_around_a_call(
    tmp_path: Path, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread of a task: what is left out belongs to its job's trace, and its execution makes no span either."""
    job = JobTrace(ids.new_trace_id(), ids.new_span_id(), 0x03, DRIVER_TASK_ID)
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: job)
    worker = tracing_of(tmp_path, rate_limits=RateLimits([("*", 1)]))
    worker.job.load_job_trace(JOB_ID, task_is_there=True)
    monkeypatch.setattr(tracing, "active", worker)
    begun = [Beginning("Actor", "method").begin(call(worker).carried) for _ in range(2)]
    assert [each is not None and each[1] is not None for each in begun] == [True, False]
    assert begun[1] is not None
    assert trace.get_current_span(begun[1][0]).get_span_context().trace_id == int.from_bytes(job.trace_id, "big")


def test_calls_that_are_not_sampled_take_nothing_of_the_limit(tmp_path: Path, clock: list[int]) -> None:
    limits = RateLimits([("*", 1)])
    driver = tracing_of(tmp_path, DRIVER, rate_limits=limits)
    driver.recorder.fallback = Parent(ids.new_trace_id(), ids.new_span_id(), 0x02, None, remote=False)
    assert not carrier.decode(call(driver).carried or b"").without_span
    assert not carrier.decode(call(driver).carried or b"").without_span
    assert limits.unreported() == {}


def test_what_is_added_at_the_end_is_asked_for_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = recorder(tmp_path)
    written: list[bytes] = []
    monkeypatch.setattr(here, "ended", written.append)
    limits = RateLimits([("*", 1)])
    span = here.start(template("f"), ids.new_trace_id(), 0x03, None)
    limits.report(Context({TASK_KEY: CALLER}), span)
    limits.leave_out(limit(limits), CALLER)
    span.end()
    assert decode_span(written[0]).attributes[names.RAY_LEFT_OUT] == 1


def test_a_task_says_at_its_end_how_many_of_its_calls_were_left_out(
    tmp_path: Path, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it shows its arguments at its beginning, as ``RAY_TRACING_ARGUMENTS`` asks."""
    limits = RateLimits([("*", 1)])
    monkeypatch.setattr(tracing, "active", worker := tracing_of(tmp_path, rate_limits=limits))
    context = carrier.encode(ids.new_trace_id(), ids.new_span_id(), 0x03, SECOND, DRIVER_TASK_ID, None)
    begin = execution._reporting(execution.Beginning("Actor", "method").begin)
    begun = begin(context, lambda: encode.attribute(names.RAY_ARGUMENTS, "shown"))
    assert begun is not None
    span = begun[1]
    assert span is not None
    token = attach(begun[0])
    try:
        assert [carrier.decode(call(worker).carried or b"").without_span for _ in range(4)] == [False, *[True] * 3]
    finally:
        detach(token)
    written: list[bytes] = []
    monkeypatch.setattr(worker.recorder, "ended", written.append)
    span.end()
    attributes = decode_span(written[0]).attributes
    assert (attributes[names.RAY_LEFT_OUT], attributes[names.RAY_ARGUMENTS]) == (3, "shown")
