"""Calls of a function that take far longer than the others of it, while the run waits for them."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis import Analysis
from ray_tracing_hooks._insight.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.functions import Function, percentile
from ray_tracing_hooks._insight.text import count, duration

KIND = "straggler"

_CALLS = 8
_TIMES = 3.0
_COST = 0.05
_FEW = 0.2
"""Stragglers are few. Where more calls are slow, the function simply takes different times."""


def find(analysis: Analysis) -> list[Finding]:
    """Functions with a few calls that took three times the median and more, on the critical path."""
    wall = analysis.path.wall
    found = []
    on_path = analysis.path.executions
    for function in analysis.functions:
        if len(function.executions) < _CALLS or not wall:
            continue
        for rows in _alike(analysis, function):
            usual = percentile(sorted(analysis.self_time[row] for row in rows), 0.5)
            slow = [row for row in rows if analysis.self_time[row] > _TIMES * max(usual, 1)]
            excess = sum(max(0, min(on_path[row], analysis.self_time[row]) - usual) for row in slow)
            if slow and len(slow) <= max(1, _FEW * len(rows)) and excess / wall >= _COST:
                found.append(_finding(analysis, function, usual, rows, slow, excess))
    return found


def _alike(analysis: Analysis, function: Function) -> list[list[int]]:
    """Executions of a function that may be expected to take equally long.

    Those of a task; those of a method in a gang of actors that are each called a few times; else those of each actor.
    """
    by_actor: dict[str, list[int]] = {}
    for row in function.executions:
        by_actor.setdefault(analysis.calls.place(row).actor, []).append(row)
    if len(by_actor) >= _CALLS and max(map(len, by_actor.values())) < _CALLS:
        return [function.executions]
    return [rows for rows in by_actor.values() if len(rows) >= _CALLS]


def _finding(
    analysis: Analysis, function: Function, usual: int, rows: list[int], slow: list[int], excess: int
) -> Finding:
    slow = sorted(slow, key=lambda row: -analysis.self_time[row])
    longest = analysis.self_time[slow[0]]
    where = _in_common(analysis, rows, slow)
    up_to = "up to " if len(slow) > 1 else ""
    text = (
        f"{count(len(slow), 'call')} of {quoted(function.name)} took {up_to}{duration(longest)}, "
        f"{longest / max(usual, 1):.1f} times the median of {duration(usual)} "
        f"({count(len(rows), 'call')}){where}, and the run waited for it {duration(excess)} longer"
    )
    advice = (
        "look at what these calls were given: cut large pieces smaller, begin with them, or take results as they come "
        "with ray.wait"
    )
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "slow_calls": len(slow),
        "calls": len(rows),
        "longest_ns": longest,
        "median_ns": usual,
        "excess_ns": excess,
    }
    return Finding(KIND, text, advice, excess / analysis.path.wall, slow, figures)


def _in_common(analysis: Analysis, rows: list[int], slow: list[int]) -> str:
    """What all of the slow calls share and not all calls do."""
    if len(slow) < 2:
        return ""
    calls = analysis.calls
    workers = {row: calls.place(row).worker for row in rows}
    nodes = {row: calls.place(row).node for row in rows}
    for what, place_of in (("worker", workers), ("node", nodes)):
        here = {place_of[row] for row in slow}
        if len(here) == 1 and "" not in here and len(set(place_of.values())) > 1:
            return f", all of them on {what} {here.pop()[:8]}"
    return ""
