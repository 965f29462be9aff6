"""Tasks that are so small that the overhead of each call dominates."""

from __future__ import annotations

from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import Function, percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration

KIND = "tiny-tasks"

_CALLS = 100
_TINY = 1_000_000
_COST = 0.1


def find(analysis: Analysis) -> list[Finding]:
    """Functions that are called often, run for less than a millisecond, and whose calls take a share of the run."""
    return [_finding(analysis, *tiny) for tiny in _costly(analysis)]


def tiny_functions(analysis: Analysis) -> set[str]:
    """The functions that are a finding because they are tiny."""
    return {function.name for function, *_ in _costly(analysis)}


def _costly(analysis: Analysis) -> Iterator[tuple[Function, int, int]]:
    """The function, the median time of its calls, and their cost."""
    wall = analysis.path.wall
    for function in analysis.functions:
        # Where waiting was not recorded, the code of a call may have run while calls of its own did.
        usual = percentile(function.durations if function.is_assumed else function.self_times, 0.5)
        if function.calls < _CALLS or not function.executions or usual >= _TINY or not wall:
            continue
        took = analysis.table.duration if function.is_assumed else analysis.self_time.__getitem__
        tiny = [row for row in function.executions if took(row) < _TINY]
        submitting = analysis.path.submitting[function.name] * len(tiny) // len(function.executions)
        sending = sum(analysis.path.executions[row] for row in tiny)
        # The first call waits for workers to start, which has nothing to do with its size.
        cost = max(0, min(wall, submitting + sending) - analysis.path.first_scheduling.get(function.name, 0))
        if cost / wall >= _COST:
            yield function, usual, cost


def _finding(analysis: Analysis, function: Function, usual: int, cost: int) -> Finding:
    text = (
        f"{count(function.calls, 'call')} of {quoted(function.name)} run for {duration(usual)} each (median), and with "
        f"their submission and results they take {duration(cost)} of the run"
    )
    advice = "give each call more work: batch what is now one call each"
    if function.name in analysis.pipelines.operator_names:
        advice = "use fewer and larger blocks (override_num_blocks or repartition): each block is a task"
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "calls": function.calls,
        "median_ns": usual,
        "cost_ns": cost,
    }
    title = f"Calls of {quoted(function.name)} are tiny"
    return Finding(KIND, text, advice, cost / analysis.path.wall, function.executions, figures, title=title)
