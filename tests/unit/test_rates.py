"""Token buckets, and the counts of what they leave out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import stand_ins
from stand_ins import DRIVER_TASK_ID, TASK_ID, recorder, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.span import decode_span
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import actors, rates, submission
from ray_tracing_hooks._ray.execution import Beginning
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.rates import LEFT_OUT, RateLimits
from ray_tracing_hooks._record import carrier, ids
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import Parent

SECOND = 10**9
CALLER = b"c" * 24


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [SECOND]
    monkeypatch.setattr(rates, "_monotonic_ns", lambda: now[0])
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


def test_over_a_long_time_the_rate_holds(clock: list[int]) -> None:
    bucket = limit(RateLimits([("*", 10)]))
    taken = 0
    for _ in range(10_000):
        clock[0] += SECOND // 100
        taken += bucket.take(CALLER) != LEFT_OUT
    assert 1000 <= taken <= 1010


def test_less_than_one_call_a_second_is_one_call_at_once(clock: list[int]) -> None:
    bucket = limit(RateLimits([("*", 0.1)]))
    assert [bucket.take(CALLER) for _ in range(3)] == [0, LEFT_OUT, LEFT_OUT]
    clock[0] += 10 * SECOND
    assert [bucket.take(CALLER) for _ in range(2)] == [2, LEFT_OUT]


def test_the_first_pattern_that_fits_counts(clock: list[int]) -> None:
    limits = RateLimits([("Worker.*", 2), ("Worker.process", 5), ("mod.*", 3)])
    assert [limit(limits, "Worker.process").take(CALLER) for _ in range(3)] == [0, 0, 0]
    bucket = limit(limits, "Worker.process")
    assert [bucket.take(CALLER) for _ in range(3)] == [0, 0, LEFT_OUT]
    assert limits.of(template("other.f")) is None


def test_each_caller_tells_of_its_own_calls(clock: list[int]) -> None:
    """The counts are told once: by the next call of the same function, or at the end of the caller."""
    limits = RateLimits([("*", 1)])
    first, second = limit(limits, "f"), limit(limits, "g")
    for bucket in (first, second):
        assert [bucket.take(caller) for caller in (CALLER, CALLER, b"other", b"other")] == [0, *[LEFT_OUT] * 3]
    clock[0] += SECOND
    assert first.take(CALLER) == 1
    assert limits.claim(CALLER) == 1, "of g"
    assert limits.claim(CALLER) == 0
    assert limits.untold() == {"f": 2, "g": 2}
    assert limits.untold() == {}
    assert limits.left_out == {}


def test_no_count_is_lost_among_threads() -> None:
    limits = RateLimits([("*", 500)])
    bucket = limit(limits)
    told: list[int] = []

    def call() -> None:
        told.extend(bucket.take(CALLER) for _ in range(5000))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorded = [count for count in told if count != LEFT_OUT]
    assert len(recorded) + sum(recorded) + limits.claim(CALLER) == 8 * 5000
    assert len(recorded) < 8 * 5000


def call(active: Any) -> submission.Submission:
    made = submission.begin(active, actors._describe, stand_ins.Method(), (), {})
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
        made.submitted(stand_ins.Id(TASK_ID), submission.task_of, (), {})
        assert made.carried is not None
        carried = carrier.decode(made.carried)
        if carried.without_span:
            assert (carried.span_id, carried.flags, carried.parent_task_id) == (parent.span_id, 0x03, DRIVER_TASK_ID)
    spans = [decode_span(encoded) for encoded in written]
    assert [span.attributes.get(names.RAY_LEFT_OUT) for span in spans] == [None, 2]


def test_calls_that_are_not_sampled_take_nothing_of_the_limit(tmp_path: Path, clock: list[int]) -> None:
    limits = RateLimits([("*", 1)])
    driver = tracing_of(tmp_path, DRIVER, rate_limits=limits)
    driver.recorder.fallback = Parent(ids.new_trace_id(), ids.new_span_id(), 0x02, None, remote=False)
    assert not carrier.decode(call(driver).carried or b"").without_span
    assert not carrier.decode(call(driver).carried or b"").without_span
    assert limits.untold() == {}


def test_what_is_added_at_the_end_is_asked_for_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = recorder(tmp_path)
    written: list[bytes] = []
    monkeypatch.setattr(here, "ended", written.append)
    limits = RateLimits([("*", 1)])
    span = here.start(template("f"), ids.new_trace_id(), 0x03, None)
    span.add_at_end(lambda: rates._attribute(limits.claim(CALLER)))
    limits.leave_out(limit(limits), CALLER)
    span.end()
    assert decode_span(written[0]).attributes[names.RAY_LEFT_OUT] == 1


def test_what_a_task_shows_at_its_beginning_is_passed_on() -> None:
    """Arguments are shown there where ``RAY_TRACING_ARGUMENTS`` asks for them."""
    patches = Patches()
    rates.patch(patches, RateLimits([("*", 1)]))
    try:
        assert Beginning("", "module.function").begin(None, bytes) is None
    finally:
        patches.undo()
