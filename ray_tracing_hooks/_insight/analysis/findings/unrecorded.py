"""Time of which no span says what it was, with the reasons that are known and what would record it."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN, UNEXPLAINED, WAITING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "unrecorded"

_COST = 0.4


def find(analysis: Analysis) -> list[Finding]:
    """A driver that had no calls, or none that were recorded, for two fifths of the run and more.

    Where a library of Ray's was imported that makes its calls without spans, what the driver did between its own calls
    may have been the library's work. It counts then, as what nothing was recorded of does always.
    """
    calls, path = analysis.calls, analysis.path
    drivers = set(calls.drivers())
    if not path.wall or not drivers:
        return []
    libraries = recorded.libraries(calls)
    own = (RUN, WAITING) if libraries else ()
    hidden = sum(
        step.end - step.start
        for step in path.steps
        if step.kind == UNEXPLAINED or (step.kind in own and step.row >= 0 and calls.frame_of(step.row) in drivers)
    )
    if hidden / path.wall < _COST:
        return []
    unseen, strays = recorded.unseen_objects(calls), list(recorded.strays(calls))
    records_waits = all(map(calls.records_waits, drivers))
    reasons, advice = [], []
    if libraries:
        several = " and ".join(libraries)
        reasons.append(f"{several} {'was' if len(libraries) == 1 else 'were'} imported, whose own calls made no spans")
        advice.append(f"{recorded.RECORD_INTERNAL} shows the tasks and actors of {several}")
    if unseen:
        reasons.append(
            f"{count(unseen, 'object')} of calls without spans {'was' if unseen == 1 else 'were'} waited for"
        )
    if strays:
        reasons.append(f"{count(len(strays), 'span')} of workers {'is' if len(strays) == 1 else 'are'} below no call")
    if (unseen or strays) and not libraries and not calls.internal:
        advice.append(f"{recorded.RECORD_INTERNAL} shows the tasks and actors of Ray's libraries")
    if not records_waits:
        reasons.append("waiting was not recorded")
        advice.append(f"{recorded.RECORD_WAITS} shows what is waited for")
    if not reasons:
        return []
    text = (
        f"no span says what {duration(hidden)} of {quoted(analysis.name)} were ({percent(hidden / path.wall)} of the "
        f"run): {', '.join(reasons)}"
    )
    figures: dict[str, float | int | str] = {
        "driver": analysis.name,
        "hidden_ns": hidden,
        "unexplained_ns": path.kinds[UNEXPLAINED],
        "libraries": ",".join(libraries),
        "unseen_objects": unseen,
        "spans_below_no_call": len(strays),
    }
    rows = [*(row for row in sorted(drivers) if row < len(analysis.table)), *strays]
    return [Finding(KIND, text, "; ".join(advice), hidden / path.wall, rows, figures)]
