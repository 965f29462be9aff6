"""A run that is still running, or hangs: what it is doing now. And deadlocks that ended with their processes."""

from __future__ import annotations

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import WAITING
from ray_tracing_hooks._insight.analysis.deadlocks import deadlocks
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import in_both
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import EXECUTION, WAITS
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import LOST, RUNNING

KIND = "unfinished"
DEADLOCK = "deadlock"

_NAMED = 6
_ADVICE = "an actor cannot run a call while it waits for that call: make the actor async, or do not wait for the call"
_TITLE = "Calls wait for each other"


def find(analysis: Analysis) -> list[Finding]:
    """What has been running longest, if anything is running, and whether calls are in a deadlock.

    If nothing runs any more, deadlocks that lasted until their processes died, as where a driver has given up. They
    cost what the run waited in vain meanwhile.
    """
    table, calls = analysis.table, analysis.calls
    is_running = as_numpy(table.state) == RUNNING
    running = np.nonzero(is_running & np.isin(as_numpy(calls.role), (EXECUTION, *WAITS)))[0].tolist()
    if not running:
        return _ended(analysis)
    # What has ended was in no deadlock: a wait may have timed out.
    circle = analysis.path.circle
    circle = circle if all(frame >= len(table) or is_running[frame] for frame in circle) else []
    # A waiting call is open because of what it waits for, so the innermost calls say most.
    waiting = {calls.frame[row] for row in running if calls.role[row] in WAITS}
    leaves = [row for row in running if calls.role[row] == EXECUTION and row not in waiting]
    executions = [row for row in running if calls.role[row] == EXECUTION]
    text = f"{count(len(executions), 'call')} had not ended when this was read"
    if circle:
        text += f"; they wait for each other in a cycle, a deadlock: {_cycle(analysis, circle)}"
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
    title, advice = (_TITLE, _ADVICE) if circle else ("Calls have not ended", "")
    return [Finding(KIND, text, advice, min(1.0, share), shown, figures, is_failure=True, title=title)]


def _ended(analysis: Analysis) -> list[Finding]:
    table, path = analysis.table, analysis.path
    is_dead = table.is_dead()
    found = []
    for circle in deadlocks(analysis.calls, LOST):
        if not all(is_dead[row] for row in circle):
            continue
        # All of them were stuck from the start of the last one until the first of their processes died.
        stuck = max(map(table.start.__getitem__, circle)), min(map(table.end_or_now, circle))
        cost = in_both([stuck], [(step.start, step.end) for step in path.steps if step.kind == WAITING])
        text = (
            f"{count(len(circle), 'call')} waited for each other in a cycle, a deadlock, until their processes died: "
            f"{_cycle(analysis, circle)}"
        )
        figures: dict[str, float | int | str] = {"circle": len(circle), "waited_ns": cost}
        share = cost / path.wall if path.wall else 0.0
        found.append(Finding(DEADLOCK, text, _ADVICE, share, circle, figures, is_failure=True, title=_TITLE))
    return found


def _cycle(analysis: Analysis, circle: list[int]) -> str:
    names = [quoted(analysis.calls.frame_name(frame)) for frame in circle[:_NAMED]]
    return " > ".join([*names, names[0]])
