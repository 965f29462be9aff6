"""Datasets in a summary: what limits each, its operators, and who iterates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_tracing_hooks._cli.screen import Row, aligned
from ray_tracing_hooks._insight.analysis import limits
from ray_tracing_hooks._insight.analysis.pipelines import Iteration, Operator, Pipeline, Pipelines
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, plain, rate, shortened, size

_SHOWN_EXECUTIONS = 3
_SHOWN_OPERATORS = 12
_SHOWN_ITERATIONS = 6
_NAME_WIDTH = 38
_LEAST_HELD = 50_000_000
_RAN = 0.5
"""If tasks run on less than this share of the processors that they hold, the heading says so: the rest is scheduling,
or idle actors."""
_EXPLAINED = 0.5
"""If Ray's timers of stages explain less than this share of a wait, the longest of them is not what it was for."""
_UNNAMED = "dataset"
"""The name that Ray Data gives to a dataset without one."""


def lines(pipelines: Pipelines) -> Iterator[str | Row]:
    """Each execution with its operators, the longest first, then the iterations."""
    longest = sorted(pipelines.executions, key=lambda each: -each.duration)
    for pipeline in longest[:_SHOWN_EXECUTIONS]:
        yield ""
        yield _heading(pipeline)
        yield from _operators(pipeline)
    if more := len(longest) - _SHOWN_EXECUTIONS:
        yield from [f" and {count(more, 'other execution')} of datasets: --json has them"] if more > 0 else []
    yield from _iterations(pipelines.iterations)


def _heading(pipeline: Pipeline) -> str:
    name = "Dataset" if pipeline.name == _UNNAMED else f"Dataset {_name(pipeline.name)}"
    name += f" ({pipeline.consumer})" if pipeline.consumer else ""
    outcome = "running" if pipeline.is_running else pipeline.outcome or "interrupted"
    made = [count(pipeline.rows, "row")] if pipeline.rows is not None else []
    made += [size(pipeline.bytes)] if pipeline.bytes else []
    shown = ", ".join([f"{outcome} {'after' if pipeline.outcome else 'for'} {duration(pipeline.duration)}", *made])
    limited = _limited(pipeline)
    return f"{name}: {shown}{'; ' if limited else ''}{limited}"


def _limited(pipeline: Pipeline) -> str:
    limit = limits.limit_of(pipeline)
    if limit is None:
        return ""
    if limit.kind == limits.OPERATOR and limit.operator is not None:
        slots = count(limit.operator.slots or 1, "task")
        return f"limited by {_name(limit.operator.name)}, which may run {slots} at a time"
    if limit.kind == limits.CONSUMER:
        return f"limited by its consumer, which did something else for {percent(limit.share)} of the time"
    if limit.kind == limits.MEMORY and limit.operator is not None:
        return f"limited by memory, which held {_name(limit.operator.name)} back {percent(limit.share)} of the time"
    ran = limits.running_share(pipeline)
    but = f", but ran on only {percent(ran)}" if ran < _RAN * limit.share else ""
    return f"limited by the processors: its tasks held {percent(limit.share)} of them{but}"


def _operators(pipeline: Pipeline) -> Iterator[str | Row]:
    shown = pipeline.operators[:_SHOWN_OPERATORS]
    rows = [
        (
            _name(each.name),
            f"{each.tasks:,}",
            "" if each.rows is None else f"{each.rows:,}",
            "" if each.bytes is None else size(each.bytes),
            "" if each.rows_per_second is None else rate(each.rows_per_second),
            _busy(each),
            f"{each.longest_queue:,}" if each.longest_queue else "",
            _held_back(each, pipeline),
        )
        for each in shown
    ]
    if rows:
        titles = ("OPERATOR", "TASKS", "ROWS", "BYTES", "ROWS/S", "AT ONCE", "QUEUE", "HELD BACK")
        yield from aligned(titles, rows)
    if more := len(pipeline.operators) - len(shown):
        yield f" and {count(more, 'other operator')}"


def _busy(operator: Operator) -> str:
    """How many tasks ran at a time, of how many if that is limited."""
    if not operator.busy:
        return ""
    return f"{operator.parallelism:.1f}" + (f" of {operator.slots:,}" if operator.slots else "")


def _held_back(operator: Operator, pipeline: Pipeline) -> str:
    """The memory that limits the execution, or else the longest cause."""
    limit = limits.limit_of(pipeline)
    if limit is not None and limit.kind == limits.MEMORY and limit.operator is operator:
        return f"{duration(limits.held_by_memory(operator))} memory"
    cause = max(operator.held_back, key=operator.held_back.__getitem__, default=None)
    if cause is None or operator.held_back[cause] < _LEAST_HELD:
        return ""
    return f"{duration(operator.held_back[cause])} {cause.resource or cause.policy}".rstrip()


def _iterations(iterations: Sequence[Iteration]) -> Iterator[str | Row]:
    """The iterations of a method, and of a split if there are some, as one row."""
    found: dict[tuple[str, int | None], list[Iteration]] = {}
    for each in iterations:
        found.setdefault((each.method, each.split), []).append(each)
    if not found:
        return
    rows = []
    for (method, split), several in list(found.items())[:_SHOWN_ITERATIONS]:
        waited, used = sum(each.waited for each in several), sum(each.used for each in several)
        stages: dict[str, int] = {}
        for each in several:
            for stage, time in each.stages.items():
                stages[stage] = stages.get(stage, 0) + time
        longest = max(stages, key=stages.__getitem__, default="")
        if sum(stages.values()) < _EXPLAINED * waited:
            longest = ""
        rows.append(
            (
                method if split is None else f"{method}, split {split}",
                f"{len(several):,}",
                f"{sum(each.batches for each in several):,}",
                f"{sum(each.rows for each in several):,}",
                duration(waited),
                percent(waited / (waited + used)) if waited + used else "",
                duration(max(each.first for each in several)),
                f"{longest} {duration(stages[longest])}" if longest else "",
            )
        )
    yield ""
    yield "Iterations over datasets: how long the program waited for batches"
    titles = ("METHOD", "TIMES", "BATCHES", "ROWS", "WAITED", "OF ITS TIME", "FIRST", "MOST IN")
    yield from aligned(titles, rows)
    if more := len(found) - len(rows):
        yield f" and {count(more, 'other')}"


def _name(name: str) -> str:
    return shortened(plain(name), _NAME_WIDTH)
