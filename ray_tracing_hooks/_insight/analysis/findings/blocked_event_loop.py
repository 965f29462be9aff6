"""A method of an async actor that blocks the event loop, so that no other call of the actor starts or continues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import covered, percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.call_names import is_creation
from ray_tracing_hooks._insight.model.calls import EXECUTION
from ray_tracing_hooks._insight.model.event_loops import Loop, Stall, is_loop
from ray_tracing_hooks._insight.model.merge import as_numpy

KIND = "blocked-event-loop"

_CALLS = 3
_COST = 0.05


@dataclass
class _Blocking:
    """The calls that one method kept waiting."""

    stalls: dict[Stall, None] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)
    """How long each call waited for the method, by the row of its execution."""
    actors: set[str] = field(default_factory=set)


def find(analysis: Analysis) -> list[Finding]:
    """Methods during which calls of their async actor waited although they had nothing else to wait for."""
    wall = analysis.path.wall
    found = []
    for function, blocking in _blocking(analysis).items():
        on_path = _on_path(analysis, blocking)
        if len(blocking.waited) >= _CALLS and wall and on_path / wall >= _COST:
            found.append(_finding(analysis, function, blocking, on_path))
    return found


def _blocking(analysis: Analysis) -> dict[str, _Blocking]:
    calls = analysis.calls
    found: dict[str, _Blocking] = {}
    for rows, created in _loops(analysis):
        loop = Loop(analysis.table, rows, calls.slots_of(rows)[0])
        for row in rows:
            call = calls.call_of[row]
            submitted, begun = calls.submitted_ns(call), analysis.table.start[row]
            # A call with arguments may have waited for those instead.
            if not submitted or calls.attempts(call)[0] != row or calls.objects_of(calls.submission[call]):
                continue
            ready = max(submitted, created)
            for stall in loop.waited(ready, begun):
                each = found.setdefault(calls.function_of(stall.row), _Blocking())
                each.stalls[stall] = None
                each.waited[row] = each.waited.get(row, 0) + stall.end - max(stall.start, ready)
                each.actors.add(calls.place(row).actor)
    return found


def _loops(analysis: Analysis) -> Iterator[tuple[list[int], int]]:
    """The executions on each event loop, and when its actor had been created."""
    calls, table = analysis.calls, analysis.table
    loops: dict[tuple[str, str], list[int]] = {}
    created: dict[str, int] = {}
    with_loop = {place.actor for place in calls.places if place.actor and is_loop(place)}
    is_wanted = np.array([place.actor in with_loop for place in calls.places], bool)[as_numpy(table.site)]
    for row in np.nonzero(is_wanted & (as_numpy(calls.role) == EXECUTION))[0].tolist():
        place = calls.place(row)
        if is_creation(calls.function_of(row)):
            created[place.actor] = table.end_or_now(row)
        elif is_loop(place):
            loops.setdefault((place.actor, place.group), []).append(row)
    for (actor, _), rows in loops.items():
        yield rows, created.get(actor, 0)


def stalls(analysis: Analysis) -> dict[str, list[tuple[int, int]]]:
    """When the event loops of actors were blocked, by actor."""
    return _by_actor(analysis, [stall for blocking in _blocking(analysis).values() for stall in blocking.stalls])


def _by_actor(analysis: Analysis, blocking: Iterable[Stall]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for stall in blocking:
        found.setdefault(analysis.calls.place(stall.row).actor, []).append((stall.start, stall.end))
    return found


def _on_path(analysis: Analysis, blocking: _Blocking) -> int:
    """How long the run waited for any method of these actors while the loop was blocked."""
    calls, blocked = analysis.calls, _by_actor(analysis, blocking.stalls)
    found = 0
    for step in analysis.path.steps:
        if step.kind == RUN and 0 <= step.row < len(analysis.table):
            found += covered(blocked.get(calls.place(step.row).actor, ()), step.start, step.end)
    return found


def _finding(analysis: Analysis, function: str, blocking: _Blocking, on_path: int) -> Finding:
    stalls = list(blocking.stalls)
    stood_still = sum(stall.end - stall.start for stall in stalls)
    longest = max(stall.end - stall.start for stall in stalls)
    waited = percentile(sorted(blocking.waited.values()), 0.5)
    where = "of its async actor" if len(blocking.actors) == 1 else f"of {count(len(blocking.actors), 'async actor')}"
    text = (
        f"{quoted(function)} seems to block the event loop {where}: {count(len(stalls), 'time')}, for up to "
        f"{duration(longest)} and {duration(stood_still)} in all, no other call started or ended while it ran, and "
        f"{count(len(blocking.waited), 'call')} waited for it (median {duration(waited)})"
    )
    advice = (
        "use await to wait (asyncio.sleep, an async client), and run blocking calls and computations in a thread, with "
        "asyncio.to_thread; or make the methods plain functions that run in threads, with max_concurrency"
    )
    figures: dict[str, float | int | str] = {
        "function": function,
        "actors": len(blocking.actors),
        "stalls": len(stalls),
        "longest_ns": longest,
        "stood_still_ns": stood_still,
        "waiting_calls": len(blocking.waited),
        "median_wait_ns": waited,
        "on_path_ns": on_path,
    }
    rows = dict.fromkeys(stall.row for stall in sorted(stalls, key=lambda stall: stall.start - stall.end))
    title = f"{quoted(function)} blocks an event loop"
    return Finding(
        KIND, text, advice, min(1.0, on_path / analysis.path.wall), list(rows), figures, is_assumed=True, title=title
    )
