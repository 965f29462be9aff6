"""A run that goes on, or hangs: what it is in now."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis import Analysis
from ray_tracing_hooks._insight.calls import EXECUTION, WAITS
from ray_tracing_hooks._insight.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.table import RUNNING
from ray_tracing_hooks._insight.text import count, duration

KIND = "unfinished"


def find(analysis: Analysis) -> list[Finding]:
    """What has been running longest, as long as anything does; and whether calls wait for each other in a circle."""
    table, calls = analysis.table, analysis.calls
    running = [
        row for row in range(len(table)) if table.state[row] == RUNNING and calls.role[row] in (EXECUTION, *WAITS)
    ]
    if not running and not analysis.path.has_circle:
        return []
    # What waits is there because of what it waits for: the innermost says most.
    waiting = {calls.frame[row] for row in running if calls.role[row] in WAITS}
    leaves = [row for row in running if calls.role[row] == EXECUTION and row not in waiting] or running
    text = f"{count(len(running), 'call')} had not ended when this was read" if running else ""
    if leaves:
        oldest = min(leaves, key=table.start.__getitem__)
        since = duration(table.duration(oldest))
        text += f"; the one that has run longest without waiting is {quoted(calls.function_of(oldest))}, for {since}"
    if analysis.path.has_circle:
        text = (text + "; " if text else "") + "calls wait for each other in a circle, and none of them can end"
    share = max((table.duration(row) for row in leaves), default=0) / max(1, analysis.path.wall)
    figures: dict[str, float | int | str] = {"running": len(running), "circle": int(analysis.path.has_circle)}
    rows = sorted(leaves, key=table.start.__getitem__)
    return [Finding(KIND, text, "", min(1.0, share), rows, figures)]
