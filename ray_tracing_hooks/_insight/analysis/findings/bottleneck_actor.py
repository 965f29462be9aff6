"""An actor that many calls wait for while it is busy."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.actors import Actor, by_group
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "bottleneck-actor"

_CALLS = 8
_BUSY = 0.7
_DEPTH = 1.0
_SATURATED = 0.7
"""With backpressure, as in Ray Data, few calls wait for an actor at a time, but the next one whenever one ends."""
_COST = 0.1
_HOTTER = 1.5


def find(analysis: Analysis) -> list[Finding]:
    """Actors that are busy most of the time while calls wait, and so are on the critical path."""
    found = []
    wall, of_operators = analysis.path.wall, _of_operators(analysis)
    for actor in analysis.actors:
        if (
            len(actor.executions) >= _CALLS
            and wall
            and actor.on_path / wall >= _COST
            and _is_hot(actor, analysis.actors)
            and actor.actor_class not in of_operators
        ):
            for each in by_group(actor, analysis.calls, analysis.self_time, analysis.path):
                each.slots, is_known = analysis.calls.slots_of(each.executions)
                if len(each.executions) >= _CALLS and each.on_path / wall >= _COST and _is_full(each):
                    found.append(_finding(each, analysis, each.on_path / wall, is_known=is_known))
    return found


def _is_full(actor: Actor) -> bool:
    """Whether its slots are taken most of the time, and calls wait for them."""
    if actor.slots > 1:
        return actor.taken_share >= _BUSY and actor.mean_depth >= _DEPTH
    return actor.busy_share >= _BUSY and (
        actor.mean_depth >= _DEPTH or actor.found_busy >= _SATURATED * len(actor.executions)
    )


def _of_operators(analysis: Analysis) -> set[str]:
    """The classes of the actors of operators of datasets: an operator that limits its dataset is a finding of its own.

    The others may be busy with waiting until their output is read.
    """
    operators = (each for one in analysis.pipelines.executions for each in one.operators)
    return {analysis.calls.place(each.executions[0]).actor_class for each in operators if each.executions} - {""}


def _is_hot(actor: Actor, actors: list[Actor]) -> bool:
    """Whether it clearly has more work than others of its class: if a whole pool is busy, no one actor is the cause."""
    others = [each.self_time for each in actors if each.actor_class == actor.actor_class and each is not actor]
    return not others or actor.self_time >= _HOTTER * sum(others) / len(others)


def _finding(actor: Actor, analysis: Analysis, cost: float, *, is_known: bool) -> Finding:
    waited = percentile(actor.queued, 0.5)
    name = quoted(actor.name)
    what = f"concurrency group {quoted(actor.group)} of actor {name}" if actor.group else f"actor {name}"
    if actor.slots == 1:
        busy = f"{what} was busy {percent(actor.busy_share)}"
    else:
        slots = f"{actor.slots:,} slots" + ("" if is_known else " (the most calls that ran at once)")
        busy = f"the {slots} of {what} were taken {percent(actor.taken_share)}"
    text = (
        f"{busy} of the {duration(actor.end - actor.begin)} "
        f"it was in use, while up to {count(actor.deepest, 'call')} waited for it (median wait {duration(waited)}, "
        f"{count(len(actor.executions), 'call')} from {count(actor.callers, 'caller')})"
    )
    slowest = sorted(actor.executions, key=lambda row: -analysis.self_time[row])
    figures: dict[str, float | int | str] = {
        "actor": actor.name,
        "actor_id": actor.actor_id,
        "busy_share": actor.busy_share,
        "slots": actor.slots,
        "taken_share": actor.taken_share,
        "deepest_queue": actor.deepest,
        "mean_queue": actor.mean_depth,
        "median_wait_ns": waited,
        "calls": len(actor.executions),
        "callers": actor.callers,
        "self_time_ns": actor.self_time,
        "on_path_ns": actor.on_path,
    }
    title, is_assumed = f"Actor {name} is a bottleneck", not is_known
    return Finding(KIND, text, _advice(actor, analysis), cost, slowest, figures, is_assumed, title=title)


def _advice(actor: Actor, analysis: Analysis) -> str:
    if actor.slots == 1 and not actor.group:
        return (
            "an actor runs its calls one at a time: split its work across several actors, make its methods shorter, or "
            "make them async if they wait"
        )
    more = "more slots (its size in concurrency_groups)" if actor.group else "more slots (max_concurrency)"
    if analysis.calls.place(actor.executions[0]).is_asyncio:
        return f"if its methods mostly wait, give it {more}; otherwise split its work across several actors"
    return (
        f"if its methods mostly wait for something outside, give it {more}; threads that compute in Python, or wait "
        "for each other's locks, only take turns, so split their work across several actors"
    )
