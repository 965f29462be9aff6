"""An actor that many calls wait for while it is busy."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.actors import Actor
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
    of_operators = _of_operators(analysis)
    for actor in analysis.actors:
        cost = actor.on_path / analysis.path.wall if analysis.path.wall else 0.0
        if (
            len(actor.executions) >= _CALLS
            and actor.slots == 1
            and actor.busy_share >= _BUSY
            and (actor.mean_depth >= _DEPTH or actor.found_busy >= _SATURATED * len(actor.executions))
            and cost >= _COST
            and _is_hot(actor, analysis.actors)
            and actor.actor_class not in of_operators
        ):
            found.append(_finding(actor, analysis, cost))
    return found


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


def _finding(actor: Actor, analysis: Analysis, cost: float) -> Finding:
    waited = percentile(actor.queued, 0.5)
    text = (
        f"actor {quoted(actor.name)} was busy {percent(actor.busy_share)} of the {duration(actor.end - actor.begin)} "
        f"it was in use, while up to {count(actor.deepest, 'call')} waited for it (median wait {duration(waited)}, "
        f"{count(len(actor.executions), 'call')} from {count(actor.callers, 'caller')})"
    )
    advice = (
        "an actor runs its calls one at a time: split its work across several actors, make its methods shorter, or "
        "make them async if they wait"
    )
    slowest = sorted(actor.executions, key=lambda row: -analysis.self_time[row])
    figures: dict[str, float | int | str] = {
        "actor": actor.name,
        "actor_id": actor.actor_id,
        "busy_share": actor.busy_share,
        "deepest_queue": actor.deepest,
        "mean_queue": actor.mean_depth,
        "median_wait_ns": waited,
        "calls": len(actor.executions),
        "callers": actor.callers,
        "self_time_ns": actor.self_time,
        "on_path_ns": actor.on_path,
    }
    return Finding(KIND, text, advice, cost, slowest, figures)
