"""How long the run waited while workers loaded the code and the arguments of calls, before these started."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import DELIVERY, SCHEDULING


@dataclass
class Loading:
    """The calls of one function that the run waited for. Times are nanoseconds."""

    rows: dict[int, int] = field(default_factory=dict)
    """How long each execution loaded."""
    waited: int = 0
    """How long of that the run waited."""


def loading(analysis: Analysis) -> dict[str, Loading]:
    """By function. Only Ray's task states say when a worker had a call, so without them it is empty."""
    found: dict[str, Loading] = {}
    for step in analysis.path.steps if any(analysis.states.ran.values()) else ():
        if step.kind not in (SCHEDULING, DELIVERY):
            continue
        begin = analysis.loading_since(step.row)
        start = analysis.table.start[step.row]
        waited = min(step.end, start) - max(step.start, begin) if begin else 0
        if waited > 0:
            its = found.setdefault(analysis.calls.function_of(step.row), Loading())
            its.rows[step.row] = start - begin
            its.waited += waited
    return found
