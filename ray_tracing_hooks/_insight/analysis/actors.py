"""The actors of a run: how busy each was, and how long calls waited for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.critical_path import RUN, Path
from ray_tracing_hooks._insight.analysis.functions import covered
from ray_tracing_hooks._insight.model.calls import EXECUTION, Calls


@dataclass
class Actor:
    """An actor. Times are nanoseconds; its creation does not count as a call."""

    actor_id: str
    name: str
    """``Class#1a2b3c4d``: its class and the beginning of its id."""
    actor_class: str
    slots: int
    """How many of its methods may run at the same time."""
    executions: list[int] = field(default_factory=list)
    """Rows of methods, by start."""
    self_time: int = 0
    busy: int = 0
    """How long at least one method ran or waited in ``ray.get``, and so occupied a slot."""
    begin: int = 0
    """When its first method was submitted, or when its creation ended if that was later."""
    end: int = 0
    """When its last method ended."""
    queued: list[int] = field(default_factory=list)
    """Queue time of each call, sorted; from its submission, or from the end of the actor's creation if later."""
    found_busy: int = 0
    """How many calls were already waiting when an earlier call ended."""
    deepest: int = 0
    """The most calls that waited at the same time."""
    callers: int = 0
    """How many executions and drivers called it."""
    on_path: int = 0
    """Time that its methods ran on the critical path."""

    @property
    def mean_depth(self) -> float:
        """How many calls waited on average while it was in use."""
        return sum(self.queued) / (self.end - self.begin) if self.end > self.begin else 0.0

    @property
    def busy_share(self) -> float:
        return self.busy / (self.end - self.begin) if self.end > self.begin else 0.0


def actors(calls: Calls, self_time: Sequence[int], path: Path) -> list[Actor]:
    """Every actor whose methods ran, by self time, largest first."""
    table = calls.table
    created: dict[str, int] = {}
    found: dict[str, Actor] = {}
    for row, role in enumerate(calls.role):
        if role != EXECUTION or not (place := calls.place(row)).actor:
            continue
        if calls.function_of(row).endswith(".__init__"):
            created[place.actor] = table.end_or_now(row)
            continue
        actor = found.get(place.actor)
        if actor is None:
            name = f"{place.actor_class.rpartition('.')[2]}#{place.actor[:8]}"
            actor = found[place.actor] = Actor(place.actor, name, place.actor_class, place.slots)
        actor.executions.append(row)
        actor.self_time += self_time[row]
    on_path: dict[str, int] = {}
    for step in path.steps:
        if step.kind == RUN and step.row < len(table) and (at := calls.place(step.row).actor):
            on_path[at] = on_path.get(at, 0) + step.end - step.start
    for actor in found.values():
        _describe(actor, calls, created.get(actor.actor_id, 0))
        actor.on_path = on_path.get(actor.actor_id, 0)
    return sorted(found.values(), key=lambda each: (-each.self_time, each.actor_id))


def _describe(actor: Actor, calls: Calls, created: int) -> None:
    table = calls.table
    spans = [(table.start[row], table.end_or_now(row)) for row in actor.executions]
    waiting: list[tuple[int, int]] = []
    callers = set()
    freed = 0
    for row in actor.executions:
        call = calls.call_of[row]
        submitted = calls.submitted_ns(call)
        if calls.submission[call] >= 0:
            callers.add(calls.frame[calls.submission[call]])
        if submitted and calls.attempts(call)[0] == row:
            ready = min(max(submitted, created), table.start[row])
            waiting.append((ready, table.start[row]))
            actor.found_busy += ready < freed
        freed = max(freed, table.end_or_now(row))
    actor.end = max(end for _, end in spans)
    actor.begin = min([begin for begin, _ in waiting] or [begin for begin, _ in spans])
    actor.busy = covered(spans, actor.begin, actor.end)
    actor.queued = sorted(end - begin for begin, end in waiting)
    actor.deepest = _deepest(waiting)
    actor.callers = len(callers)


def _deepest(intervals: list[tuple[int, int]]) -> int:
    changes = sorted(
        [(begin, 1) for begin, end in intervals if end > begin] + [(end, -1) for begin, end in intervals if end > begin]
    )
    depth = most = 0
    for _, change in changes:
        depth += change
        most = max(most, depth)
    return most
