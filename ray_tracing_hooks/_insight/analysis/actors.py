"""The actors of a run, and its GPUs and other accelerators: how busy each was, and how long waited for or held."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.critical_path import RUN, Path
from ray_tracing_hooks._insight.analysis.intervals import gaps, united
from ray_tracing_hooks._insight.model.calls import EXECUTION, WAITS, Calls
from ray_tracing_hooks._insight.model.grouped import distinct, most_at_once, split
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.span import is_creation
from ray_tracing_hooks._insight.model.utilization import Utilization, of_accelerator


@dataclass
class Actor:
    """An actor. Times are nanoseconds; its creation does not count as a call."""

    actor_id: str
    name: str
    """``Class#1a2b3c4d``: its class and the beginning of its id."""
    actor_class: str
    slots: int
    """How many of its methods may run at the same time."""
    executions: array[int]
    """Rows of methods, by start."""
    group: str = ""
    """Its concurrency group, if these are only the methods of one."""
    self_time: int = 0
    busy: int = 0
    """How long at least one method ran or waited in ``ray.get``, and so occupied a slot."""
    taken: int = 0
    """How long its methods occupied slots, all of them added up."""
    created: int = 0
    """When its creation ended; 0 if that is not recorded."""
    begin: int = 0
    """When its first method was submitted, or when its creation ended if that was later."""
    end: int = 0
    """When its last method ended."""
    queued: array[int] = field(default_factory=lambda: array("q"))
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

    @property
    def taken_share(self) -> float:
        """How much of the time of all its slots was taken."""
        share = self.taken / (self.end - self.begin) / self.slots if self.end > self.begin else 0.0
        return min(1.0, share)  # where ends are estimated, more may seem to have run at once


def actors(calls: Calls, self_time: Sequence[int], path: Path) -> list[Actor]:
    """Every actor whose methods ran, by self time, largest first."""
    numbers: dict[str, int] = {}
    of_site = np.array([numbers.setdefault(place.actor, len(numbers)) for place in calls.places], np.int64)
    ran = calls.rows_of(EXECUTION)
    of_run = of_site[as_numpy(calls.table.site)[ran]]
    creates = np.array([is_creation(name) for name in calls.functions], bool)
    creates = creates[as_numpy(calls.function)[as_numpy(calls.call_of)[ran]]]
    methods, creations = (split(of_run[chosen], len(numbers), ran[chosen])[0] for chosen in (~creates, creates))
    on_path: dict[str, int] = {}
    for step in path.steps:
        if step.kind == RUN and step.row < len(calls.table) and (at := calls.place(step.row).actor):
            on_path[at] = on_path.get(at, 0) + step.took
    submitted = calls.submitted_at()
    found = []
    for actor_id, rows, created in zip(numbers, methods, creations, strict=True):
        if actor_id and len(rows):
            place = calls.place(int(rows[0]))
            name = place.label
            actor = Actor(place.actor, name, place.actor_class, place.slots, as_array(rows, "i"))
            actor.self_time = sum(map(self_time.__getitem__, actor.executions))
            actor.on_path = on_path.get(actor_id, 0)
            actor.created = calls.table.end_or_now(int(created[-1])) if len(created) else 0
            _describe(actor, calls, submitted, actor.created)
            found.append(actor)
    return sorted(found, key=lambda each: (-each.self_time, each.actor_id))


def by_group(actor: Actor, calls: Calls, self_time: Sequence[int], path: Path) -> list[Actor]:
    """The methods of an actor by concurrency group, each of which has slots of its own."""
    groups: dict[str, list[int]] = {}
    for row in actor.executions:
        groups.setdefault(calls.place(row).group, []).append(row)
    if len(groups) == 1:
        return [replace(actor, group=next(iter(groups)))]
    created, submitted = actor.created, calls.submitted_at()
    found = []
    for group, rows in groups.items():
        members = set(rows)
        each = Actor(actor.actor_id, actor.name, actor.actor_class, actor.slots, as_array(np.array(rows), "i"), group)
        each.self_time = sum(map(self_time.__getitem__, rows))
        each.on_path = sum(step.took for step in path.steps if step.kind == RUN and step.row in members)
        _describe(each, calls, submitted, created)
        found.append(each)
    return found


def _describe(actor: Actor, calls: Calls, submitted_at: Any, created: int) -> None:
    table, rows = calls.table, as_numpy(actor.executions)
    start, ends, call = as_numpy(table.start)[rows], as_numpy(table.ends)[rows], as_numpy(calls.call_of)[rows]
    submission, submitted = as_numpy(calls.submission)[call], submitted_at[call]
    actor.callers = len(distinct(as_numpy(calls.frame)[submission[submission >= 0]]))
    waited = (submitted != 0) & (as_numpy(calls.first)[call] == rows)
    ready = np.minimum(np.maximum(submitted, created), start)
    # For each execution, when all executions before it had ended.
    freed = np.concatenate([[0], np.maximum.accumulate(ends)[:-1]])
    actor.found_busy = int(np.count_nonzero(waited & (ready < freed)))
    ready, begun = ready[waited], start[waited]
    actor.begin, actor.end = int(min(ready, default=start[0])), int(max(ends))
    actor.busy = int(np.maximum(ends - np.maximum(np.maximum(start, freed), actor.begin), 0).sum())
    actor.taken = int(np.maximum(ends - np.maximum(start, actor.begin), 0).sum())
    actor.queued = as_array(np.sort(begun - ready), "q")
    actor.deepest = most_at_once(ready[begun > ready], begun[begun > ready])


_SAMPLES = 10
"""With less samples it is not known how much was in use: each is of the second before it at most."""


@dataclass
class Accelerator:
    """One accelerator of a node. Times are nanoseconds."""

    node: str
    """Ray's id of the node."""
    name: str
    """As Ray names it: ``GPU:0``."""
    holders: list[str] = field(default_factory=list)
    """The actor classes and functions that held it, in order of their first execution."""
    executions: list[int] = field(default_factory=list)
    """Rows, by start."""
    held: int = 0
    """How long it was held; an actor holds it at least from its creation to the end of its last method."""
    busy: int = 0
    """How long its holders ran, without ``ray.get`` and ``ray.wait`` where waiting is recorded, and without the steps
    at which ranks of Ray Train meet.
    """
    longest_gap: int = 0
    """The longest time in which it was held but no holder ran."""
    used: float | None = None
    """How much of it was in use on average while it was held, as its node was sampled; None if there are no
    ten samples."""

    samples: int = 0
    """How many samples there are of that time."""
    resolution: int = 0
    """The usual time between two of them."""

    @property
    def busy_share(self) -> float:
        return self.busy / self.held if self.held else 0.0


def accelerators(calls: Calls, utilization: Utilization) -> list[Accelerator]:
    """Every accelerator that an execution held, by node and name."""
    found: dict[tuple[str, str], Accelerator] = {}
    table = calls.table
    # All spans of a site hold the same accelerators, and most runs have none.
    held_at = [site.get(names.RAY_ACCELERATOR_IDS) for site in table.sites]
    if not any(held_at):
        return []
    for row, role in enumerate(calls.role):
        held = held_at[table.site[row]]
        if role != EXECUTION or not isinstance(held, list):
            continue
        place = calls.place(row)
        for name in map(str, held):
            accelerator = found.setdefault((place.node, name), Accelerator(place.node, name))
            accelerator.executions.append(row)
            holder = place.actor_class or calls.function_of(row)
            if holder not in accelerator.holders:
                accelerator.holders.append(holder)
    waits = _waits(calls)
    for accelerator in found.values():
        held_in = _measure(accelerator, calls, waits)
        if samples := of_accelerator(utilization, accelerator.node, accelerator.name):
            accelerator.samples, accelerator.resolution = samples.within(held_in), samples.resolution
            if accelerator.samples >= _SAMPLES:
                accelerator.used = samples.mean(held_in)
    return [found[key] for key in sorted(found)]


def _waits(calls: Calls) -> dict[int, list[tuple[int, int]]]:
    """The intervals in which each frame waited, by its row."""
    table = calls.table
    # At a step, a rank of Ray Train waits for the others.
    is_step = [name == names.TRAIN_REPORT or name.startswith(names.TRAIN_COLLECTIVES) for name in table.names]
    found: dict[int, list[tuple[int, int]]] = {}
    for row, role in enumerate(calls.role):
        if role in WAITS or is_step[table.name[row]]:
            found.setdefault(calls.frame[row], []).append((table.start[row], table.end_or_now(row)))
    return found


def _measure(accelerator: Accelerator, calls: Calls, waits: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Add up its times, and return the intervals in which it was held."""
    table = calls.table
    lives: dict[str, tuple[int, int]] = {}
    held, ran = [], []
    for row in accelerator.executions:
        start, end = table.time(row)
        ran += gaps(waits.get(row, ()), start, end)
        if actor := calls.place(row).actor:
            first, last = lives.get(actor, (start, end))
            lives[actor] = first, max(last, end)
        else:
            held.append((start, end))
    intervals, busy = united([*held, *lives.values()]), united(ran)
    accelerator.held = sum(end - start for start, end in intervals)
    accelerator.busy = sum(end - start for start, end in busy)
    first, last = (intervals[0][0], intervals[-1][1]) if intervals else (0, 0)
    idle = gaps([*busy, *gaps(intervals, first, last)], first, last)
    accelerator.longest_gap = max((end - start for start, end in idle), default=0)
    return intervals
