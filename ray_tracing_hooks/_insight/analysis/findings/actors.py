"""Actors that calls wait for: because they are busy, or block their event loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from ray_tracing_hooks._insight.analysis.actors import Actor, by_group
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.intervals import covered
from ray_tracing_hooks._insight.analysis.slots import Stall
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed, percent
from ray_tracing_hooks._insight.model.calls import EXECUTION
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import is_creation

BOTTLENECK_ACTOR = "bottleneck-actor"

_ACTOR_CALLS = 8
_ACTOR_BUSY = 0.7
_ACTOR_DEPTH = 1.0
_ACTOR_SATURATED = 0.7
"""With backpressure, as in Ray Data, only a few calls wait for an actor at a time, but there is always a next one."""
_ACTOR_HOTTER = 1.5


def bottleneck_actors(analysis: Analysis) -> list[Finding]:
    """Actors, or their concurrency groups, that many calls wait for while they are busy.

    Measures: the time of their methods on the critical path.
    Threshold: 8 calls, a tenth of the run, 70 % busy while calls wait, and 1.5 times the work of its peers.
    Looks the same: a pool that is busy as a whole, where no single actor is the bottleneck. Actors of operators of
    datasets do not count.
    Advice: split its work, make its methods shorter, or give it more slots if they mostly wait.
    Needs: executions with submission times. Without max_concurrency, the most calls that ran at once count as its
    slots.
    """
    found, of_operators = [], _of_operators(analysis)
    for actor in analysis.actors:
        if (
            len(actor.executions) >= _ACTOR_CALLS
            and is_costly(analysis, actor.on_path)
            and _is_hot(actor, analysis.actors)
            and actor.actor_class not in of_operators
        ):
            for each in by_group(actor, analysis.calls, analysis.self_time, analysis.path):
                each.slots, is_known = analysis.calls.slots_of(each.executions)
                if len(each.executions) >= _ACTOR_CALLS and is_costly(analysis, each.on_path) and _is_full(each):
                    found.append(_actor_finding(each, analysis, is_known=is_known))
    return found


def _is_full(actor: Actor) -> bool:
    """Whether its slots are taken most of the time, and calls wait for them."""
    if actor.slots > 1:
        return actor.taken_share >= _ACTOR_BUSY and actor.mean_depth >= _ACTOR_DEPTH
    return actor.busy_share >= _ACTOR_BUSY and (
        actor.mean_depth >= _ACTOR_DEPTH or actor.found_busy >= _ACTOR_SATURATED * len(actor.executions)
    )


def _of_operators(analysis: Analysis) -> set[str]:
    """The classes of the actors of operators of datasets: an operator that limits its dataset is a finding of its own.

    The others may be busy with waiting until their output is read.
    """
    operators = (each for one in analysis.pipelines.executions for each in one.operators)
    return {analysis.calls.place(each.executions[0]).actor_class for each in operators if each.executions} - {""}


def _is_hot(actor: Actor, actors: list[Actor]) -> bool:
    """Whether it clearly has more work than others of its class: if a whole pool is busy, no one actor is the cause."""
    others = [each.self_time for each in actors if _is_peer(each, actor)]
    return not others or actor.self_time >= _ACTOR_HOTTER * sum(others) / len(others)


def _actor_finding(actor: Actor, analysis: Analysis, *, is_known: bool) -> Finding:
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
    peers = [len(each.executions) for each in analysis.actors if _is_peer(each, actor)]
    if peers:
        text += f"; {count(len(peers), 'other actor')} of its class ran {count(round(median(peers)), 'call')} (median)"
    slowest = sorted(actor.executions, key=lambda row: -analysis.self_time[row])
    about = {"actor": actor.name, "actor_id": actor.actor_id}
    title, is_assumed = f"Actor {name} is a bottleneck", not is_known
    return Finding(
        BOTTLENECK_ACTOR,
        text,
        _actor_advice(actor, analysis, is_alone=not peers),
        actor.on_path / analysis.path.wall,
        slowest,
        about,
        is_assumed,
        title=title,
    )


def _is_peer(each: Actor, actor: Actor) -> bool:
    return each.actor_class == actor.actor_class and each.actor_id != actor.actor_id


def _actor_advice(actor: Actor, analysis: Analysis, *, is_alone: bool) -> str:
    if not is_alone and not actor.group:
        return (
            "give its peers a larger share of the work: choose actors by load instead of by key, as ray.util.ActorPool "
            "does, or split the work of this one"
        )
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


BLOCKED_EVENT_LOOP = "blocked-event-loop"

_LOOP_CALLS = 3


@dataclass
class _Blocking:
    """The calls that one method kept waiting."""

    stalls: dict[Stall, None] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)
    """How long each call waited for the method, by the row of its execution."""
    actors: set[str] = field(default_factory=set)


def blocked_event_loops(analysis: Analysis) -> list[Finding]:
    """Methods of async actors that block the event loop, so that no other call starts or continues.

    Measures: the time on the critical path in these methods, and in the calls that they made, while the loop stood
    still.
    Threshold: 3 calls that waited, and a twentieth of the run.
    Looks the same: a process that gets no processor time, or another thread that holds the interpreter. So the finding
    is an assumption.
    Advice: await, run blocking code in a thread, or use a threaded actor.
    Needs: executions with submission times. Calls that take results of other calls do not count.
    """
    found = []
    for function, blocking in _blocking(analysis).items():
        on_path = _on_path(analysis, blocking)
        if len(blocking.waited) >= _LOOP_CALLS and is_costly(analysis, on_path, 0.05):
            found.append(_loop_finding(analysis, function, blocking, on_path))
    return found


def _blocking(analysis: Analysis) -> dict[str, _Blocking]:
    calls = analysis.calls
    found: dict[str, _Blocking] = {}
    for lane in analysis.slots.lanes:
        if lane.loop is None:
            continue
        for row in lane.by_start:
            call = calls.call_of[row]
            submitted, begun = calls.submitted_ns(call), analysis.table.start[row]
            # A call with arguments may have waited for those instead.
            if not submitted or calls.attempts(call)[0] != row or calls.objects_of(calls.submission[call]):
                continue
            creation = analysis.slots.creation(row)
            ready = max(submitted, analysis.table.end_or_now(creation) if creation >= 0 else 0)
            for stall in lane.loop.waited(ready, begun):
                each = found.setdefault(calls.function_of(stall.row), _Blocking())
                each.stalls[stall] = None
                each.waited[row] = each.waited.get(row, 0) + stall.end - max(stall.start, ready)
                each.actors.add(calls.place(row).actor)
    return found


def stalls(analysis: Analysis) -> dict[str, list[tuple[int, int]]]:
    """When the event loops of actors were blocked, by actor."""
    return _by_actor(analysis, [stall for blocking in _blocking(analysis).values() for stall in blocking.stalls])


def _by_actor(analysis: Analysis, blocking: Iterable[Stall]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for stall in blocking:
        found.setdefault(analysis.calls.place(stall.row).actor, []).append((stall.start, stall.end))
    return found


def _on_path(analysis: Analysis, blocking: _Blocking) -> int:
    """How long the run waited for any method of these actors while the loop was blocked, or for what the method that
    blocked it had called: it may have done so in a ``ray.get``.
    """
    calls, table, blocked = analysis.calls, analysis.table, _by_actor(analysis, blocking.stalls)
    keeping = {stall.row for stall in blocking.stalls}
    found = 0
    for step in analysis.path.steps:
        if 0 <= step.row < len(table):
            row = step.row if step.kind == RUN and calls.place(step.row).actor in blocked else -1
            row = row if row >= 0 else table.around(step.row, keeping)
            found += covered(blocked[calls.place(row).actor], step.start, step.end) if row >= 0 else 0
    return found


def _loop_finding(analysis: Analysis, function: str, blocking: _Blocking, on_path: int) -> Finding:
    stalls = list(blocking.stalls)
    stood_still = sum(stall.end - stall.start for stall in stalls)
    longest = max(stall.end - stall.start for stall in stalls)
    waited = percentile(sorted(blocking.waited.values()), 0.5)
    where = "of its async actor" if len(blocking.actors) == 1 else f"of {count(len(blocking.actors), 'async actor')}"
    return Finding(
        BLOCKED_EVENT_LOOP,
        f"{quoted(function)} seems to block the event loop {where}: {count(len(stalls), 'time')}, no other call "
        f"started or ended while it ran, for up to {duration(longest)} at once and {duration(stood_still)} in all; "
        f"{count(len(blocking.waited), 'call')} waited for it (median {duration(waited)})",
        "use await to wait (asyncio.sleep, an async client, no ray.get), and run blocking calls and "
        "computations in a thread, with asyncio.to_thread; or make the methods plain functions that run in threads, "
        "with max_concurrency",
        on_path / analysis.path.wall,
        list(dict.fromkeys(stall.row for stall in sorted(stalls, key=lambda stall: stall.start - stall.end))),
        {"function": function},
        is_assumed=True,
        title=f"{quoted(function)} blocks an event loop",
    )


_RELEASED_WITHIN = 5_000_000
_RELEASED_EARLIER = 1_000_000
"""A call that another one has released ends after it, but for the time that threads take."""
_RELEASED_MOSTLY = 0.8
_RELEASED_CHANCE = 0.1


def waits_in_actors(analysis: Analysis) -> list[Finding]:
    """Methods of async and threaded actors that end when another method of their actor does, such as waits for a queue
    or an event.

    Measures: the time of such calls on the critical path.
    Threshold: 0.5 s and a tenth of the run. Calls with four fifths of the time end within 5 ms of the other method; by
    chance, a tenth at most would.
    Looks the same: methods that wait for the same thing outside of the actor. So the finding is an assumption.
    Advice: call the other method earlier.
    Needs: executions of both methods.
    """
    calls, path = analysis.calls, analysis.path
    waiting: dict[str, list[int]] = {}
    for row in sorted(path.released):
        if analysis.ran_on_path[row]:
            waiting.setdefault(calls.function_of(row), []).append(row)
    found = []
    for function, rows in waiting.items():
        if is_costly(analysis, sum(map(analysis.ran_on_path.__getitem__, rows)), seconds=0.5):
            by, released, cost = _released_by(analysis, function, rows)
            if is_costly(analysis, cost, seconds=0.5):
                found.append(_released_finding(analysis, function, by, released, rows, cost))
    return found


def _released_by(analysis: Analysis, function: str, rows: list[int]) -> tuple[str, dict[int, int], int]:
    """The method with whose calls most of these ended, for each of those the call, and their time on the path."""
    calls, table, on_path = analysis.calls, analysis.table, analysis.ran_on_path
    actors = {calls.place(row).actor for row in rows}
    is_here = calls.at(lambda place: place.actor in actors)
    others: dict[tuple[str, str], list[int]] = {}
    for row in np.nonzero(is_here & (as_numpy(calls.role) == EXECUTION))[0].tolist():
        if (name := calls.function_of(row)) != function and not is_creation(name):
            others.setdefault((calls.place(row).actor, name), []).append(row)
    best: tuple[str, dict[int, int], int] = "", {}, 0
    for by in dict.fromkeys(name for _, name in others):
        released, expected, cost = dict[int, int](), 0.0, 0
        for row in rows:
            start, end = table.start[row], table.end_or_now(row)
            own = [each for each in others.get((calls.place(row).actor, by), ()) if start < table.start[each] < end]
            expected += len(own) * (_RELEASED_WITHIN + _RELEASED_EARLIER) / max(1, end - start) * on_path[row]
            last = max(own, key=table.end_or_now, default=-1)
            if last >= 0 and -_RELEASED_EARLIER <= end - table.end_or_now(last) <= _RELEASED_WITHIN:
                released[row], cost = last, cost + on_path[row]
        total = sum(map(on_path.__getitem__, rows))
        if cost >= max(best[2] + 1, _RELEASED_MOSTLY * total) and expected <= _RELEASED_CHANCE * total:
            best = by, released, cost
    return best


def _released_finding(
    analysis: Analysis, function: str, by: str, released: dict[int, int], rows: list[int], cost: int
) -> Finding:
    calls, table = analysis.calls, analysis.table
    usual = percentile(sorted(map(table.duration, released)), 0.5)
    made = [calls.made(row) for row in released.values()]
    callers = list(dict.fromkeys(quoted(calls.frame_name(calls.frame[row])) for row in made if row >= 0))
    of, median = (f"{len(released):,} of ", " (median)") if len(rows) > 1 else ("", "")
    text = (
        f"{of}{count(len(rows), 'call')} of {quoted(function)} on the critical path took {duration(usual)}{median}, "
        f"and ended with a call of {quoted(by)} of the same actor"
    )
    text += f", made by {listed(callers[:2])}" if callers else ""
    advice = (
        f"if they wait for it, for example for an item or an event, find out why {quoted(by)} is not called earlier"
    )
    about = {"function": function}
    ordered = sorted(released, key=lambda row: -analysis.ran_on_path[row])
    title = f"{quoted(function)} waits for {quoted(by)}"
    return Finding("waits-in-actor", text, advice, cost / analysis.path.wall, ordered, about, True, title=title)
