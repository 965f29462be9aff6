"""Findings of a run: one function for each cause, which takes an analysis and returns its findings.

Each says what it measures, from which threshold on, what else looks the same, what to do, and which data it needs. Each
needs both its pattern and a cost: time on the critical path that is worth saving. So a healthy program has no findings,
whatever its structure. Failures have no threshold.
"""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import (
    actors,
    calls,
    data,
    driver,
    failures,
    llm,
    order,
    resources,
    rollouts,
    serve,
    serve_calls,
    sizes,
    train_tune,
    waiting,
)
from ray_tracing_hooks._insight.analysis.findings.finding import Finding

__all__ = ["FINDERS", "Finding", "find"]

FINDERS = (
    failures.failed_drivers,
    failures.failed_executions,
    failures.failed_spans,
    failures.unfinished,
    data.bottleneck_operators,
    data.few_blocks,
    data.starved_splits,
    data.recomputed_datasets,
    train_tune.ended_trials,
    train_tune.trials_in_turn,
    train_tune.training_restarts,
    actors.bottleneck_actors,
    data.backpressure,
    data.slow_actor_start,
    actors.blocked_event_loops,
    actors.waits_in_actors,
    driver.get_in_loop,
    order.barriers,
    order.results_in_order,
    order.chains,
    order.polling,
    calls.stragglers,
    train_tune.straggler_ranks,
    train_tune.slow_reports,
    calls.slow_places,
    calls.idle_accelerators,
    sizes.tiny_tasks,
    sizes.large_arguments,
    driver.serial_drivers,
    serve.blocked_replicas,
    serve.slow_replica_starts,
    serve.waiting_for_replicas,
    serve.waiting_for_batches,
    serve.loading_models,
    serve_calls.refused_requests,
    serve_calls.requests_in_turn,
    serve_calls.slow_deliveries,
    serve_calls.slow_replicas,
    serve_calls.slow_requests,
    llm.engine_queues,
    llm.long_prefills,
    llm.busy_ingresses,
    llm.aborted_generations,
    rollouts.long_tails,
    waiting.unrecorded,
    waiting.worker_start,
    sizes.slow_loading,
    train_tune.training_start,
    resources.waiting_for_resources,
    resources.placement_groups,
    resources.few_at_once,
    sizes.slow_results,
    waiting.held_generators,
    data.spilling,
)


_CAUSE = 0.1
"""The share of the run from which a finding is a cause that comes before unexplained time."""


def find(analysis: Analysis) -> list[Finding]:
    """All findings: failures and hangs first, then by cost, largest first; time that nothing explains last.

    Time that no span explains is no cause, so it comes after what is one: what costs a tenth of the run, or makes
    requests slow.
    Only failures where spans of traces that were not sampled are among the others: what these cost, and what else took
    time, is not known without the spans that are missing.
    """
    found = _joined(_explained(analysis, [finding for finder in FINDERS for finding in finder(analysis)]))
    if analysis.calls.unsampled:
        found = [finding for finding in found if finding.is_failure]
        for finding in found:
            finding.share = 0.0
    ordered = sorted(found, key=lambda each: (_rank(each), -each.share, -each.requests_share))
    return _after_causes(ordered)


def _after_causes(found: list[Finding]) -> list[Finding]:
    """With the order in which requests come after what makes each of them slow."""
    last = max((place for place, each in enumerate(found) if each.requests_share >= _CAUSE), default=-1)
    late = [each for each in found[: last + 1] if each.kind == serve_calls.IN_TURN and not each.requests_share]
    return [*(each for each in found[: last + 1] if each not in late), *late, *found[last + 1 :]]


def _rank(finding: Finding) -> int:
    if finding.is_failure:
        return 0
    if finding.kind == waiting.UNRECORDED:
        return 2
    return 1 if finding.share >= _CAUSE or finding.requests_share else 3


_BEHIND = {order.BARRIER: "and a barrier behind", order.RESULTS_IN_ORDER: "and results are taken in order"}


def _joined(found: list[Finding]) -> list[Finding]:
    """With one finding for an actor that is a bottleneck because it is slower than its peers, and one for a straggler
    behind which its caller keeps other calls or results waiting.
    """
    for straggler in [each for each in found if each.kind == calls.STRAGGLER]:
        behind = [each for each in found if each.kind in _BEHIND and set(each.rows[:1]) <= set(straggler.rows)]
        for each in sorted(behind, key=lambda each: each.share)[-1:]:
            found = [other for other in found if other is not each]
            straggler.title += f", {_BEHIND[each.kind]}"
            straggler.text = f"{straggler.text.partition('; arguments')[0]}; {each.text}"
            straggler.advice = f"{each.advice}; or split the work of the longest calls"
            straggler.share = max(straggler.share, each.share)
    busy = {finding.about["actor_id"]: finding for finding in found if finding.kind == actors.BOTTLENECK_ACTOR}
    kept = []
    for finding in found:
        bottleneck = busy.get(finding.about.get("place", "")) if finding.kind == calls.SLOW_PLACE else None
        if bottleneck is None:
            kept.append(finding)
        else:
            bottleneck.text += f"; {finding.text}"
            bottleneck.advice = finding.advice
    return kept


def _explained(analysis: Analysis, found: list[Finding]) -> list[Finding]:
    """Without the stragglers on event loops that are blocked, and those that may have waited for other calls of their
    actor: their time includes the code of other calls. And without those that are the tail of a step.
    """
    place = analysis.calls.place
    tail = {analysis.calls.frame_of(row) for each in found if each.kind == rollouts.LONG_TAIL for row in each.rows}
    blocked = {place(row).actor for each in found if each.kind == actors.BLOCKED_EVENT_LOOP for row in each.rows}
    return [
        finding
        for finding in found
        if finding.kind != calls.STRAGGLER
        or not (
            all(place(row).actor in blocked for row in finding.rows)
            or tail.issuperset(finding.rows)
            or any(row in analysis.path.released for row in finding.rows)
        )
    ]
