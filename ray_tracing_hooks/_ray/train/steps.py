"""The places where the ranks of a run meet: a report, or a collective function. Each is a span, with what the wait for
the others took.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import ref

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray import library_spans
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.failures import end
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan


class Step(threading.local):
    """Where the training loop of this thread is.

    Attributes:
        loop: A weak reference to the loop that :attr:`number` belongs to.
        number: How often its rank has met the others.
        span: The span of the current step, None between steps or if it is not recorded.
        began: When it began, by ``time.monotonic()``.
        barrier: How many seconds the rank has waited for the others, None if it has not.
        handover: How many seconds it has waited until the controller had taken the report before, None if it has not.
    """

    loop: ref[Any] | None = None
    number = 0
    span: RecordedSpan | None = None
    began = 0.0
    barrier: float | None = None
    handover: float | None = None


step = Step()
"""The step of this thread."""


def begin_step(active: Tracing, name: str, loop: Any, rank: int, more: dict[str, Any] | None = None) -> Begun:
    """Begin the next step of the training loop ``loop`` of this rank."""
    if step.loop is None or step.loop() is not loop:
        step.loop, step.number = ref(loop), 0
    step.number += 1
    attributes = {names.RAY_TRAIN_WORLD_RANK: rank, names.RAY_TRAIN_STEP: step.number, **(more or {})}
    begun = library_spans.begin(active, name, get_current(), attributes)
    step.span, step.began, step.barrier, step.handover = begun[1], monotonic(), None, None
    return begun


def end_step(span: RecordedSpan, error: BaseException | None) -> None:
    """End the span of the current step."""
    step.span = None
    if step.barrier is not None:
        span.set_attribute(names.RAY_TRAIN_BARRIER_TIME, step.barrier)
    if step.handover is not None:
        span.set_attribute(names.RAY_TRAIN_HANDOVER_TIME, step.handover)
    end(span, error)


def of_metrics(active: Tracing, metrics: Any) -> dict[str, Any]:
    """The attributes for the metrics that are reported, where arguments are recorded."""
    return {names.RAY_TRAIN_METRICS: active.redactor.result("", metrics)} if active.redactor is not None else {}
