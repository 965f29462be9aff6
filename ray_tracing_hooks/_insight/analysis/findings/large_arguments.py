"""Calls that take long to submit: each one serializes large values again, or a function captures large ones."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import Function, percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.call_names import is_creation

KIND = "large-arguments"
CLOSURE = "large-closure"

_CALLS = 5
_LONG = 5_000_000
_COST = 0.03
_LONG_FIRST = 1_000_000_000
_TIMES = 50


def find(analysis: Analysis) -> list[Finding]:
    """Functions whose every `.remote()` takes milliseconds, and functions with a single one that takes seconds."""
    wall = analysis.path.wall
    found = []
    for function in analysis.functions:
        total, usual = sum(function.submitting), percentile(function.submitting, 0.5)
        if not wall or len(function.submitting) < 2 or is_creation(function.name):
            continue
        longest = function.submitting[-1]
        if len(function.submitting) >= _CALLS and usual >= _LONG and total / wall >= _COST:
            found.append(_arguments(function, usual, total, wall, _submissions(analysis, function)))
        elif longest >= max(_LONG_FIRST, _TIMES * usual) and longest / wall >= _COST:
            found.append(_closure(function, usual, longest, wall, _submissions(analysis, function)[:1]))
    return found


def _submissions(analysis: Analysis, function: Function) -> list[int]:
    """The rows of the submissions of a function that was executed, the longest first."""
    calls, table = analysis.calls, analysis.table
    rows = [row for each in function.executions if (row := calls.submission[calls.call_of[each]]) >= 0]
    return sorted(dict.fromkeys(rows), key=lambda row: -table.duration(row))


def _arguments(function: Function, usual: int, total: int, wall: int, rows: list[int]) -> Finding:
    many = count(len(function.submitting), "call")
    text = (
        f"each {quoted(function.name)}.remote() takes {duration(usual)} (median of {many}, {duration(total)} in all), "
        "which suggests that it serializes large arguments"
    )
    advice = "store a value that several calls use once, with ray.put, and pass the reference"
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "calls": len(function.submitting),
        "median_ns": usual,
        "total_ns": total,
    }
    return Finding(KIND, text, advice, min(1.0, total / wall), rows, figures)


def _closure(function: Function, usual: int, longest: int, wall: int, rows: list[int]) -> Finding:
    text = (
        f"one {quoted(function.name)}.remote() took {duration(longest)} and the others {duration(usual)} (median): "
        f"with the first call of a function, Ray serializes the function and everything that it refers to"
    )
    advice = "if it was the first call: pass large values as arguments, with ray.put, instead of capturing them"
    figures: dict[str, float | int | str] = {"function": function.name, "longest_ns": longest, "median_ns": usual}
    return Finding(CLOSURE, text, advice, min(1.0, longest / wall), rows, figures)
