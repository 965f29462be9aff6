"""Calls whose workers load code, or unpickle arguments, for long before they start, while the run waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import DELIVERY, SCHEDULING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration

KIND = "slow-loading"

_COST = 0.1
_LEAST = 1_000_000_000


@dataclass
class _Loading:
    """The calls of one function that the run waited for. Times are nanoseconds."""

    rows: dict[int, int] = field(default_factory=dict)
    """How long each execution loaded."""
    waited: int = 0


def find(analysis: Analysis) -> list[Finding]:
    """Functions whose loading the run waited for, for at least a second and a tenth of its time.

    Only Ray's task states say when a worker had a call, so without them there is nothing to find.
    """
    path = analysis.path
    found: dict[str, _Loading] = {}
    for step in path.steps if any(analysis.states.ran.values()) else ():
        if step.kind not in (SCHEDULING, DELIVERY):
            continue
        begin = analysis.loading_since(step.row)
        start = analysis.table.start[step.row]
        waited = min(step.end, start) - max(step.start, begin) if begin else 0
        if waited > 0:
            loading = found.setdefault(analysis.calls.function_of(step.row), _Loading())
            loading.rows[step.row] = start - begin
            loading.waited += waited
    return [
        _finding(analysis, function, loading)
        for function, loading in found.items()
        if loading.waited >= _LEAST and loading.waited / path.wall >= _COST
    ]


def _finding(analysis: Analysis, function: str, loading: _Loading) -> Finding:
    rows = sorted(loading.rows, key=lambda row: -loading.rows[row])
    times = sorted(loading.rows.values())
    usual = percentile(times, 0.5)
    text = (
        f"the run waited {duration(loading.waited)} while workers loaded the code and the arguments of "
        f"{count(len(rows), 'call')} of {quoted(function)}"
    )
    if len(rows) > 1:
        text += f": {duration(usual)} each (median), {duration(times[-1])} at most"
    advice = (
        "the first call in a process imports what its code and its arguments need: import heavy packages only where "
        "they are used, reuse workers and actors, or create actors before they are needed"
    )
    figures: dict[str, float | int | str] = {
        "function": function,
        "calls": len(rows),
        "median_ns": usual,
        "waited_ns": loading.waited,
    }
    return Finding(KIND, text, advice, min(1.0, loading.waited / analysis.path.wall), rows, figures)
