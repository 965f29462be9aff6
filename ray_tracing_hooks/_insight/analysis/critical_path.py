"""The critical path of a run: what its end waited for, step by step back to its start.

A parent in Ray does not wait for its children: ``.remote()`` returns at once. So the path does not follow nesting. It
goes back from the end of the driver through whatever the run waited for at each moment: the code of a function ran
(``RUN``); a ``ray.get`` waited for a task, so the path continues at that task's end; an execution started once it was
submitted, its arguments and its actor were available, and a slot of its actor or a worker was free, whichever came
last.

Each step has a kind, for what the time was spent on, and an edge to the step before it. Time that no edge explains is
``UNEXPLAINED``. Where waiting was not recorded (no ``ray.get`` and ``ray.wait`` spans), each caller is assumed to have
waited for the call of its own that ended last; such edges are marked. If a driver's waits were not recorded, a long
time without any other span of the driver does not count as its own code.

Ray Data waits for its blocks without spans for these waits. So while a caller waits for Ray Data, the path goes through
the call for a block that ended last, which is an assumption too.

Where waits of a caller overlap, as those of threads and coroutines do, the path goes through the one that ended last,
of those for which it is recorded what ended them.
While Ray Train runs, its caller waits; what its controller does by itself is not recorded, and is one kind of time.

A wait that timed out has waited all the same. If it polls, so that a later wait soon finds the object, the path goes
through what both waited for.

Where it waits for a request to Ray Serve, the path goes into the replica that ran it, and from there to what the
request had waited for: its arguments, the event loop of the replica, a free replica, and the call itself. While a
request to a proxy was open and a driver did not wait for anything else, it is assumed to have waited for that request.

A method that ran while other calls of its actor did may have waited for one of them, for a lock or a queue; that is not
recorded, so the path through its code is inferred. An item of a generator was there when a caller got it, since only
then there is a reference to it; a caller that waited for the next item has waited for the generator.

The same walk has a second form, for another question. :func:`critical_path` passes through queues: while a call waited
for its actor, the path is in the call that kept the actor busy, since that call would have to be faster.
:func:`time_split` stays with the call that waited, which makes the queue time visible.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.dataset_calls import dataset_waits, tasks_of_operators
from ray_tracing_hooks._insight.analysis.served import Served, ServedCalls
from ray_tracing_hooks._insight.model.call_names import is_creation
from ray_tracing_hooks._insight.model.calls import (
    DRIVER,
    EXECUTION,
    GET,
    SUBMISSION,
    WAIT,
    Calls,
    Place,
    is_item,
    is_put,
    item_number,
)
from ray_tracing_hooks._insight.model.clocks import machine
from ray_tracing_hooks._insight.model.event_loops import LEAST, Loop, is_loop
from ray_tracing_hooks._insight.model.grouped import by_group
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.processes import Workers
from ray_tracing_hooks._insight.model.serve_spans import LAG
from ray_tracing_hooks._insight.model.table import ENDED, LOST

RUN = "run"
"""Code of the step's function, method or driver ran. What it did in that time is unknown."""
SUBMIT = "submit"
"""In ``.remote()``. This is part of ``RUN`` steps and occurs only in totals."""
GET_TIME = "get"
"""The object was available, or the call named none: it was fetched and deserialized."""
ACTOR_QUEUE = "actor queue"
"""The actor was busy with other calls."""
WORKER_QUEUE = "worker queue"
"""The worker that ran it was busy with other calls."""
STARTING = "worker start"
"""Everything else was ready: its worker process, or one before it, was starting, until it was ready for work."""
SCHEDULING = "scheduling"
"""The call was ready: time until resources were free, for Ray to lease a worker and fetch arguments, and for the worker
to load them and the code. It includes the start of the worker if that is not recorded."""
DELIVERY = "delivery"
"""The call of a method was ready, and its actor was there: time to send it, with its arguments, until it began."""
WAITING = "waiting"
"""In ``ray.get``, ``ray.wait`` or ``await`` until its timeout or cancellation, for an unavailable object."""
RETRYING = "retrying"
"""From the end of a failed attempt to the start of the next one."""
DATASET = "dataset"
"""The caller waited for Ray Data, which planned, held operators back, scheduled or handed on blocks."""
TRAINING = "training"
"""The caller waited for Ray Train, whose controller has no spans: it started, placed workers, set them up or ended."""
REPLICA_QUEUE = "replica queue"
"""A request to Ray Serve waited for a free replica, or for the event loop of its replica."""
REQUEST_DELIVERY = "request delivery"
"""A request to Ray Serve was sent to its replica, which its router did not have to wait for."""
RESERVING = "reserving"
"""The caller waited for a placement group: until Ray had reserved its bundles on nodes with free resources."""
UNEXPLAINED = "unexplained"

KINDS = (
    *(RUN, SUBMIT, GET_TIME, ACTOR_QUEUE, WORKER_QUEUE, STARTING, SCHEDULING, DELIVERY, WAITING, RETRYING, DATASET),
    *(TRAINING, REPLICA_QUEUE, REQUEST_DELIVERY, RESERVING, UNEXPLAINED),
)

MEANINGS = {
    RUN: "running code",
    SUBMIT: "submitting calls, in .remote()",
    GET_TIME: "fetching results, in ray.get",
    ACTOR_QUEUE: "waiting for a busy actor",
    WORKER_QUEUE: "waiting for a busy worker",
    STARTING: "starting worker processes",
    SCHEDULING: "scheduling and loading: resources, leases, workers, arguments and code",
    DELIVERY: "delivering calls to actors, with their arguments",
    WAITING: "waiting without a result: ray.wait and ray.get until their timeout",
    RETRYING: "delay before a retry",
    DATASET: "in Ray Data: planning, backpressure, handing on blocks",
    TRAINING: "in Ray Train: its controller, and setting up workers",
    REPLICA_QUEUE: "in Ray Serve: waiting for replicas, or for their event loops",
    REQUEST_DELIVERY: "in Ray Serve: arguments of requests, and their way to replicas",
    RESERVING: "reserving placement groups",
    UNEXPLAINED: "unexplained: no span shows the reason",
}
"""What each kind means, for people."""

BY_SUBMISSION, BY_ARGUMENT, BY_CREATION, BY_ACTOR, BY_WORKER = "submission", "argument", "creation", "actor", "worker"
BY_RETRY, BY_GET, BY_ITEM, BY_CODE, BY_NOTHING = "retry", "get", "generator item", "code", "nothing"
BY_RANK = "rank"
"""Edges: why a step could not start earlier. ``rank``: another rank of Ray Train came to the step last; ``code``: it
follows other code of the same frame; ``nothing``: no reason is known."""


class Step(NamedTuple):
    """A part of the path. Times are nanoseconds since the epoch."""

    kind: str
    start: int
    end: int
    row: int
    """The row of its span: the execution or driver that ran, the wait, or the execution that had to wait. It may be a
    frame of :class:`~ray_tracing_hooks._insight.model.calls.Calls` without a row; -1 for none."""
    edge: str
    """What made it wait until ``start``."""
    source: int
    """The row of the span that it waited for; -1 if there is none."""
    is_assumed: bool = False
    """Whether the edge is assumed and not recorded."""


@dataclass
class Path:
    """The path through one run. Times are in nanoseconds."""

    start: int
    end: int
    root: int
    """The frame at whose end the path ends: the driver, or the frame that ended last."""
    steps: list[Step]
    """In order, without gaps and overlaps: their durations add up to the wall time."""
    is_recorded: bool
    """Whether no edge is assumed, and waiting was recorded wherever code ran on the path."""
    is_exact: bool
    """Whether it is recorded, with the driver's own span, no spans are known to be missing, and no clocks differed."""
    is_cut: bool = False
    """Whether no span of a driver says when the run began and ended: the first and the last span that was read do."""
    released: set[int] = field(default_factory=set)
    """Methods on the path during which another call of their actor ran from begin to end. It may be what they waited
    for, as for an item of a queue."""
    has_requests: bool = False
    """Whether a driver is assumed to have waited for requests to a proxy of Ray Serve."""
    is_estimated: bool = False
    """Whether it includes spans that had not ended, or whose end is unknown."""
    machines: int = 1
    """How many machines it passes through, by whose clocks its times are."""
    circle: list[int] = field(default_factory=list)
    """The frames of a deadlock, if there is one: each waits for the next, the last for the first."""
    clamped: int = 0
    """By how much causes ended after their effects, in total: because of clock skew or estimated ends."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Time by kind. Adds up to the wall time."""
    functions: Counter[str] = field(default_factory=Counter)
    """Time on the path in which each function's code ran, including submissions."""
    submitting: Counter[str] = field(default_factory=Counter)
    """Time on the path that submitting calls of each function took."""
    executions: Counter[int] = field(default_factory=Counter)
    """By row of an execution: the time of the steps that are its own code, its wait to start (after a failed attempt
    too), or the fetching of its result."""
    first_scheduling: dict[str, int] = field(default_factory=dict)
    """For each function, how long its first call on the path waited for Ray, since that is when workers start."""

    @property
    def wall(self) -> int:
        return self.end - self.start

    @property
    def coverage(self) -> float:
        """The explained share of the wall time, from 0 to 1."""
        return 1 - self.kinds[UNEXPLAINED] / self.wall if self.wall else 1.0


Arrivals = Mapping[int, tuple[int, int]]
"""For the row of each step at which ranks of Ray Train met, the training loop of the last to come, and when it came."""


def critical_path(calls: Calls, arrivals: Arrivals | None = None, served: ServedCalls | None = None) -> Path:
    """The path that passes through queues: what would have to be faster for the run to end earlier."""
    return _Walk(calls, arrivals or {}, served, through_queues=True).path()


def time_split(calls: Calls, arrivals: Arrivals | None = None, served: ServedCalls | None = None) -> Path:
    """The path that stays with calls that wait in queues: how the wall time was spent."""
    return _Walk(calls, arrivals or {}, served, through_queues=False).path()


_SILENCE = 0.1
"""Time of a driver without any span counts as its own code between calls, up to this share of the run."""

_MOST_THREADS = 64
"""The most waits of one frame that are considered concurrent."""


_MOST_ATTEMPTS = 64
"""The most attempts before the last one that are searched for the one that ended a wait."""


_RELEASE = 1_000_000
"""What releases a method from a wait may end this much later, in nanoseconds: it is in another thread."""

_BEFORE_ARGUMENTS = (BY_SUBMISSION, BY_ARGUMENT, BY_CREATION)
"""The edges to what a call has waited for before its arguments may have been there."""


class _Before(NamedTuple):
    """The last thing that a frame had to wait for."""

    time: int
    edge: str
    source: int


class _Freed(NamedTuple):
    """What freed the slot that an execution took."""

    row: int
    """The execution that ended, or released the event loop."""
    time: int
    is_assumed: bool = False
    """Whether it is only inferred that the event loop was blocked, or how many slots there are."""


class _Waits(NamedTuple):
    """The waits of a frame: their rows by start and by end, and these times."""

    by_start: list[int]
    starts: list[int]
    by_end: list[int]
    ends: list[int]


class _Lane:
    """Executions that share slots: of one actor and concurrency group, or of one worker."""

    def __init__(
        self,
        by_start: Sequence[int],
        starts: Sequence[int],
        by_end: Sequence[int],
        ends: Sequence[int],
        slots: int,
        loop: Loop | None = None,
        *,
        is_known: bool = True,
    ) -> None:
        """``by_start`` and ``by_end`` are the rows, and ``starts`` and ``ends`` their times, in these orders.

        ``loop`` is the event loop that the executions share, if any. ``is_known``: whether the number of slots is.
        """
        self.is_known = is_known
        self.by_start, self.starts, self.by_end, self.ends = by_start, starts, by_end, ends
        self.slots = slots
        self.loop = loop

    @cached_property
    def _last_full(self) -> Sequence[int]:
        """For each place in ``ends``, the last place up to there before whose end all slots were taken; -1 for none."""
        begun = np.searchsorted(as_numpy(self.starts), as_numpy(self.ends))
        ended = np.searchsorted(as_numpy(self.ends), as_numpy(self.ends))
        places = np.arange(len(self.ends))
        full = np.where(begun - ended >= self.slots, places, -1)
        return memoryview(as_array(np.maximum.accumulate(full), "q"))

    def freed(self, row: int, start: int, ready: int) -> _Freed | None:
        """The execution that freed the slot for one that started at ``start``.

        ``ready`` is when the later one could have started. None if a slot was free all the time from then.
        """
        if self.loop is not None and (stall := next(self.loop.waited(ready, start), None)) is not None:
            return _Freed(stall.row, stall.end, is_assumed=True)
        place = bisect_right(self.ends, start) - 1
        while place >= 0 and self.by_end[place] == row:
            place -= 1
        full = self._last_full[place] if place >= 0 else -1
        if full < 0:
            return None
        # Each call that started since then took a slot that another had freed, the first one first. Between the two Ray
        # takes a moment, so that the slots seem free.
        own = bisect_left(self.by_start, row) - self.slots
        place = max(full, min(own, place))
        # Without a full moment since it was ready, those before it may still have been on their way to their slots.
        was_full = self.ends[full] > ready
        if self.ends[place] <= ready or (not was_full and place - full >= self.slots):
            return None
        return _Freed(self.by_end[place], self.ends[place], is_assumed=not (self.is_known and was_full))

    def may_have_been_full(self, row: int, ready: int) -> bool:
        """Whether a slot that seemed free when this execution was ready may have been that of a call on its way."""
        before = bisect_right(self.starts, ready)
        running = before - bisect_right(self.ends, ready)
        began_since = bisect_left(self.by_start, row) - before
        return self.slots > 1 and running + began_since >= self.slots

    def holder(self, time: int) -> int:
        """The last to start of the executions that held the slots at this time, if all were taken; else -1."""
        begun, ended = bisect_left(self.starts, time), bisect_left(self.ends, time)
        if begun - ended < self.slots:
            return -1
        running = set(self.by_end[ended:])
        return next(row for row in reversed(self.by_start[:begun]) if row in running)


class _Walk:
    def __init__(self, calls: Calls, arrivals: Arrivals, served: ServedCalls | None, *, through_queues: bool) -> None:
        self.calls, self.table = calls, calls.table
        self.served = served or ServedCalls(calls, None)
        self.arrivals = arrivals
        self.through_queues = through_queues
        self.steps: list[Step] = []
        self.clamped = 0
        self.assumed = False
        self.start = self.wall = 0
        self.circle: list[int] = []
        self._seen: dict[tuple[int, int], int] = {}
        """The places that the walk has visited, each with the number of places visited before it."""
        self._waits: dict[int, _Waits] = {}
        self._at_once: dict[int, bool] = {}
        """Whether a frame may have waited in several threads or coroutines."""
        self._made: dict[tuple[int, bool], tuple[list[int], list[int]]] = {}
        self._spoken: dict[int, list[tuple[int, int]]] = {}
        """For drivers, the times of their own spans, by start."""
        self._lanes: dict[tuple[str, str], _Lane] | None = None
        self._creations: dict[str, list[int]] = {}
        self._first_method: dict[str, int] = {}
        self._of_actors: dict[str, list[_Lane]] = {}
        self._released: set[int] = set()
        self._drivers = set(calls.drivers())
        self._in_request = self._has_requests = False
        self._workers = Workers(calls.table)
        self._dataset_waits = dataset_waits(calls)
        self._of_datasets = tasks_of_operators(calls)

    # --- the walk -------------------------------------------------------------------------------------------------

    def path(self) -> Path:
        calls = self.calls
        root, start, end = _root(calls)
        self.start, self.wall = start, end - start
        self._walk(root, end, start)
        steps = self.steps[::-1]
        is_cut = len(self.table) > 0 and calls.is_cut_off(root)
        is_recorded = not self.assumed
        quality = self.table.quality
        is_partial = bool(calls.left_out or calls.unsampled or calls.is_selection or quality.is_partial)
        is_exact = is_recorded and not (is_cut or is_partial or self.clamped or quality.clocks)
        path = Path(start, end, root, steps, is_recorded, is_exact, circle=self.circle)
        path.is_cut = is_cut
        path.released = self._released
        path.has_requests = self._has_requests
        path.clamped = self.clamped
        rows = {step.row for step in steps if 0 <= step.row < len(self.table)}
        path.machines = len({machine(self.table.resources[self.table.resource[row]]) for row in rows})
        path.is_estimated = any(self.table.state[row] != ENDED for row in rows)
        self._add_up(path)
        return path

    def _walk(self, frame: int, time: int, start: int) -> None:
        """Go back from ``time`` in a frame to ``start``, through all frames in between."""
        while time > start and frame >= 0 and (frame, time) not in self._seen:
            self._seen[frame, time] = len(self._seen)
            frame, time = self._back(frame, time, start)
        if time > start:
            self._step(UNEXPLAINED, start, time, -1, BY_NOTHING, -1)

    def _back(self, frame: int, time: int, start: int) -> tuple[int, int]:
        """Go back in a frame from ``time`` to where the path leaves it. Returns where the path continues."""
        begun = max(self.calls.frame_start(frame), start)
        if time < begun:
            # What the path comes from was before this frame, so one of their times is wrong.
            self.clamped += begun - time
            return -1, time
        while time > begun:
            wait = self._wait_before(frame, time)
            before = self._through_dataset(frame, time, wait, begun)
            if before is not None and before[0] == frame:
                time = before[1]
                continue
            if before is not None:
                return before
            made = self._assumed_wait(frame, time, wait)
            if (asked := self._through_request(frame, time, begun, wait, made)) is not None:
                time = asked
                continue
            if made is not None and made[1] > begun:  # clocks may have been set back
                row, end = made
                self._run(end, time, frame, BY_GET, row, is_assumed=True)
                return row, end
            if wait is None or self.table.start[wait] < begun:
                break
            wait_start, wait_end = self.table.start[wait], min(time, self.table.end_or_now(wait))
            gave_up = self._gave_up(wait)
            if gave_up and wait_end - wait_start >= time - wait_end:
                late = self._late(wait, time)
                if late is not None:
                    known = max(late.time, wait_end)
                    edge, source = (late.edge, late.source) if known == late.time else (BY_CODE, wait)
                    self._run(known, time, frame, edge, source)
                    self._step(GET_TIME, late.time, known, wait, late.edge, late.source)
                    return self._frame_of(late.source), late.time
            self._run(wait_end, time, frame, BY_CODE, wait)
            for_what = self._binding(wait, wait_end)
            is_known = gave_up or (for_what is not None and for_what.edge == BY_RANK) or self._is_known(wait)
            unknown = self._unknown(frame, wait)
            if for_what is not None and for_what.time > wait_start and not self._is_circle(for_what):
                assumed = for_what.edge == BY_CODE or not is_known or self._at_once[frame]
                assumed = assumed or (for_what.edge == BY_ITEM and self._is_later_item(wait))
                edge = BY_GET if for_what.edge == BY_CODE else for_what.edge
                self._step(
                    WAITING if gave_up else GET_TIME if is_known else unknown,
                    for_what.time,
                    wait_end,
                    wait,
                    edge,
                    for_what.source,
                    is_assumed=assumed,
                )
                return self._frame_of(for_what.source), for_what.time
            was_there = for_what is not None and for_what.time <= wait_start and is_known
            kind = GET_TIME if was_there or not self._names_any(wait) else unknown
            self._step(WAITING if gave_up else kind, wait_start, wait_end, wait, BY_NOTHING, -1)
            time = wait_start
        time = max(time, begun)
        if self.served.is_replica(frame) and (ran := self.served.ran(frame)) is not None:
            return self._enter_replica(ran, time)
        if frame >= len(self.table) or self.calls.role[frame] != EXECUTION:
            self._run(begun, time, frame, BY_NOTHING, -1)
            return -1, begun
        ready = self._ready(frame, begun)
        self._run(begun, time, frame, BY_NOTHING if ready is None else BY_CODE, -1 if ready is None else frame)
        return (-1, begun) if ready is None else self._enter(frame, begun, ready)

    def _unknown(self, frame: int, wait: int) -> str:
        """The kind of the time in a wait for what no span has made."""
        start = self.table.start[wait]
        if any(begin <= start < end for begin, end in self.calls.training_of(frame)):
            return TRAINING
        is_group = self.table.attribute(wait, names.RAY_PLACEMENT_GROUP_ID)
        number = self.table.attribute(wait, names.RAY_OBJECT_COUNT) or 1
        is_good = self.table.state[wait] == ENDED and not self.table.failed(wait)
        return RESERVING if is_group and is_good and number == 1 else UNEXPLAINED

    def _is_later_item(self, wait: int) -> bool:
        """Whether a wait was not for the first item of a generator, which before may have been held back, or ahead."""
        return not any(item_number(each) == 1 for each in self.calls.objects_of(wait))

    def _is_circle(self, before: _Before) -> bool:
        """Whether the walk would return to a place that it has visited, since calls wait for each other."""
        place = self._seen.get((self._frame_of(before.source), before.time))
        if place is None:
            return False
        self.circle = self.circle or [frame for frame, _ in list(self._seen)[place:]]
        return True

    def _enter(self, row: int, begun: int, before: _Before) -> tuple[int, int]:
        """From the start of an execution to what it waited for."""
        by = BY_ACTOR if self.calls.place(row).actor else BY_WORKER
        is_known = before.edge not in _BEFORE_ARGUMENTS or self._knows_needs(row)
        is_retry = before.edge == BY_RETRY
        # Whatever else it needed, it had to wait for a slot of its actor. It could have had another worker.
        has_slots = is_known or by == BY_ACTOR
        if is_retry:
            # Ray puts a task that raised behind those that wait already.
            has_slots, is_known = by == BY_WORKER and self.table.state[before.source] != LOST, True
        freed = self._freed(row, begun, before.time) if has_slots else None
        if freed is not None and freed.time > before.time:
            assumed = freed.is_assumed or not is_known
            if is_known:
                self._scheduled(freed.time, begun, row, by, freed.row, is_assumed=assumed)
            else:
                self._step(UNEXPLAINED, freed.time, begun, row, by, freed.row, is_assumed=True)
            if self.through_queues:
                return freed.row, freed.time
            kind = ACTOR_QUEUE if by == BY_ACTOR else WORKER_QUEUE
            self._step(kind, before.time, freed.time, row, before.edge, before.source, is_assumed=assumed)
        elif not is_known:
            self._step(UNEXPLAINED, before.time, begun, row, before.edge, before.source, is_assumed=True)
        elif is_retry:
            self._step(RETRYING, before.time, begun, row, before.edge, before.source)
        else:
            lane = self._lane(row) if has_slots else None
            assumed = lane is not None and lane.may_have_been_full(row, before.time)
            self._scheduled(before.time, begun, row, before.edge, before.source, is_assumed=assumed)
        return self._frame_of(before.source), before.time

    def _enter_replica(self, ran: Served, time: int) -> tuple[int, int]:
        """From the code of a request in a replica, which had run until ``time``, to what that had waited for."""
        row, code = ran.row, min(ran.ran, time)
        self._run(code, time, row, BY_CODE, row, is_assumed=True)  # it may wait without a span
        if self.through_queues and ran.ran > ran.began and (held := self.served.held_by(ran)) >= 0:
            end = min(self.table.end_or_now(held), code)
            self._step(REPLICA_QUEUE, end, code, row, BY_ACTOR, held, is_assumed=True)
            self.assumed = True
            return held, end
        self._step(REPLICA_QUEUE, ran.began, code, row, BY_CODE, row)
        waited = ran.chosen - ran.made
        caller = self.calls.frame[ran.call]
        if ran.began - ran.chosen > LAG:
            argument = self._last_made(caller, ran.began - waited)
            if argument is not None and argument[1] > ran.made and argument[0] != row:
                self._step(REQUEST_DELIVERY, argument[1] + waited, ran.began, row, BY_CODE, row)
                self._step(
                    REPLICA_QUEUE, argument[1], argument[1] + waited, row, BY_ARGUMENT, argument[0], is_assumed=True
                )
                return argument
        self._step(REQUEST_DELIVERY, ran.chosen, ran.began, row, BY_CODE, row)
        freed = self.served.freed_by(row, ran.chosen, ran.made) if self.through_queues and waited else -1
        if freed >= 0:
            end = self.table.end_or_now(freed)
            self._step(REPLICA_QUEUE, end, ran.chosen, row, BY_ACTOR, freed, is_assumed=True)
            return freed, end
        self._step(REPLICA_QUEUE, ran.made, ran.chosen, row, BY_SUBMISSION, ran.call)
        return caller, ran.made

    def _scheduled(self, start: int, end: int, row: int, edge: str, source: int, *, is_assumed: bool = False) -> None:
        """Add the time in which an execution waited only for Ray, and perhaps for its worker process to start."""
        start = max(start, self.start)
        # What an actor does before its first recorded call is unknown if its creation is not recorded.
        is_assumed = is_assumed or (self._is_method(row) and self._created(row, self.table.start[row]) is None)
        there = self._there_since(row)
        if there is not None and there < end:
            begun = max(start, there)
            by, what = (edge, source) if begun == start else (BY_CODE, row)
            # Calls that make no spans may have kept the actor.
            self._step(DELIVERY, begun, end, row, by, what, is_assumed=is_assumed or self.calls.is_selection)
            end = begun
        worker = self._workers.of_resource[self.table.resource[row]]
        if worker is not None and start < worker.ready and worker.created < end:
            # Until its worker was ready for work. While as many others as can start did, it had to wait for its turn.
            own = (max(worker.created, start), min(worker.ready, end))
            for begun, ready in reversed([*self._workers.full(worker.node, start, own[0]), own]):
                self._step(SCHEDULING, ready, end, row, BY_CODE, row, is_assumed=is_assumed)
                is_first = begun == start
                by, what = (edge, source) if is_first else (BY_CODE, row)
                self._step(STARTING, begun, ready, row, by, what, is_assumed=is_assumed)
                end = begun
        self._step(SCHEDULING, start, end, row, edge, source, is_assumed=is_assumed)

    def _step(
        self, kind: str, start: int, end: int, row: int, edge: str, source: int, *, is_assumed: bool = False
    ) -> None:
        self.assumed = self.assumed or is_assumed
        # The submission that a call carries may be before the first span that was read.
        start = max(start, self.start)
        if end > start:
            self.steps.append(Step(kind, start, end, row, edge, source, is_assumed))

    def _run(self, start: int, end: int, frame: int, edge: str, source: int, *, is_assumed: bool = False) -> None:
        """Add the time in which the code of a frame ran, as far as that is known.

        While Ray Train runs, the code that has started it waits.
        """
        if end <= start:
            return
        for started, ended in reversed(self.calls.training_of(frame)):
            begin, until = max(started, start), min(ended, end)
            if begin < until:
                self._run(until, end, frame, BY_CODE, -1)
                by, what = (edge, source) if begin == start else (BY_CODE, -1)
                self._step(TRAINING, begin, until, frame, by, what, is_assumed=is_assumed)
                end = begin
        if end <= start:
            return
        if (seen := self.calls.last_seen(frame)) < end:
            # No span of a driver is known: it may have ended with the last of its calls, or wait for the others.
            self.assumed = True
            self._step(UNEXPLAINED, max(start, seen), end, frame, BY_CODE if start < seen else edge, source)
            end = seen
            if end <= start:
                return
        self.assumed = self.assumed or frame in self.calls.with_futures or frame in self.calls.with_threads
        if end - start >= LEAST and self._may_wait_for_others(frame):
            self.assumed = True
        if not self.calls.records_waits(frame):
            self.assumed = True
            for begin, until in self._silent(frame, start, end)[::-1]:
                self._step(RUN, until, end, frame, edge, source, is_assumed=is_assumed)
                self._step(UNEXPLAINED, begin, until, frame, BY_CODE, -1)
                end = begin
        self._step(RUN, start, end, frame, edge, source, is_assumed=is_assumed)

    def _may_wait_for_others(self, frame: int) -> bool:
        """Whether other calls of its actor ran while a method did: it may have waited for one of them."""
        table, actor = self.table, self._actor_of(frame)
        if not actor:
            return False
        if not self._of_actors:
            for (key, _), lane in self._index().items():
                self._of_actors.setdefault(key, []).append(lane)
        start, end, others = table.start[frame], table.end_or_now(frame), -1
        for lane in self._of_actors.get(actor, ()):
            begun = bisect_left(lane.starts, end)
            others += begun - bisect_right(lane.ends, start)
            inside = lane.by_start[bisect_right(lane.starts, start) : begun][:_MOST_THREADS]
            if any(table.end_or_now(row) < end + _RELEASE for row in inside):
                self._released.add(frame)
        return others > 0

    def _actor_of(self, frame: int) -> str:
        """The actor whose methods may run at the same time, of an execution of one of them; else empty."""
        if frame >= len(self.table) or self.calls.role[frame] != EXECUTION:
            return ""
        place = self.calls.place(frame)
        return place.actor if place.slots > 1 or place.group else ""

    def _silent(self, frame: int, start: int, end: int) -> list[tuple[int, int]]:
        """The long times of a driver without any span, in which it may have waited."""
        most = self.wall * _SILENCE
        if end - start <= most or frame not in self.calls.drivers():
            return []
        if frame not in self._spoken:
            table, of = self.table, self.calls.resource_of(frame)
            self._spoken[frame] = [
                (table.start[row], table.end_or_now(row))
                for row, its in enumerate(self.calls.frame)
                if its == frame and row != frame and table.resource[row] == of
            ]
        found, done = [], start
        for begin, until in [*self._spoken[frame], (end, end)]:
            if min(begin, end) - done > most:
                found.append((done, min(begin, end)))
            done = max(done, until)
        return found

    # --- what a frame waited for ----------------------------------------------------------------------------------

    def _wait_before(self, frame: int, time: int) -> int | None:
        """What a frame waited for last before ``time``. A wait that is still open then is in another thread.

        Where waits overlap, as those of threads and coroutines do, it is the last to end of those that ended with what
        they waited for. Without any, it is the last to begin: threads of libraries wait all the time.
        """
        table, waits = self.table, self._waits_of(frame)
        last = bisect_left(waits.starts, time) - 1
        begun = waits.by_start[max(0, last - _MOST_THREADS + 1) : last + 1]
        found = next((row for row in reversed(begun) if table.end_or_now(row) <= time), None)
        until = table.end_or_now(found) if found is not None else 0
        last = bisect_right(waits.ends, time) - 1
        for row in reversed(waits.by_end[max(0, last - _MOST_THREADS + 1) : last + 1]):
            if table.end_or_now(row) <= until:
                break
            if table.start[row] < time and self._has_ended_with(row):
                return row
        return found

    def _has_ended_with(self, wait: int) -> bool:
        """Whether it is recorded what ended a wait."""
        clamped = self.clamped
        found = self._binding(wait, self.table.end_or_now(wait))
        self.clamped = clamped
        return found is not None and found.edge != BY_CODE and found.time > self.table.start[wait]

    def _waits_of(self, frame: int) -> _Waits:
        if frame not in self._waits:
            rows = self.calls.own_waits(frame)
            ended = sorted((self.table.end_or_now(row), row) for row in rows)
            starts = [self.table.start[row] for row in rows]
            self._waits[frame] = _Waits(rows, starts, [row for _, row in ended], [end for end, _ in ended])
            # Of threads and coroutines it is not recorded which of them others waited for.
            at_once = any(self.table.end_or_now(row) > start for row, start in zip(rows, starts[1:], strict=False))
            self._at_once[frame] = at_once or any(self.table.name_of(row) == names.AWAIT for row in rows)
        return self._waits[frame]

    def _through_dataset(self, frame: int, time: int, wait: int | None, begun: int) -> tuple[int, int] | None:
        """Go back through the last wait for Ray Data, unless ``wait`` was later, to ``begun`` at the earliest. Returns
        where the path continues.

        What Ray Data waited for is assumed to be the call for a block that ended last.
        """
        waits = self._dataset_waits.get(frame, ())
        place = bisect_left(waits, (time,)) - 1
        waited = self.table.end_or_now(wait) if wait is not None else 0
        if place < 0 or max(waited, begun) >= min(waits[place][1], time):
            return None
        begin, end = max(waits[place][0], waited, begun), min(waits[place][1], time)
        self._run(end, time, frame, BY_CODE, -1)
        made = self._last_made(frame, end)
        if made is not None and made[1] > begin:
            self._step(DATASET, made[1], end, frame, BY_GET, made[0], is_assumed=True)
            return made
        self._step(DATASET, begin, end, frame, BY_CODE, -1)
        return frame, begin

    def _through_request(
        self, frame: int, time: int, begun: int, wait: int | None, made: tuple[int, int] | None
    ) -> int | None:
        """Go back through the last request to a proxy that was open before ``time``, as far as to ``begun`` and to the
        ends of ``wait`` and of the call that was waited for. Returns when the path continues in the driver.
        """
        request = self.served.requested(time) if frame in self._drivers and not self._in_request else None
        if request is None:
            return None
        end = self.table.end_or_now(request)
        waited = max(begun, made[1] if made else begun, begun if wait is None else self.table.end_or_now(wait))
        since = max(self.table.start[request], waited)
        if since >= min(end, time):
            return None
        self._run(end, time, frame, BY_CODE, -1)
        self.assumed = self._in_request = self._has_requests = True
        before, start, seen = len(self.steps), self.start, self._seen
        self.start, self._seen = since, {}
        self._walk(request, end, since)
        self.start, self._seen, self._in_request = start, seen, False
        # It may have been open still: only what it had done by then counts.
        done = [step._replace(end=min(step.end, time)) for step in self.steps[before:] if step.start < time]
        self.steps[before:] = done
        return since

    def _assumed_wait(self, frame: int, time: int, wait: int | None) -> tuple[int, int] | None:
        """The call that a frame is assumed to have waited for, if that is not recorded, and the end of that call."""
        begun, until, of_datasets = 0, time, False
        if self.calls.records_waits(frame) and not self._waits_unseen(frame) and time <= self.calls.last_seen(frame):
            # What a library of Ray waits for is not recorded anywhere.
            library = self.calls.library_before(frame, time)
            if library is None:
                return None
            (begun, until), of_datasets = library, True
        # A caller waits for the tasks of a dataset only where `_through_dataset` finds that it does.
        found = self._last_made(frame, until, of_datasets=of_datasets)
        if found is None or found[1] < begun or (wait is not None and found[1] <= self.table.end_or_now(wait)):
            return None
        return found if found[1] < time or self.calls.frame_end(frame) == time else None

    def _waits_unseen(self, frame: int) -> bool:
        """Whether the frame may wait without a span, as coroutines do with ``await``, and for futures and requests."""
        unseen = frame in self.calls.with_futures or self.served.waits_unseen(frame)
        return unseen or (frame < len(self.table) and self.calls.place(frame).slots > 1)

    def _last_made(self, frame: int, time: int, *, of_datasets: bool = True) -> tuple[int, int] | None:
        """The last of a frame's calls to end by ``time``, with its end; with or without those of datasets."""
        if (frame, of_datasets) not in self._made:
            calls, table = self.calls, self.table
            rows = [
                calls.execution[call]
                for row in calls.members(frame)
                if calls.role[row] == SUBMISSION
                and calls.execution[call := calls.call_of[row]] >= 0
                and (of_datasets or call not in self._of_datasets)
            ]
            rows += [*calls.loops_of(frame), *self.served.made_in(frame)]
            ended = sorted((table.end_or_now(row), row) for row in rows)
            self._made[frame, of_datasets] = [row for _, row in ended], [end for end, _ in ended]
        rows, ends = self._made[frame, of_datasets]
        place = bisect_right(ends, time) - 1
        return (rows[place], ends[place]) if place >= 0 else None

    def _binding(self, wait: int, end: int) -> _Before | None:
        """What a wait that lasted until ``end`` waited for last; None if unknown.

        The edge ``BY_CODE`` means that it is only assumed.
        """
        calls, table = self.calls, self.table
        step = self._step_of(wait)
        if step >= 0:
            loop, moment = self.arrivals[step]
            return _Before(min(moment, end), BY_RANK, loop)
        last: _Before | None = None
        failed = table.failed(wait) or table.state[wait] != ENDED
        for object_id, call in calls.made_by(wait, table.ready if calls.role[wait] == WAIT else None):
            found = self._made_at(object_id, call, end, failed=failed, good=not failed and calls.role[wait] == GET)
            if found is not None and found.edge == BY_ITEM and table.name_of(wait) == "ray.get":
                # There is no reference to an item before it is there.
                found = _Before(table.start[wait], BY_ITEM, found.source)
            if found is not None and (last is None or found.time > last.time):
                last = found
        for row in self.served.awaited(wait):
            # The first that a replica tells of a request is that it accepts it.
            is_part = table.end_or_now(row) > end
            time = min(table.end_or_now(row), end)
            if table.start[row] < end and not (is_part and self._gave_up(wait)) and (last is None or time > last.time):
                last = _Before(time, BY_ITEM if is_part else BY_GET, row)
        if last is None and table.failed(wait) and not self._gave_up(wait):
            last = self._died(wait, end)
        # A library waits for internal calls of its own, which end with what it has started.
        library = calls.library_before(calls.frame[wait], end) if last is None else None
        # A proxy and a replica wait for calls of deployments in ways that do not always name these.
        unseen = (library is not None and library[1] == end) or (last is None and self._in_request)
        if calls.role[wait] == GET and (calls.is_cut(wait) or unseen):
            made = self._last_made(calls.frame[wait], end)
            if made is not None and (last is None or made[1] > last.time):
                return _Before(made[1], BY_CODE, made[0])
        return last

    def _is_known(self, wait: int) -> bool:
        """Whether it is recorded of all that a wait got when that was there: if not, the rest may have been last."""
        calls, role = self.calls, self.calls.role[wait]
        got = calls.made_by(wait, self.table.ready if role == WAIT else None)
        if self.served.awaited(wait):
            return True
        return all(calls.is_known(*each) and (self.table.failed(wait) or not self._ends_badly(each[1])) for each in got)

    def _ends_badly(self, call: int) -> bool:
        """Whether the last attempt of a call that is recorded failed: if its result was good, there was another one."""
        return call >= 0 and (row := self.calls.execution[call]) >= 0 and self._raised(row)

    def _raised(self, row: int) -> bool:
        """Whether an execution ended with an error, or with its process. A program can set the status by itself."""
        return self.table.state[row] == LOST or self.table.attribute(row, names.ERROR_TYPE) is not None

    def _died(self, wait: int, end: int) -> _Before | None:
        """The execution whose death ended a wait, if its own end is only known to be later: when that was noticed."""
        calls, table = self.calls, self.table
        for _, call in calls.made_by(wait):
            for row in calls.attempts(call)[-1:] if call >= 0 else ():
                if table.state[row] == LOST and table.start[row] < end < table.end_or_now(row):
                    self.clamped += table.end_or_now(row) - end
                    return _Before(end, BY_GET, row)
        return None

    def _step_of(self, wait: int) -> int:
        """The step of Ray Train in which a wait is for other ranks; -1 for none."""
        above = self.table.parent[wait] if self.arrivals else -1
        while above >= 0 and above not in self.arrivals and above != self.calls.frame[wait]:
            above = self.table.parent[above]
        return above if above in self.arrivals else -1

    def _gave_up(self, wait: int) -> bool:
        """Whether a wait timed out or was cancelled before its objects were available."""
        calls, table = self.calls, self.table
        if calls.role[wait] != WAIT:
            error = table.attribute(wait, names.ERROR_TYPE)
            is_late = isinstance(error, str) and error.endswith("GetTimeoutError")
            return is_late or table.attribute(wait, names.RAY_CANCELLED) is True
        if table.failed(wait) or table.state[wait] != ENDED:
            return False
        wanted, found = calls.wanted(wait), calls.ready_count(wait)
        return found < wanted or not found

    def _late(self, wait: int, until: int) -> _Before | None:
        """What a wait that gave up had waited for, if that was made since the wait began and before ``until``.

        It may have been made before the wait gave up: who waits learns of it a moment later.
        """
        calls, begun = self.calls, self.table.start[wait]
        if calls.role[wait] == WAIT:
            ready = set(self.table.ready.get(wait, ()))
            missing = calls.wanted(wait) - calls.ready_count(wait)
        else:
            ready, missing = set(), 0
        pending = [(each, call) for each, call in calls.made_by(wait) if each not in ready]
        made = [self._made_at(each, call, until, failed=True) for each, call in pending]
        # It is not known when a generator yielded an item.
        found = [each for each in made if each is not None and each.edge == BY_GET and each.time > begun]
        if not found or (calls.role[wait] != WAIT and None in made):
            return None
        found.sort(key=lambda each: each.time)
        return found[min(missing, len(found)) - 1] if missing else found[-1]

    def _names_any(self, wait: int) -> bool:
        """Whether a wait was for any object, with its id recorded or not, or for a placement group."""
        if self.table.attribute(wait, names.RAY_PLACEMENT_GROUP_ID):
            return True
        return bool(self.calls.objects_of(wait)) or bool(self.table.attribute(wait, names.RAY_OBJECT_COUNT))

    def _made_at(self, object_id: str, call: int, end: int, *, failed: bool, good: bool = False) -> _Before | None:
        """What made an object of ``call`` available and when, if that was before ``end`` or can be assumed to be.

        ``failed``: whether who waited may have got none; ``good``: whether it was the result of a successful call.
        """
        calls, table = self.calls, self.table
        if is_put(object_id):
            row = calls.put_of(object_id)
            return _Before(min(end, table.end_or_now(row)), BY_GET, row) if row >= 0 else None
        attempts = calls.attempts(call) if call >= 0 else ()
        if not attempts:
            return self._held_up(call, end) if call >= 0 and failed else None
        row = attempts[-1]
        for attempt in attempts[-_MOST_ATTEMPTS:-1]:
            # The wait may have ended before a later attempt, as when an actor was restarted.
            if table.end_or_now(attempt) <= end < table.start[row] and (failed or not table.failed(attempt)):
                row = attempt
        made = table.end_or_now(row)
        if good and self._raised(row):
            return None  # there was another attempt, which is not recorded
        if made <= end:
            return _Before(made, BY_GET, row)
        if is_item(object_id) or (calls.is_generator(row) and table.start[row] < end):
            return _Before(end, BY_ITEM, row)
        if failed or table.start[row] >= end:
            return None  # the wait gave up before
        self.clamped += made - end
        return _Before(end, BY_GET, row)

    def _held_up(self, call: int, end: int) -> _Before | None:
        """What keeps the actor of a call busy, if the call has not started."""
        submission = self.calls.submission[call]
        actor = self.calls.place(submission).actor if submission >= 0 else ""
        lane = self._index().get((actor, "")) if actor else None
        row = lane.holder(end) if lane is not None else -1
        return _Before(end, BY_ACTOR, row) if row >= 0 else None

    # --- what an execution waited for -----------------------------------------------------------------------------

    def _ready(self, row: int, begun: int) -> _Before | None:
        """The last precondition of an execution apart from a free slot; None if none is known."""
        calls, table = self.calls, self.table
        call = calls.call_of[row]
        attempts = calls.attempts(call)
        place = bisect_left(attempts, row)
        if place and self._number_of(row) == self._number_of(attempts[place - 1]) + 1:
            failed = attempts[place - 1]
            return _Before(self._clamp(table.end_or_now(failed), begun), BY_RETRY, failed)
        candidates: list[_Before] = []
        submission = calls.submission[call]
        submitted = calls.submitted_ns(call)
        if (started := calls.started_loop(row)) is not None:
            candidates.append(_Before(self._clamp(table.end_or_now(started), begun), BY_CODE, started))
        if submission >= 0:
            candidates.append(_Before(min(submitted, begun), BY_SUBMISSION, submission))
        elif submitted:
            candidates.append(_Before(min(submitted, begun), BY_SUBMISSION, self._caller(row)))
        for object_id, its in calls.made_by(submission) if submission >= 0 else ():
            found = self._made_at(object_id, its, begun, failed=False, good=True)
            if found is not None and found.source != row:
                candidates.append(_Before(found.time, BY_ARGUMENT, found.source))
        if (created := self._created(row, begun)) is not None:
            candidates.append(created)
        return max(candidates, key=lambda before: before.time, default=None)

    def _number_of(self, row: int) -> int:
        """How often the call of an execution had been tried before."""
        number = self.table.attribute(row, names.RAY_ATTEMPT)
        return number if isinstance(number, int) else bisect_left(self.calls.attempts(self.calls.call_of[row]), row)

    def _knows_needs(self, row: int) -> bool:
        """Whether all is recorded that an execution may have waited for: arguments, its actor, and earlier attempts."""
        calls = self.calls
        submission = calls.submission[calls.call_of[row]]
        return (
            submission >= 0
            and not self._number_of(row)
            and not calls.is_cut(submission)
            and all(calls.is_known(*each) and not self._ends_badly(each[1]) for each in calls.made_by(submission))
            and (not self._is_method(row) or self._there_since(row) is not None)
        )

    def _is_method(self, row: int) -> bool:
        return bool(self.calls.place(row).actor) and not is_creation(self.calls.function_of(row))

    def _caller(self, row: int) -> int:
        """The execution that submitted a call without a recorded submission; -1 if unknown."""
        call = self.calls.call_of_caller(row)
        return self.calls.execution[call] if call >= 0 else -1

    def _created(self, row: int, begun: int) -> _Before | None:
        """The creation of the actor before this method ran; None if there is none."""
        place = self.calls.place(row)
        if not place.actor:
            return None
        self._index()
        rows = self._creations.get(place.actor, ())
        before = bisect_left(rows, row) - 1
        if before < 0 or is_creation(self.calls.function_of(row)):
            return None
        return _Before(self._clamp(self.table.end_or_now(rows[before]), begun), BY_CREATION, rows[before])

    def _there_since(self, row: int) -> int | None:
        """When the actor of a method is known to have been there: then its calls wait for no resources and no worker.

        None for other executions, and for the first method of an actor whose creation is not recorded.
        """
        if not self._is_method(row):
            return None
        if (created := self._created(row, self.table.start[row])) is not None:
            return created.time
        first = self._first_method.get(self.calls.place(row).actor, row)
        return self.table.start[first] if first != row else None

    def _freed(self, row: int, begun: int, ready: int) -> _Freed | None:
        lane = self._lane(row)
        return None if lane is None else lane.freed(row, begun, ready)

    def _lane(self, row: int) -> _Lane | None:
        return self._index().get(_lane_of(self.calls.place(row)))

    def _index(self) -> dict[tuple[str, str], _Lane]:
        if self._lanes is not None:
            return self._lanes
        calls, table = self.calls, self.table
        ran = np.nonzero(as_numpy(calls.role) == EXECUTION)[0]
        site = as_numpy(table.site)[ran]
        has_actor = np.array([bool(place.actor) for place in calls.places], bool)[site]
        creates = np.array([is_creation(name) for name in calls.functions], bool)
        creations = has_actor & creates[as_numpy(calls.function)[as_numpy(calls.call_of)[ran]]]
        for row in ran[creations].tolist():
            self._creations.setdefault(calls.place(row).actor, []).append(row)
        number: dict[tuple[str, str], int] = {}
        of_site = [number.setdefault(key, len(number)) if (key := _lane_of(each))[0] else -1 for each in calls.places]
        lane = np.array(of_site, np.int64)[site]
        is_member = ~creations & (lane >= 0)
        ran, site, lane = ran[is_member], site[is_member], lane[is_member]
        # Rows are by start, so those of a lane stay by start.
        order = by_group(lane, len(number))
        rows, lane = ran[order], lane[order]
        starts, ends = as_numpy(table.start)[rows], as_numpy(table.ends)[rows]
        by_end = np.lexsort((ends, lane))
        own = [memoryview(as_array(each, "q")) for each in (rows, starts, rows[by_end], ends[by_end])]
        cuts = np.searchsorted(lane, np.arange(len(number) + 1)).tolist()
        self._lanes = {}
        for key, (begin, end) in zip(number, pairwise(cuts), strict=True):
            if begin < end:
                here = slice(begin, end)
                slots, is_known = calls.slots_of(rows[here])
                loop = Loop(table, rows[here].tolist(), slots) if is_loop(calls.place(int(rows[begin]))) else None
                by_start, started, ended, ends_here = (each[here] for each in own)
                self._lanes[key] = _Lane(by_start, started, ended, ends_here, slots, loop, is_known=is_known)
                first = int(rows[begin])
                self._first_method[key[0]] = min(first, self._first_method.get(key[0], first))
        return self._lanes

    def _frame_of(self, row: int) -> int:
        """The frame that a span is part of; -1 for no span.

        A call that makes no span passes on that of its caller, so what it does seems to be its caller's.
        """
        if row < 0:
            return -1
        frame = self.calls.frame[row]
        self.assumed = self.assumed or self.calls.resource_of(frame) != self.table.resource[row]
        return frame

    def _clamp(self, cause: int, effect: int) -> int:
        self.clamped += max(0, cause - effect)
        return min(cause, effect)

    # --- totals ---------------------------------------------------------------------------------------------------

    def _add_up(self, path: Path) -> None:
        first: dict[str, int] = {}
        for step in path.steps:
            length = step.end - step.start
            path.executions[step.source if step.kind == GET_TIME else step.row] += length
            if step.kind in (SCHEDULING, STARTING):
                function = self.calls.function_of(step.row)
                if first.setdefault(function, step.row) == step.row:
                    path.first_scheduling[function] = path.first_scheduling.get(function, 0) + length
            if step.kind == RUN:
                found = submissions(self.calls, step)
                for row, took in found:
                    path.submitting[self.calls.function_of(row)] += took
                submitting = sum(took for _, took in found)
                path.kinds[SUBMIT] += submitting
                path.kinds[RUN] += length - submitting
                path.functions[self.calls.frame_name(step.row)] += length
            else:
                path.kinds[step.kind] += length


def submissions(calls: Calls, step: Step) -> list[tuple[int, int]]:
    """The submissions in a step of running code, with the time that each took, without counting any time twice."""
    members = calls.members(step.row)
    table = calls.table
    found, done = [], step.start
    for place in range(bisect_left(members, step.start, key=table.start.__getitem__), len(members)):
        row = members[place]
        begin, end = max(table.start[row], done), min(table.end_or_now(row), step.end)
        if begin >= step.end:
            break
        if calls.role[row] == SUBMISSION and end > begin:
            found.append((row, end - begin))
            done = end
    return found


def _lane_of(place: Place) -> tuple[str, str]:
    """Identifies the executions that share slots with one in this place; empty strings if that is unknown."""
    return (place.actor, place.group) if place.actor else (place.worker, "")


def _root(calls: Calls) -> tuple[int, int, int]:
    """The frame whose end is the end of the run, and the start and end of the path."""
    table = calls.table
    if not len(table):
        return -1, 0, 0
    root = max(calls.drivers() or calls.frames(), key=calls.frame_end)
    has_span = root < len(table) and calls.role[root] == DRIVER
    start = calls.frame_start(root) if has_span else min(map(calls.frame_start, calls.frames()))
    return root, start, calls.frame_end(root)
