"""What limits the throughput of an execution of a dataset: an operator, its consumer, memory or the processors."""

from __future__ import annotations

from dataclasses import dataclass

from ray_tracing_hooks._insight.analysis.pipelines import Operator, Pipeline

OPERATOR, CONSUMER, MEMORY, PROCESSORS = "operator", "consumer", "memory", "processors"

_BUSY = 0.7
"""The share of the time in which an operator works that its slots are busy, if they are what limits it."""

_HELD_BY_LIMIT = 0.5
"""The share of that time in which its limit holds it back, where its slots are less busy: Ray Data refills late."""

_WORKS = 0.25
"""The share of the execution that it has to work."""

_MOSTLY = 0.5

_HELD = 0.2

CONCURRENCY = "concurrency limit"
"""The resource of what an operator's own limit holds back."""

_MEMORY = "memory"
"""In the names of resources: heap memory and object store memory."""


@dataclass(frozen=True)
class Limit:
    kind: str
    """``OPERATOR``, ``CONSUMER``, ``MEMORY`` or ``PROCESSORS``."""
    share: float
    """How busy the slots of the operator or the processors are, how much of its time the consumer does something else,
    or for which share of the execution memory held an operator back."""
    operator: Operator | None = None
    """The operator that limits, or that is held back."""


def limit_of(pipeline: Pipeline) -> Limit | None:
    """What limits an execution most; None if nothing does clearly, as in a short one.

    An operator limits it if all tasks that it may run at a time are busy while others, and the consumer, have room, so
    that a higher limit, or a faster function, would help. A task that waits until its output is read is not busy.
    """
    operator = saturated(pipeline)
    if operator is not None:
        return Limit(OPERATOR, slot_share(operator), operator)
    iteration = pipeline.iteration
    if iteration is not None and (waiting := iteration.waiting_share) is not None and waiting < _MOSTLY:
        return Limit(CONSUMER, 1 - waiting)
    used = processor_share(pipeline)
    held = max(pipeline.operators, key=held_by_memory, default=None)
    if held is not None and pipeline.duration:
        share = held_by_memory(held) / pipeline.duration
        if share >= _HELD and (used is None or used < _BUSY):
            return Limit(MEMORY, min(1.0, share), held)
    return Limit(PROCESSORS, used) if used is not None and used >= _BUSY else None


def saturated(pipeline: Pipeline) -> Operator | None:
    """The operator whose own limit on its tasks limits the execution; None if there is none."""
    limited = [each for each in pipeline.operators if each.slots and each.tasks > each.slots]
    slowest = max(limited, key=least_time, default=None)
    if slowest is None or slowest.worked < _WORKS * pipeline.duration:
        return None
    if slot_share(slowest) < _BUSY and held_by_limit(slowest) < _HELD_BY_LIMIT * slowest.worked:
        return None
    return slowest if least_time(slowest) > next_limit(pipeline, slowest) else None


def slot_share(operator: Operator) -> float:
    """How busy the tasks that an operator may run at a time were, on average while it worked; 0 if not limited."""
    return max(0.0, min(1.0, least_time(operator) / operator.worked)) if operator.worked else 0.0


def least_time(operator: Operator) -> int:
    """The least time in which an operator could do its work under its limit; 0 if there is none."""
    return operator.working // operator.slots if operator.slots else 0


def next_limit(pipeline: Pipeline, operator: Operator) -> int:
    """The least time in which the execution could do without the limit of this operator."""
    others = [least_time(each) for each in pipeline.operators if each is not operator]
    processors = pipeline.limits.get("CPU")
    if processors:
        working = sum(each.needs.get("CPU", 0.0) * each.working for each in pipeline.operators)
        others.append(int(working / processors))
    if pipeline.iteration is not None:
        others.append(pipeline.iteration.used)
    return max(others, default=0)


def processor_share(pipeline: Pipeline) -> float | None:
    """How much of the processors that the execution could use its tasks and actors held; None if not known.

    As Ray counts them: a task holds what it requires also while it is scheduled or sleeps, an actor while it is idle.
    """
    processors = pipeline.limits.get("CPU")
    if not processors or not pipeline.duration:
        return None
    held = sum(
        each.needs.get("CPU", 0.0) * (each.actors * each.duration if each.has_actors else each.occupied)
        for each in pipeline.operators
    )
    return min(1.0, held / processors / pipeline.duration)


def running_share(pipeline: Pipeline) -> float:
    """How much of the processors that the execution could use its tasks required while they ran; 0 if not known."""
    processors = pipeline.limits.get("CPU")
    if not processors or not pipeline.duration:
        return 0.0
    ran = sum(each.needs.get("CPU", 0.0) * each.busy for each in pipeline.operators)
    return min(1.0, ran / processors / pipeline.duration)


def held_by_limit(operator: Operator) -> int:
    """For how long its own limit held an operator back from submitting tasks."""
    return sum(
        time
        for cause, time in operator.held_back.items()
        if cause.kind == "submission" and cause.resource == CONCURRENCY
    )


def held_by_memory(operator: Operator) -> int:
    """For how long memory held an operator back from submitting tasks."""
    return sum(
        time for cause, time in operator.held_back.items() if cause.kind == "submission" and _MEMORY in cause.resource
    )
