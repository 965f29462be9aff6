"""Findings of a run: one file for each kind, with a ``find`` that takes an analysis and returns its findings.

Thresholds are defined in the file that uses them. Each finding needs both its pattern and a cost: a share of the wall
time that is worth saving. So a healthy program has no findings, whatever its structure.
"""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import (
    backpressure,
    blocked_event_loop,
    blocked_replica,
    bottleneck_actor,
    bottleneck_operator,
    ended_trials,
    failed_drivers,
    failed_spans,
    failures,
    get_in_loop,
    idle_accelerator,
    large_arguments,
    serial_driver,
    slow_actor_start,
    slow_loading,
    slow_places,
    slow_reports,
    slow_requests,
    spilling,
    straggler_rank,
    stragglers,
    tiny_tasks,
    training_restarts,
    training_start,
    unfinished,
    unrecorded,
    waiting_for_batches,
    waiting_for_replicas,
    waiting_for_resources,
    worker_start,
)
from ray_tracing_hooks._insight.analysis.findings.finding import Finding

__all__ = ["Finding", "find"]

_FINDERS = (
    failed_drivers.find,
    failures.find,
    failed_spans.find,
    unfinished.find,
    bottleneck_operator.find,
    ended_trials.find,
    training_restarts.find,
    bottleneck_actor.find,
    backpressure.find,
    slow_actor_start.find,
    blocked_event_loop.find,
    get_in_loop.find,
    stragglers.find,
    straggler_rank.find,
    slow_reports.find,
    slow_places.find,
    idle_accelerator.find,
    tiny_tasks.find,
    large_arguments.find,
    serial_driver.find,
    blocked_replica.find,
    waiting_for_replicas.find,
    waiting_for_batches.find,
    slow_requests.find,
    unrecorded.find,
    worker_start.find,
    slow_loading.find,
    training_start.find,
    waiting_for_resources.find,
    spilling.find,
)


def find(analysis: Analysis) -> list[Finding]:
    """All findings: failures and hangs first, then by cost, largest first."""
    found = _explained(analysis, _joined([finding for finder in _FINDERS for finding in finder(analysis)]))
    return sorted(found, key=lambda finding: (not finding.is_failure, -finding.share))


def _joined(found: list[Finding]) -> list[Finding]:
    """With one finding for an actor that is a bottleneck because it is slower than its peers."""
    busy = {finding.figures["actor_id"]: finding for finding in found if finding.kind == bottleneck_actor.KIND}
    kept = []
    for finding in found:
        bottleneck = busy.get(finding.figures.get("place", "")) if finding.kind == slow_places.KIND else None
        if bottleneck is None:
            kept.append(finding)
        else:
            bottleneck.text += f"; {finding.text}"
            bottleneck.advice = finding.advice
    return kept


def _explained(analysis: Analysis, found: list[Finding]) -> list[Finding]:
    """Without the stragglers on event loops that are blocked: their time includes the code of other calls."""
    place = analysis.calls.place
    blocked = {place(row).actor for each in found if each.kind == blocked_event_loop.KIND for row in each.rows}
    return [
        finding
        for finding in found
        if finding.kind != stragglers.KIND or not all(place(row).actor in blocked for row in finding.rows)
    ]
