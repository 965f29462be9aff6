"""Spans of traces that are not sampled: those that fail or are slow are recorded, each call with its submission.

With stand-ins for Ray, since neither the number of an attempt nor a refusal comes at will.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import stand_ins
from opentelemetry.context import Context
from stand_ins import DRIVER_TASK_ID, JOB_ID, TASK_ID, tracing_of

from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._ray import execution, library_spans, objects, submission, targets, tracing
from ray_tracing_hooks._ray.arguments import KEY, outgoing
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.rates import RateLimits
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import carrier
from ray_tracing_hooks._record.sampling import KeepRule
from ray_tracing_hooks._record.span import Parent

pytestmark = pytest.mark.usefixtures("each_way")

TRACE, AROUND, CALL = os.urandom(16), os.urandom(8), os.urandom(8)
SUBMITTED_AT = 1_790_000_000_000_000_000
ERRORS = KeepRule(errors=True, slower_ns=None)
REASON = "ray.sampling.reason"


def spans_in(folder: Path) -> list[Span]:
    files = span_files([str(folder)]) if any(folder.iterdir()) else []
    found = read(files)[0]
    assert all(span.state == "ended" for span in found), "nothing says that they have begun"
    return sorted(found, key=lambda span: span.start_ns)


def run(monkeypatch: pytest.MonkeyPatch, active: Tracing, function: Callable[[], Any], **carried: Any) -> None:
    """Run a method in a worker, as a call that carries its context from a caller with the same settings."""
    monkeypatch.setattr(tracing, "active", active)
    given = {"parent_id": AROUND, **carried}
    context = carrier.encode(TRACE, CALL, 0x02, SUBMITTED_AT, DRIVER_TASK_ID, None, **given)
    execute = execution._function_executor(function, execution.Beginning("Actor", "method").begin)
    with suppress(ValueError):
        execute(**{KEY: context})


def fails() -> None:
    raise ValueError("no")


def test_a_call_that_fails_is_recorded_with_its_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the caller only what the call has carried."""
    run(monkeypatch, tracing_of(tmp_path, rule=ERRORS), fails)
    call, ran = spans_in(tmp_path)
    assert (call.name, ran.name) == ("Actor.method ray.remote", "Actor.method ray.remote_worker")
    assert (call.trace_id, call.span_id, call.parent_id) == (TRACE.hex(), CALL.hex(), AROUND.hex())
    assert (ran.trace_id, ran.parent_id) == (TRACE.hex(), CALL.hex())
    assert (call.start_ns, call.end_ns) == (SUBMITTED_AT, SUBMITTED_AT)
    assert (call.status_code, ran.status_code, ran.attributes["error.type"]) == (0, 2, "ValueError")
    assert call.attributes == {
        "ray.remote": "actor",
        "ray.actor_class": "Actor",
        "ray.actor_method": "method",
        "ray.function": "Actor.method",
        "ray.job_id": JOB_ID,
        "ray.task_id": TASK_ID.hex(),
        "ray.parent_task_id": DRIVER_TASK_ID.hex(),
        REASON: "error",
    }
    assert (call.resource, ran.resource["host.name"]) == ({"service.name": "test"}, "here")
    assert ran.attributes[REASON] == "error"


@pytest.mark.parametrize(
    ("rule", "function", "reason"),
    [
        (ERRORS, lambda: None, None),
        (KeepRule(errors=False, slower_ns=60e9), fails, None),
        (KeepRule(errors=False, slower_ns=0), fails, "slow"),
        (KeepRule(errors=True, slower_ns=0), fails, "error"),
        (KeepRule(errors=True, slower_ns=0), lambda: None, "slow"),
        (KeepRule(errors=True, slower_ns=20e6), lambda: time.sleep(0.03), "slow"),
    ],
)
def test_the_rule_decides(
    rule: KeepRule,
    function: Callable[[], Any],
    reason: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(monkeypatch, tracing_of(tmp_path, rule=rule), function)
    assert [span.attributes[REASON] for span in spans_in(tmp_path)] == [reason] * 2 * (reason is not None)


def test_a_call_with_no_span_around_it_is_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, tracing_of(tmp_path, rule=ERRORS), fails, parent_id=b"")
    assert [span.parent_id for span in spans_in(tmp_path)] == ["", CALL.hex()]


def test_a_caller_with_other_settings_has_no_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has carried no id of the span around the call."""
    run(monkeypatch, tracing_of(tmp_path, rule=ERRORS), fails, parent_id=None)
    assert [span.name for span in spans_in(tmp_path)] == ["Actor.method ray.remote_worker"]


def test_the_submission_comes_with_the_first_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: each attempt is of the same call."""
    active = tracing_of(tmp_path, rule=ERRORS)
    for attempt in range(3):
        core_worker = active.process.worker.core_worker
        monkeypatch.setattr(core_worker, "get_current_task_attempt_number", lambda attempt=attempt: attempt)
        run(monkeypatch, active, fails)
    assert [span.name.rpartition(" ")[2] for span in spans_in(tmp_path)] == ["ray.remote", *["ray.remote_worker"] * 3]


def test_what_calls_below_carry_leads_to_the_spans_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that calls another one: the ids of both sides agree, whichever of them are recorded."""
    active = tracing_of(tmp_path, rule=ERRORS)
    carried: list[carrier.Carried] = []

    def calls_and_fails() -> None:
        called(lambda *_arguments: carried.append(carrier.decode(outgoing.carried or b"")))
        fails()

    run(monkeypatch, active, calls_and_fails)
    (_, ran), (context,) = spans_in(tmp_path), carried
    assert (context.trace_id, context.flags) == (TRACE, 0x02)
    assert context.parent_id == bytes.fromhex(ran.span_id)
    assert context.parent_task_id == TASK_ID


def called(original: Callable[..., Any]) -> Any:
    """Call a method of an actor."""
    traced = submission.traced(targets._describe_method, key_of=targets._key_of)(original)
    return traced(stand_ins.Method(), (), {})


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracing:
    """In a trace that is not sampled and has been published, so that calls of other settings carry nothing."""
    monkeypatch.setattr("ray_tracing_hooks._ray.cluster.Cluster.all_traced", True)
    monkeypatch.setattr("ray_tracing_hooks._ray.cluster.Cluster.publish", lambda *_arguments: True)
    made = tracing_of(tmp_path, DRIVER, rule=ERRORS)
    made.recorder.fallback = Parent(TRACE, AROUND, 0x02, None, remote=False)
    made.calls.publish_job_trace()
    monkeypatch.setattr(tracing, "active", made)
    return made


@pytest.mark.usefixtures("driver")
def test_an_accepted_call_is_left_to_its_worker(tmp_path: Path) -> None:
    carried = []

    def accept(*_arguments: Any) -> Any:
        carried.append(carrier.decode(outgoing.carried or b""))
        return stand_ins.ObjectRef(TASK_ID)

    called(accept)
    called(accept)
    assert spans_in(tmp_path) == []
    assert [(each.trace_id, each.parent_id) for each in carried] == [(TRACE, AROUND)] * 2
    assert len({each.span_id for each in carried}) == 2


@pytest.mark.usefixtures("driver")
def test_a_call_that_ray_refuses_is_recorded_by_its_caller(tmp_path: Path) -> None:
    def refuse(*_arguments: Any) -> Any:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        called(refuse)
    (call,) = spans_in(tmp_path)
    assert (call.name, call.parent_id, call.status_code) == ("Actor.method ray.remote", AROUND.hex(), 2)
    assert (call.attributes[REASON], call.attributes["ray.pid"]) == ("error", str(os.getpid()))


def test_a_rate_limit_leaves_out_none_of_these_calls(
    driver: Tracing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They make no spans unless they fail, and a call that is left out is one whose failure is not seen."""
    limited = tracing_of(tmp_path, DRIVER, rate_limits=RateLimits([("*", 1)]), rule=ERRORS)
    limited.recorder.fallback = driver.recorder.fallback
    monkeypatch.setattr(tracing, "active", limited)
    carried = []
    for _ in range(3):
        called(lambda *_arguments: carried.append(carrier.decode(outgoing.carried or b"")))
    assert [each.without_span for each in carried] == [False] * 3


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("is_failing", [False, True], ids=["fine", "fails"])
def test_a_wait_is_recorded_if_it_fails(is_failing: bool, tmp_path: Path) -> None:
    def get(_refs: Any) -> None:
        if is_failing:
            fails()

    describe, finish = objects._FUNCTIONS["get"]
    wait = objects._traced("ray.get", describe, finish)(get)
    try:
        wait([stand_ins.ObjectRef(TASK_ID)])
    except ValueError:
        assert is_failing
    found = [(span.name, span.parent_id, span.attributes[REASON]) for span in spans_in(tmp_path)]
    assert found == [("ray.get", AROUND.hex(), "error")] * is_failing


def test_a_span_of_a_library_is_recorded_if_it_fails(driver: Tracing, tmp_path: Path) -> None:
    for error in (None, ValueError("no")):
        _, span = library_spans.begin(driver, f"{error}", Context())
        assert span is not None
        assert span.is_recording()
        if error is not None:
            span.fail(error, None)
        span.end()
    assert [(span.name, span.attributes[REASON]) for span in spans_in(tmp_path)] == [("no", "error")]


def test_what_interrupts_the_end_of_a_span_loses_none_and_writes_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that raises after the submission has been written, and before the execution is."""
    active = tracing_of(tmp_path, rule=ERRORS)
    recorder = active.recorder.unsampled
    assert recorder is not None
    ended = recorder.ended

    def interrupted(encoded: bytes) -> None:
        monkeypatch.setattr(recorder, "ended", ended)
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, active, fails)
    assert [span.name for span in spans_in(tmp_path)] == ["Actor.method ray.remote", "Actor.method ray.remote_worker"]


def test_a_forked_child_writes_none_of_its_parents(driver: Tracing, tmp_path: Path) -> None:
    _, span = library_spans.begin(driver, "of the parent", Context())
    assert span is not None
    driver.recorder.disable_after_fork()
    span.fail(ValueError("no"), None)
    span.end()
    assert spans_in(tmp_path) == []
