"""Calls whose workers load code, or unpickle arguments, for long before they start, while the run waits for them."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import large_arguments
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.loading import Loading, loading
from ray_tracing_hooks._insight.analysis.wording import count, duration

KIND = "slow-loading"

_COST = 0.1
_LEAST = 1_000_000_000
_MOST = 0.5
"""The share of the time that calls take which are not the first ones in their process, where code is no reason."""


def find(analysis: Analysis) -> list[Finding]:
    """Functions whose loading the run waited for, for at least a second and a tenth of its time.

    It measures the time on the critical path from when a worker had a call until the call's code began. Only Ray's task
    states say when a worker had it, so without them there is nothing to find. Functions that are large themselves are
    another finding, which has this time.
    """
    large = large_arguments.large_functions(analysis, large_arguments.CLOSURE)
    return [
        _finding(analysis, function, found)
        for function, found in loading(analysis).items()
        if found.waited >= _LEAST and found.waited / analysis.path.wall >= _COST and function not in large
    ]


def _finding(analysis: Analysis, function: str, found: Loading) -> Finding:
    rows = sorted(found.rows, key=lambda row: -found.rows[row])
    times = sorted(found.rows.values())
    usual = percentile(times, 0.5)
    text = (
        f"the run waited {duration(found.waited)} while workers loaded the code and the arguments of "
        f"{count(len(rows), 'call')} of {quoted(function)}"
    )
    if len(rows) > 1:
        text += f": {duration(usual)} each (median), {duration(times[-1])} at most"
    advice = (
        "reuse workers and actors, or create actors before they are needed: the first call in a process imports what "
        "its code and its arguments need"
    )
    if sum(found.rows[row] for row in _later(analysis, function, rows)) >= _MOST * sum(times):
        advice = (
            "pass smaller arguments, or keep large ones in an actor: later calls in the same process load for long "
            "too, and each call unpickles its arguments again"
        )
    figures: dict[str, float | int | str] = {
        "function": function,
        "calls": len(rows),
        "median_ns": usual,
        "waited_ns": found.waited,
    }
    title = f"Workers load {quoted(function)} slowly"
    return Finding(KIND, text, advice, min(1.0, found.waited / analysis.path.wall), rows, figures, title=title)


def _later(analysis: Analysis, function: str, rows: list[int]) -> list[int]:
    """Those of these executions that are not the first of their function in their process, which has its code then."""
    table = analysis.table
    first: dict[int, int] = {}
    for row in (row for each in analysis.functions if each.name == function for row in each.executions):
        begun = table.start[row]
        first[table.resource[row]] = min(begun, first.get(table.resource[row], begun))
    return [row for row in rows if table.start[row] > first.get(table.resource[row], table.start[row])]
