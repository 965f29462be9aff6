"""Time that no span explains, with the known reasons and the settings that would record it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN, UNEXPLAINED, WAITING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.table import RUNNING

KIND = "unrecorded"

_COST = 0.4
_SHOWN_DIGITS = 8


def find(analysis: Analysis) -> list[Finding]:
    """A driver that had no calls, or no recorded ones, for at least two fifths of the run.

    Unexplained time always counts. If the driver imported a Ray library whose internal calls make no spans, the
    driver's time between its own calls counts too, since the library may have worked then.
    """
    calls, path = analysis.calls, analysis.path
    drivers = set(calls.drivers())
    if not path.wall or not drivers:
        return []
    parts = recorded.libraries(calls)
    libraries = [recorded.LIBRARIES[part] for part in parts]
    own = (RUN, WAITING) if libraries else ()
    steps = [
        step
        for step in path.steps
        if step.kind == UNEXPLAINED or (step.kind in own and step.row >= 0 and calls.frame_of(step.row) in drivers)
    ]
    hidden = sum(step.end - step.start for step in steps) - recorded.with_requests(analysis, steps)
    if hidden / path.wall < _COST:
        return []
    unseen, strays = recorded.unseen_objects(analysis), list(recorded.strays(calls))
    records_waits = all(map(calls.records_waits, drivers))
    reasons, advice = [], []
    if libraries:
        several = " and ".join(libraries)
        was, its = ("was", "its") if len(libraries) == 1 else ("were", "their")
        reasons.append(f"{several} {was} imported and {its} internal calls made no spans")
        advice.append(f"RAY_TRACING_RAY=+{',+'.join(parts)} shows what {several} {'does' if len(parts) == 1 else 'do'}")
    if unseen:
        # Those of Ray Serve's controller and routers make none with any setting, so there is nothing to advise.
        of_serve = " (such as those of Ray Serve's controller)" if analysis.requests is not None else ""
        reasons.append(f"{count(unseen, 'object')} that the run waited for came from calls without spans{of_serve}")
    requests, by_handle, others = _requests(analysis, strays)
    if requests:
        apart = "is a trace of its own" if len(requests) == 1 else "are traces of their own"
        reasons.append(f"{count(len(requests), 'request')} {apart}")
        slowest = analysis.table.trace_id_of(max(requests, key=analysis.table.duration))
        command = f"ray-tracing-hooks summary --trace {slowest[:_SHOWN_DIGITS]}"
        advice.append(f"{command} shows where the time of the slowest request went")
    if others:
        reasons.append(f"{count(len(others), 'worker span')} {'is' if len(others) == 1 else 'are'} in no recorded call")
    # Those of Ray Serve make no spans then either.
    if (unseen or others) and not libraries and not calls.internal and analysis.serve_spans is None:
        advice.append(f"{recorded.RECORD_INTERNAL} shows the tasks and actors of Ray's libraries")
    unexecuted = analysis.unexecuted if RUNNING not in analysis.table.state else 0
    if unexecuted:
        them = "it" if unexecuted == 1 else "they"
        reasons.append(f"{count(unexecuted, 'call')} made no span where {them} should have run")
        advice.append("read the spans of every node, and check that each of them records (ray-tracing-hooks status)")
    if calls.left_out:
        reasons.append(recorded.left_out(calls))
    if not records_waits:
        reasons.append("waiting was not recorded")
        advice.append(f"{recorded.RECORD_WAITS} shows what callers wait for")
    if not reasons:
        return []
    text = (
        f"no span explains {duration(hidden)} of {quoted(analysis.name)} ({percent(hidden / path.wall)} of the run): "
        f"{', '.join(reasons)}"
    )
    figures: dict[str, float | int | str] = {
        "driver": analysis.name,
        "hidden_ns": hidden,
        "unexplained_ns": path.kinds[UNEXPLAINED],
        "libraries": ",".join(libraries),
        "unseen_objects": unseen,
        "spans_below_no_call": len(strays),
        "requests": len(requests) + by_handle,
        "unexecuted": unexecuted,
    }
    rows = [*(row for row in sorted(drivers) if row < len(analysis.table)), *strays]
    return [Finding(KIND, text, "; ".join(advice), hidden / path.wall, rows, figures, title="Time without spans")]


def _requests(analysis: Analysis, strays: Sequence[int]) -> tuple[list[int], int, list[int]]:
    """The requests that begin a trace, the number of others, and those of the spans that are in no request."""
    spans, found = analysis.serve_spans, analysis.requests
    if spans is None or found is None:
        return [], 0, list(strays)
    rows = [row for route in found.routes for row in route.rows]
    parents = {row: analysis.table.parent[row] for row in rows}
    first = [row for row, parent in parents.items() if parent < 0 or spans.is_route[parent]]
    is_call = np.zeros(len(analysis.table), bool)
    is_call[spans.called] = True
    return first, len(rows) - len(first), [row for row in strays if spans.frame[row] < 0 and not is_call[row]]
