"""The critical path of a run: what its end waited for, step by step back to its beginning.

A parent in Ray does not wait for its children: ``.remote()`` returns at once. So the path does not follow nesting. It
goes back from the end of the driver through whatever each moment waited for: the code of a function ran (``RUN``); a
``ray.get`` waited for a task, so the path goes to that task's end; an execution began once it was submitted, its
arguments and its actor were there, and a slot of its actor or a worker was free, whichever came last.

Each step says what the time was spent on and which edge leads to what is before it. What no edge explains is
``UNEXPLAINED``. Where waiting was not recorded (no spans ``ray.get`` and ``ray.wait``) a caller is assumed to have
waited for the last of its calls that ended before each moment; those edges are marked. A driver of which waiting was
not recorded is not taken to have run its own code for a long time in which nothing else was recorded of it either.

A wait that gave up waited all the same. Where it polls, so that it is soon followed by one that finds what the first
was for, the path goes through what they waited for.

The same walk in a second form answers another question. :func:`critical_path` goes through queues: while a call waited
for its actor, the path is in the call that the actor was busy with, since that is what would have to be faster.
:func:`time_split` stays with the call that waited, so that the time spent in queues can be seen.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.calls import EXECUTION, GET, SUBMISSION, WAIT, WAITS, Calls, is_item, is_put
from ray_tracing_hooks._insight.model.event_loops import Loop, is_loop
from ray_tracing_hooks._insight.model.table import ENDED
from ray_tracing_hooks._insight.model.worker_starts import Workers

RUN = "run"
"""Code ran: of the function, method or driver that the step names. What it did in that time is not known."""
SUBMIT = "submit"
"""In ``.remote()``: only in totals; it is a part of steps of ``RUN``."""
GET_TIME = "get"
"""The object was there, or there was none to wait for: it was brought here and deserialized."""
ACTOR_QUEUE = "actor queue"
"""The actor was busy with other calls."""
WORKER_QUEUE = "worker queue"
"""The worker that ran it was busy with other calls."""
STARTING = "worker start"
"""All was there, and the process of its worker was being started, or those before it: until it could be given work."""
SCHEDULING = "scheduling"
"""All was there: the time in which resources are not free, and that Ray takes for a lease and to fetch arguments. It
holds the start of a worker too where that is not recorded."""
WAITING = "waiting"
"""In ``ray.get``, ``ray.wait`` or ``await`` until it gave up, for what was not there."""
RETRYING = "retrying"
"""From the end of a failed attempt to the beginning of the next one."""
UNEXPLAINED = "unexplained"

KINDS = (RUN, SUBMIT, GET_TIME, ACTOR_QUEUE, WORKER_QUEUE, STARTING, SCHEDULING, WAITING, RETRYING, UNEXPLAINED)

MEANINGS = {
    RUN: "code that ran, of the driver and of calls",
    SUBMIT: "submitting calls, in .remote()",
    GET_TIME: "fetching results that were there, in ray.get",
    ACTOR_QUEUE: "waiting for an actor that was busy",
    WORKER_QUEUE: "waiting for a worker that was busy",
    STARTING: "starting the processes of workers",
    SCHEDULING: "scheduling: resources, leases, workers, fetching arguments",
    WAITING: "waiting in vain: ray.wait and ray.get until their timeout",
    RETRYING: "between a failed attempt and the next one",
    UNEXPLAINED: "unexplained: no span says what it was",
}
"""What is said of each to people."""

BY_SUBMISSION, BY_ARGUMENT, BY_CREATION, BY_ACTOR, BY_WORKER = "submission", "argument", "creation", "actor", "worker"
BY_RETRY, BY_GET, BY_ITEM, BY_CODE, BY_NOTHING = "retry", "get", "generator item", "code", "nothing"
"""Edges: why a step could not begin before what stands before it. ``code``: one thing after the other in one place;
``nothing``: no reason is known."""


class Step(NamedTuple):
    """A stretch of the path, in nanoseconds since the epoch."""

    kind: str
    start: int
    end: int
    row: int
    """The span that it is a part of: the execution or driver that ran, the wait, the execution that had to wait. As a
    frame of :class:`~ray_tracing_hooks._insight.model.calls.Calls`, it may be one that no row describes; -1 for
    none."""
    edge: str
    """What made it wait until ``start``."""
    source: int
    """The row of what it waited for; -1 where that is no span."""
    is_assumed: bool = False
    """Nothing recorded says that it waited for that."""


@dataclass
class Path:
    """The path through one run. Times are in nanoseconds."""

    start: int
    end: int
    root: int
    """The frame that the path leads to the end of: the driver, or what ended last."""
    steps: list[Step]
    """By time, without gaps and overlaps: their lengths add up to the wall time."""
    is_exact: bool
    """Whether no edge of it is assumed, and waiting was recorded wherever its code ran."""
    is_estimated: bool = False
    """Whether it goes through spans that had not ended, or of which the end is not known."""
    circle: list[int] = field(default_factory=list)
    """The frames that wait for each other in a circle, if there is one: each for the next, the last for the first."""
    clamped: int = 0
    """How much later than their effects causes ended, in total: clocks that differ, or ends that are estimated."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Time by what it was spent on. Sums to the wall time."""
    functions: Counter[str] = field(default_factory=Counter)
    """Time that the code of each function ran on the path, submitting included."""
    submitting: Counter[str] = field(default_factory=Counter)
    """Time on the path that the submission of calls of each function took."""
    executions: Counter[int] = field(default_factory=Counter)
    """For each execution, by row, the time on the path in which it ran, was waited for by itself, or its result was."""
    first_scheduling: dict[str, int] = field(default_factory=dict)
    """Of each function how long the first of its calls on the path waited for Ray: that is when workers start."""

    @property
    def wall(self) -> int:
        return self.end - self.start

    @property
    def coverage(self) -> float:
        """The explained share of the wall time, from 0 to 1."""
        return 1 - self.kinds[UNEXPLAINED] / self.wall if self.wall else 1.0


def critical_path(calls: Calls) -> Path:
    """The path that goes through queues: what would have to be faster for the run to end earlier."""
    return _Walk(calls, through_queues=True).path()


def time_split(calls: Calls) -> Path:
    """The path that stays with calls that wait in queues: what the wall time was spent on."""
    return _Walk(calls, through_queues=False).path()


_SILENCE = 0.1
"""A stretch of a driver without any span explains itself up to this share of the run: its own code, between calls."""

_MOST_THREADS = 64
"""So many waits of one frame are taken to go on at once, and no more."""


_MOST_ATTEMPTS = 64
"""So many attempts before the last are looked at for the one that a wait ended with."""


class _Before(NamedTuple):
    """What an execution had to wait for, last."""

    time: int
    edge: str
    source: int


class _Lane:
    """Executions that share slots: of one actor and concurrency group, or of one worker."""

    def __init__(
        self, rows: list[int], starts: list[int], ends: list[int], slots: int, loop: Loop | None = None
    ) -> None:
        """``loop`` is the event loop that they share, if they do."""
        self.slots = slots
        self.loop = loop
        self.starts = array("q", sorted(starts))
        order = sorted(range(len(rows)), key=ends.__getitem__)
        self.ends = array("q", [ends[place] for place in order])
        self.rows = array("q", [rows[place] for place in order])

    def freed(self, row: int, start: int, ready: int) -> tuple[int, int] | None:
        """The execution that made room for one that began at ``start``, and when: as it ended, or let go of the loop.

        ``ready`` is when that one could have begun.
        """
        if self.loop is not None and (stall := next(self.loop.waited(ready, start), None)) is not None:
            return stall.row, stall.end
        place = bisect_right(self.ends, start) - 1
        while place >= 0 and self.rows[place] == row:
            place -= 1
        if place < 0:
            return None
        end = self.ends[place]
        running = bisect_left(self.starts, end) - bisect_left(self.ends, end)
        return (self.rows[place], end) if running >= self.slots else None


class _Walk:
    def __init__(self, calls: Calls, *, through_queues: bool) -> None:
        self.calls, self.table = calls, calls.table
        self.through_queues = through_queues
        self.steps: list[Step] = []
        self.clamped = 0
        self.assumed = False
        self.wall = 0
        self.circle: list[int] = []
        self._seen: dict[tuple[int, int], int] = {}
        """Where the walk has been, with how many places it had been to before."""
        self._waits: dict[int, tuple[list[int], list[int]]] = {}
        self._made: dict[int, tuple[list[int], list[int]]] = {}
        self._spoken: dict[int, list[tuple[int, int]]] = {}
        """Of drivers the times of their own spans, by start."""
        self._lanes: dict[tuple[str, str], _Lane] | None = None
        self._creations: dict[str, list[int]] = {}
        self._workers = Workers(calls.table)

    # --- the walk -------------------------------------------------------------------------------------------------

    def path(self) -> Path:
        calls = self.calls
        root, start, end = _root(calls)
        self.wall = end - start
        frame, time = root, end
        while time > start and frame >= 0 and (frame, time) not in self._seen:
            self._seen[frame, time] = len(self._seen)
            frame, time = self._back(frame, time, start)
        if time > start:
            self._step(UNEXPLAINED, start, time, -1, BY_NOTHING, -1)
        steps = self.steps[::-1]
        path = Path(start, end, root, steps, is_exact=not self.assumed, circle=self.circle)
        path.clamped = self.clamped
        rows = {step.row for step in steps if 0 <= step.row < len(self.table)}
        path.is_estimated = any(self.table.state[row] != ENDED for row in rows)
        self._add_up(path)
        return path

    def _back(self, frame: int, time: int, start: int) -> tuple[int, int]:
        """Go back in a frame from a time to where the path leaves it, and give where it goes on."""
        begun = max(self.calls.frame_start(frame), start)
        while time > begun:
            wait = self._wait_before(frame, time)
            made = self._assumed_wait(frame, time, wait)
            if made is not None:
                row, end = made
                self._run(end, time, frame, BY_GET, row, is_assumed=True)
                return row, end
            if wait is None or self.table.start[wait] < begun:
                break
            wait_start, wait_end = self.table.start[wait], min(time, self.table.end_or_now(wait))
            gave_up = self._gave_up(wait)
            if gave_up and wait_end - wait_start >= time - wait_end:
                late = self._late(wait, wait_end, time)
                if late is not None:
                    self._run(late.time, time, frame, late.edge, late.source)
                    return calls_frame(self.calls, late.source), late.time
            self._run(wait_end, time, frame, BY_CODE, wait)
            for_what = self._binding(wait, wait_end)
            if for_what is not None and for_what.time > wait_start and not self._is_circle(for_what):
                assumed = for_what.edge == BY_CODE
                edge = BY_GET if assumed else for_what.edge
                self._step(
                    WAITING if gave_up else GET_TIME,
                    for_what.time,
                    wait_end,
                    wait,
                    edge,
                    for_what.source,
                    is_assumed=assumed,
                )
                return calls_frame(self.calls, for_what.source), for_what.time
            was_there = for_what is not None and for_what.time <= wait_start
            kind = GET_TIME if was_there or not self._names_any(wait) else UNEXPLAINED
            self._step(WAITING if gave_up else kind, wait_start, wait_end, wait, BY_NOTHING, -1)
            time = wait_start
        time = max(time, begun)
        if frame >= len(self.table) or self.calls.role[frame] != EXECUTION:
            self._run(begun, time, frame, BY_NOTHING, -1)
            return -1, begun
        before = self._ready(frame, begun)
        self._run(begun, time, frame, BY_NOTHING if before is None else BY_CODE, -1 if before is None else frame)
        return (-1, begun) if before is None else self._enter(frame, begun, before)

    def _is_circle(self, before: _Before) -> bool:
        """Whether the walk would come to where it has been, since calls wait for each other."""
        place = self._seen.get((calls_frame(self.calls, before.source), before.time))
        if place is None:
            return False
        self.circle = self.circle or [frame for frame, _ in list(self._seen)[place:]]
        return True

    def _enter(self, row: int, begun: int, before: _Before) -> tuple[int, int]:
        """From the beginning of an execution to what it waited for."""
        freed = self._freed(row, begun, before.time) if before.edge != BY_RETRY else None
        if freed is not None and freed[1] > before.time:
            by = BY_ACTOR if self.calls.place(row).actor else BY_WORKER
            # Who keeps an event loop is not recorded.
            assumed = is_loop(self.calls.place(row))
            self._scheduled(freed[1], begun, row, by, freed[0], is_assumed=assumed)
            if self.through_queues:
                return freed
            kind = ACTOR_QUEUE if by == BY_ACTOR else WORKER_QUEUE
            self._step(kind, before.time, freed[1], row, before.edge, before.source, is_assumed=assumed)
        elif before.edge == BY_RETRY:
            self._step(RETRYING, before.time, begun, row, before.edge, before.source)
        else:
            self._scheduled(before.time, begun, row, before.edge, before.source)
        return calls_frame(self.calls, before.source), before.time

    def _scheduled(self, start: int, end: int, row: int, edge: str, source: int, *, is_assumed: bool = False) -> None:
        """An execution had to wait for nothing but Ray, and maybe for the process of its worker to start."""
        worker = self._workers.of_resource[self.table.resource[row]]
        if worker is not None and start < worker.ready and worker.created < end:
            # Until its worker could be given work. While others of the node were starting it had not its turn yet: Ray
            # starts no more at once than the node has CPUs.
            for begun, ready in reversed(self._workers.starting(worker.node, start, min(worker.ready, end))):
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
        if end > start:
            self.steps.append(Step(kind, start, end, row, edge, source, is_assumed))

    def _run(self, start: int, end: int, frame: int, edge: str, source: int, *, is_assumed: bool = False) -> None:
        """The code of a frame ran, as far as that is known."""
        if end <= start:
            return
        if not self.calls.records_waits(frame):
            self.assumed = True
            for begin, until in self._silent(frame, start, end)[::-1]:
                self._step(RUN, until, end, frame, edge, source, is_assumed=is_assumed)
                self._step(UNEXPLAINED, begin, until, frame, BY_CODE, -1)
                end = begin
        self._step(RUN, start, end, frame, edge, source, is_assumed=is_assumed)

    def _silent(self, frame: int, start: int, end: int) -> list[tuple[int, int]]:
        """The long stretches of a driver in which it has no span at all: it may as well have waited."""
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
        """The last wait of a frame that ended before a time. One that goes on at that time is in another thread."""
        if frame not in self._waits:
            rows = [row for row in self.calls.members(frame) if self.calls.role[row] in WAITS]
            self._waits[frame] = rows, [self.table.start[row] for row in rows]
        rows, starts = self._waits[frame]
        last = bisect_left(starts, time) - 1
        for place in range(last, max(-1, last - _MOST_THREADS), -1):
            if self.table.end_or_now(rows[place]) <= time:
                return rows[place]
        return None

    def _assumed_wait(self, frame: int, time: int, wait: int | None) -> tuple[int, int] | None:
        """The call that a frame is assumed to have waited for, where that is not recorded, and the end of it."""
        if self.calls.records_waits(frame) and not self._waits_unseen(frame):
            return None
        found = self._last_made(frame, time)
        if found is None or (wait is not None and found[1] <= self.table.end_or_now(wait)):
            return None
        return found if found[1] < time or self.calls.frame_end(frame) == time else None

    def _waits_unseen(self, frame: int) -> bool:
        """Coroutines wait with ``await``, which makes no span."""
        return frame < len(self.table) and self.calls.place(frame).slots > 1

    def _last_made(self, frame: int, time: int) -> tuple[int, int] | None:
        """Of the calls that a frame submitted the one that ended last, not after a time, with its end."""
        if frame not in self._made:
            calls, table = self.calls, self.table
            rows = [
                calls.execution[call]
                for row in calls.members(frame)
                if calls.role[row] == SUBMISSION and calls.execution[call := calls.call_of[row]] >= 0
            ]
            ended = sorted((table.end_or_now(row), row) for row in rows)
            self._made[frame] = [row for _, row in ended], [end for end, _ in ended]
        rows, ends = self._made[frame]
        place = bisect_right(ends, time) - 1
        return (rows[place], ends[place]) if place >= 0 else None

    def _binding(self, wait: int, end: int) -> _Before | None:
        """What a wait that lasted until ``end`` waited for last; None where that is not known.

        The edge ``BY_CODE`` says that it is only assumed.
        """
        calls, table = self.calls, self.table
        last: _Before | None = None
        for object_id, call in calls.made_by(wait, table.ready if calls.role[wait] == WAIT else None):
            found = self._made_at(object_id, call, end, failed=table.failed(wait))
            if found is not None and (last is None or found.time > last.time):
                last = found
        if calls.role[wait] == GET and calls.is_cut(wait):
            made = self._last_made(calls.frame[wait], end)
            if made is not None and (last is None or made[1] > last.time):
                return _Before(made[1], BY_CODE, made[0])
        return last

    def _gave_up(self, wait: int) -> bool:
        """Whether a wait ended by its timeout, or was cancelled, before it had what it was for."""
        calls, table = self.calls, self.table
        if calls.role[wait] != WAIT:
            error = table.attribute(wait, names.ERROR_TYPE)
            is_late = isinstance(error, str) and error.endswith("GetTimeoutError")
            return is_late or table.attribute(wait, names.RAY_CANCELLED) is True
        if table.failed(wait) or table.state[wait] != ENDED:
            return False
        wanted, found = calls.wanted(wait), calls.ready_count(wait)
        return found < wanted or not found

    def _late(self, wait: int, end: int, until: int) -> _Before | None:
        """What a wait that gave up at ``end`` was for, if that was there before ``until``."""
        calls = self.calls
        if calls.role[wait] == WAIT:
            ready = set(self.table.ready.get(wait, ()))
            missing = calls.wanted(wait) - calls.ready_count(wait)
        else:
            ready, missing = set(), 0
        pending = [(each, call) for each, call in calls.made_by(wait) if each not in ready]
        made = [self._made_at(each, call, until, failed=True) for each, call in pending]
        # When a generator had which item is not known.
        found = [each for each in made if each is not None and each.edge == BY_GET and each.time > end]
        if not found or (calls.role[wait] != WAIT and None in made):
            return None
        found.sort(key=lambda each: each.time)
        return found[min(missing, len(found)) - 1] if missing else found[-1]

    def _names_any(self, wait: int) -> bool:
        """Whether a wait was for any object, whose id it tells or not."""
        return bool(self.calls.objects_of(wait)) or bool(self.table.attribute(wait, names.RAY_OBJECT_COUNT))

    def _made_at(self, object_id: str, call: int, end: int, *, failed: bool) -> _Before | None:
        """When an object of a call was there, if that was before ``end`` or can be taken for it."""
        calls, table = self.calls, self.table
        if is_put(object_id):
            row = calls.put_of(object_id)
            return _Before(min(end, table.end_or_now(row)), BY_GET, row) if row >= 0 else None
        attempts = calls.attempts(call) if call >= 0 else ()
        if not attempts:
            return self._held_up(call, end) if call >= 0 else None
        row = attempts[-1]
        for attempt in attempts[-_MOST_ATTEMPTS:-1]:
            # The wait may have ended before a later attempt, as with an actor that was made anew.
            if table.end_or_now(attempt) <= end < table.start[row]:
                row = attempt
        made = table.end_or_now(row)
        if made <= end:
            return _Before(made, BY_GET, row)
        if is_item(object_id) or (calls.is_generator(row) and table.start[row] < end):
            return _Before(end, BY_ITEM, row)
        if failed or table.start[row] >= end:
            return None  # it gave up before
        self.clamped += made - end
        return _Before(end, BY_GET, row)

    def _held_up(self, call: int, end: int) -> _Before | None:
        """What the actor of a call is busy with that has not begun."""
        submission = self.calls.submission[call]
        actor = self.calls.place(submission).actor if submission >= 0 else ""
        lane = self._index().get((actor, "")) if actor else None
        if lane is None or lane.ends[-1] < end:
            return None
        return _Before(end, BY_ACTOR, lane.rows[-1])

    # --- what an execution waited for -----------------------------------------------------------------------------

    def _ready(self, row: int, begun: int) -> _Before | None:
        """What came last of what an execution needs beside a free slot; None if nothing of it is known."""
        calls, table = self.calls, self.table
        call = calls.call_of[row]
        attempts = calls.attempts(call)
        place = bisect_left(attempts, row)
        if place:
            failed = attempts[place - 1]
            return _Before(self._clamp(table.end_or_now(failed), begun), BY_RETRY, failed)
        candidates: list[_Before] = []
        submission = calls.submission[call]
        submitted = calls.submitted_ns(call)
        if submission >= 0:
            candidates.append(_Before(min(submitted, begun), BY_SUBMISSION, submission))
        elif submitted:
            candidates.append(_Before(min(submitted, begun), BY_SUBMISSION, self._caller(row)))
        for object_id, its in calls.made_by(submission) if submission >= 0 else ():
            found = self._made_at(object_id, its, begun, failed=False)
            if found is not None and found.source != row:
                candidates.append(_Before(found.time, BY_ARGUMENT, found.source))
        if (created := self._created(row, begun)) is not None:
            candidates.append(created)
        return max(candidates, key=lambda before: before.time, default=None)

    def _caller(self, row: int) -> int:
        """The execution that submitted a call of which only the execution is known; -1 if that is not known either."""
        caller = self.table.caller[row]
        call = self.calls.call_of_task(caller)
        return self.calls.execution[call] if call >= 0 else -1

    def _created(self, row: int, begun: int) -> _Before | None:
        """The creation of an actor, before its first method."""
        place = self.calls.place(row)
        if not place.actor:
            return None
        self._index()
        rows = self._creations.get(place.actor, ())
        before = bisect_left(rows, row) - 1
        if before < 0 or self._is_creation(row):
            return None
        return _Before(self._clamp(self.table.end_or_now(rows[before]), begun), BY_CREATION, rows[before])

    def _is_creation(self, row: int) -> bool:
        return self.calls.function_of(row).endswith(".__init__")

    def _freed(self, row: int, begun: int, ready: int) -> tuple[int, int] | None:
        lane = self._index().get(self._lane_of(row))
        return None if lane is None else lane.freed(row, begun, ready)

    def _lane_of(self, row: int) -> tuple[str, str]:
        place = self.calls.place(row)
        return (place.actor, place.group) if place.actor else (place.worker, "")

    def _index(self) -> dict[tuple[str, str], _Lane]:
        if self._lanes is not None:
            return self._lanes
        calls, table = self.calls, self.table
        members: dict[tuple[str, str], list[int]] = {}
        for row, role in enumerate(calls.role):
            if role != EXECUTION:
                continue
            if calls.place(row).actor and self._is_creation(row):
                self._creations.setdefault(calls.place(row).actor, []).append(row)
            elif (key := self._lane_of(row))[0]:
                members.setdefault(key, []).append(row)
        self._lanes = {
            key: _Lane(
                rows,
                [table.start[row] for row in rows],
                [table.end_or_now(row) for row in rows],
                max(calls.place(row).slots for row in rows),
                Loop(table, rows) if is_loop(calls.place(rows[0])) else None,
            )
            for key, rows in members.items()
        }
        return self._lanes

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
                submitting = self._submitting(step, path.submitting)
                path.kinds[SUBMIT] += submitting
                path.kinds[RUN] += length - submitting
                path.functions[self.calls.frame_name(step.row)] += length
            else:
                path.kinds[step.kind] += length

    def _submitting(self, step: Step, by_function: Counter[str]) -> int:
        members = self.calls.members(step.row)
        table = self.table
        first = bisect_left(members, step.start, key=table.start.__getitem__)
        total, done = 0, step.start
        for place in range(first, len(members)):
            row = members[place]
            begin, end = max(table.start[row], done), min(table.end_or_now(row), step.end)
            if begin >= step.end:
                break
            if self.calls.role[row] == SUBMISSION and end > begin:
                total += end - begin
                by_function[self.calls.function_of(row)] += end - begin
                done = end
        return total


def calls_frame(calls: Calls, row: int) -> int:
    """The frame that a span is a part of; -1 for no span."""
    return calls.frame[row] if row >= 0 else -1


def _root(calls: Calls) -> tuple[int, int, int]:
    """The frame whose end is the run's, with the time from which to which the path goes."""
    table = calls.table
    if not len(table):
        return -1, 0, 0
    frames: Sequence[int] = calls.drivers() or calls.frames()
    root = max(frames, key=calls.frame_end)
    start = calls.frame_start(root) if calls.drivers() else min(map(calls.frame_start, frames))
    return root, start, calls.frame_end(root)
