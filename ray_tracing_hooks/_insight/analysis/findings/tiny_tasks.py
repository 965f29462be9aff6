"""Tasks that do so little that the run is spent on sending them."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import Function, percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration

KIND = "tiny-tasks"

_CALLS = 100
_TINY = 1_000_000
_COST = 0.1


def find(analysis: Analysis) -> list[Finding]:
    """Functions that are called often, run for less than a millisecond, and whose sending takes part of the run."""
    wall = analysis.path.wall
    found = []
    for function in analysis.functions:
        usual = percentile(function.self_times, 0.5)
        if function.calls < _CALLS or usual >= _TINY or not wall:
            continue
        tiny = [row for row in function.executions if analysis.self_time[row] < _TINY]
        submitting = analysis.path.submitting[function.name] * len(tiny) // len(function.executions)
        sending = sum(analysis.path.executions[row] for row in tiny)
        # What the first call waits for is that workers start, and no fault of its size.
        cost = max(0, min(wall, submitting + sending) - analysis.path.first_scheduling.get(function.name, 0))
        if cost / wall >= _COST:
            found.append(_finding(analysis, function, usual, cost))
    return found


def _finding(analysis: Analysis, function: Function, usual: int, cost: int) -> Finding:
    text = (
        f"{count(function.calls, 'call')} of {quoted(function.name)} run for {duration(usual)} each (median), and the "
        f"run spends {duration(cost)} on sending them and on their results"
    )
    advice = "give each call more to do: a batch of what is now one call each"
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "calls": function.calls,
        "median_ns": usual,
        "cost_ns": cost,
    }
    return Finding(KIND, text, advice, cost / analysis.path.wall, function.executions, figures)
