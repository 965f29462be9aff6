"""What is worth a look in a run: one file a kind of finding. Each looks at an analysis and gives what it finds.

A threshold stands where it is used. All want two things: the pattern, and that it costs a share of the wall time that
somebody would want to have back. So a healthy program has no findings, whatever it is built of.
"""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import (
    blocked_event_loop,
    bottleneck_actor,
    failures,
    get_in_loop,
    idle_accelerator,
    large_arguments,
    serial_driver,
    slow_places,
    stragglers,
    tiny_tasks,
    unfinished,
    unrecorded,
    waiting_for_resources,
    worker_start,
)
from ray_tracing_hooks._insight.analysis.findings.finding import Finding

__all__ = ["Finding", "find"]

_FINDERS = (
    failures.find,
    unfinished.find,
    bottleneck_actor.find,
    blocked_event_loop.find,
    get_in_loop.find,
    stragglers.find,
    slow_places.find,
    idle_accelerator.find,
    tiny_tasks.find,
    large_arguments.find,
    serial_driver.find,
    unrecorded.find,
    worker_start.find,
    waiting_for_resources.find,
)


def find(analysis: Analysis) -> list[Finding]:
    """All findings, the most expensive first; what failed or hangs before all others."""
    found = [finding for finder in _FINDERS for finding in finder(analysis)]
    return sorted(found, key=lambda finding: (finding.kind not in _FIRST, -finding.share))


_FIRST = (*failures.KINDS, unfinished.KIND)
