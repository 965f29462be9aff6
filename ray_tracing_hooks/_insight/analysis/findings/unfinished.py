"""A run that is still running, or hangs: what it is doing now."""

from __future__ import annotations

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import EXECUTION, WAITS
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import RUNNING

KIND = "unfinished"

_NAMED = 6


def find(analysis: Analysis) -> list[Finding]:
    """What has been running longest, if anything is running, and whether calls are in a deadlock."""
    table, calls = analysis.table, analysis.calls
    is_running = as_numpy(table.state) == RUNNING
    running = np.nonzero(is_running & np.isin(as_numpy(calls.role), (EXECUTION, *WAITS)))[0].tolist()
    if not running:
        return []
    # What has ended was in no deadlock: a wait may have timed out.
    circle = analysis.path.circle
    circle = circle if all(frame >= len(table) or is_running[frame] for frame in circle) else []
    # A waiting call is open because of what it waits for, so the innermost calls say most.
    waiting = {calls.frame[row] for row in running if calls.role[row] in WAITS}
    leaves = [row for row in running if calls.role[row] == EXECUTION and row not in waiting]
    executions = [row for row in running if calls.role[row] == EXECUTION]
    text = f"{count(len(executions), 'call')} had not ended when this was read"
    if circle:
        names = [quoted(calls.frame_name(frame)) for frame in circle[:_NAMED]]
        text += f"; they wait for each other in a cycle, a deadlock: {' > '.join([*names, names[0]])}"
    elif leaves:
        oldest = min(leaves, key=table.start.__getitem__)
        since = duration(table.duration(oldest))
        text += f"; the one that has run longest without waiting is {quoted(calls.function_of(oldest))}, for {since}"
    elif running:
        oldest = min(running, key=table.start.__getitem__)
        text += f"; all of them wait, the longest for {duration(table.duration(oldest))}"
    shown = [row for row in circle if row < len(table)] or sorted(leaves or running, key=table.start.__getitem__)
    share = max((table.duration(row) for row in shown), default=0) / max(1, analysis.path.wall)
    figures: dict[str, float | int | str] = {"running": len(executions), "circle": len(circle)}
    advice = (
        "an actor cannot run a call while it waits for that call: make the actor async, or do not wait for the call"
        if circle
        else ""
    )
    title = "Calls wait for each other" if circle else "Calls have not ended"
    return [Finding(KIND, text, advice, min(1.0, share), shown, figures, is_failure=True, title=title)]
