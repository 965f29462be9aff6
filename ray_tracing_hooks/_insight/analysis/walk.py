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

The same walk has a second form, for another question. The critical path passes through queues: while a call waited
for its actor, the path is in the call that kept the actor busy, since that call would have to be faster. The split of
the time stays with the call that waited, which makes the queue time visible.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.causes import Arrivals, Causes, LastWait, Served, ServedCalls
from ray_tracing_hooks._insight.analysis.critical_path import (
    ACTOR_QUEUE,
    BY_ACTOR,
    BY_ARGUMENT,
    BY_CODE,
    BY_CREATION,
    BY_GET,
    BY_ITEM,
    BY_NOTHING,
    BY_RANK,
    BY_RETRY,
    BY_SUBMISSION,
    BY_WORKER,
    DATASET,
    DELIVERY,
    GET_TIME,
    REPLICA_QUEUE,
    REQUEST_DELIVERY,
    RESERVING,
    RETRYING,
    RUN,
    SCHEDULING,
    STARTING,
    SUBMIT,
    TRAINING,
    UNEXPLAINED,
    WAITING,
    WORKER_QUEUE,
    Path,
    PathStep,
    submissions,
)
from ray_tracing_hooks._insight.analysis.intervals import gaps
from ray_tracing_hooks._insight.analysis.pipelines import dataset_waits
from ray_tracing_hooks._insight.analysis.slots import LEAST, Slots
from ray_tracing_hooks._insight.model.calls import (
    DRIVER,
    EXECUTION,
    Calls,
    item_number,
)
from ray_tracing_hooks._insight.model.clocks import machine
from ray_tracing_hooks._insight.model.processes import Workers
from ray_tracing_hooks._insight.model.serve_spans import LAG
from ray_tracing_hooks._insight.model.table import ENDED, LOST


def critical_path(
    calls: Calls,
    arrivals: Arrivals | None = None,
    served: ServedCalls | None = None,
    slots: Slots | None = None,
    *,
    through_queues: bool = True,
) -> Path:
    """The path that passes through queues: what would have to be faster for the run to end earlier.

    Without ``through_queues``, the one that stays with calls that wait in queues: how the wall time was spent.
    """
    return _Walk(calls, arrivals or {}, served, slots or Slots(calls), through_queues=through_queues).path()


_SILENCE = 0.1
"""Time of a driver without any span counts as its own code between calls, up to this share of the run."""

_MOST_THREADS = 64
"""The most waits of one frame that are considered concurrent."""


_RELEASE = 1_000_000
"""What releases a method from a wait may end this much later, in nanoseconds: it is in another thread."""

_BEFORE_ARGUMENTS = (BY_SUBMISSION, BY_ARGUMENT, BY_CREATION)
"""The edges to what a call has waited for before its arguments may have been there."""


class _Waits(NamedTuple):
    """The waits of a frame: their rows by start and by end, and these times."""

    by_start: list[int]
    starts: list[int]
    by_end: list[int]
    ends: list[int]


class _Walk:
    def __init__(
        self, calls: Calls, arrivals: Arrivals, served: ServedCalls | None, slots: Slots, *, through_queues: bool
    ) -> None:
        self.calls, self.table, self.slots = calls, calls.table, slots
        self.served = served or ServedCalls(calls, None)
        self.causes = Causes(calls, arrivals, self.served, slots)
        self.through_queues = through_queues
        self.steps: list[PathStep] = []
        self.assumed = False
        self.start = self.wall = 0
        self._seen: set[tuple[int, int]] = set()
        """The places that the walk has visited."""
        self._waits: dict[int, _Waits] = {}
        self._at_once: dict[int, bool] = {}
        """Whether a frame may have waited in several threads or coroutines."""
        self._spoken: dict[int, list[tuple[int, int]]] = {}
        """For drivers, the times of their own spans, by start."""
        self._released: set[int] = set()
        self._drivers = set(calls.drivers())
        self._has_requests = False
        self._workers = Workers(calls.table)
        self._dataset_waits = dataset_waits(calls)

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
        is_exact = is_recorded and not (is_cut or is_partial or self.causes.clamped or quality.clocks)
        path = Path(start, end, root, steps, is_recorded, is_exact)
        path.is_cut = is_cut
        path.released = self._released
        path.has_requests = self._has_requests
        path.clamped = self.causes.clamped
        rows = {step.row for step in steps if 0 <= step.row < len(self.table)}
        path.machines = len({machine(self.table.resources[self.table.resource[row]]) for row in rows})
        path.is_estimated = any(self.table.state[row] != ENDED for row in rows)
        self._add_up(path)
        return path

    def _walk(self, frame: int, time: int, start: int) -> None:
        """Go back from ``time`` in a frame to ``start``, through all frames in between."""
        while time > start and frame >= 0 and (frame, time) not in self._seen:
            self._seen.add((frame, time))
            frame, time = self._back(frame, time, start)
        if time > start:
            self._step(UNEXPLAINED, start, time, -1, BY_NOTHING, -1)

    def _back(self, frame: int, time: int, start: int) -> tuple[int, int]:
        """Go back in a frame from ``time`` to where the path leaves it. Returns where the path continues."""
        begun = max(self.calls.frame_start(frame), start)
        if time < begun:
            # What the path comes from was before this frame, so one of their times is wrong.
            self.causes.clamped += begun - time
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
            gave_up = self.causes.gave_up(wait)
            if gave_up and wait_end - wait_start >= time - wait_end:
                late = self.causes.late(wait, time)
                if late is not None:
                    known = max(late.time, wait_end)
                    edge, source = (late.edge, late.source) if known == late.time else (BY_CODE, wait)
                    self._run(known, time, frame, edge, source)
                    self._step(GET_TIME, late.time, known, wait, late.edge, late.source)
                    return self._frame_of(late.source), late.time
            self._run(wait_end, time, frame, BY_CODE, wait)
            for_what = self.causes.binding(wait, wait_end)
            is_known = gave_up or (for_what is not None and for_what.edge == BY_RANK) or self.causes.is_known(wait)
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
            kind = GET_TIME if was_there or not self.causes.names_any(wait) else unknown
            self._step(WAITING if gave_up else kind, wait_start, wait_end, wait, BY_NOTHING, -1)
            time = wait_start
        time = max(time, begun)
        if self.served.is_replica(frame) and (ran := self.served.ran(frame)) is not None:
            return self._enter_replica(ran, time)
        if frame >= len(self.table) or self.calls.role[frame] != EXECUTION:
            self._run(begun, time, frame, BY_NOTHING, -1)
            return -1, begun
        ready = self.causes.ready(frame, begun)
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

    def _is_circle(self, before: LastWait) -> bool:
        """Whether the walk would return to a place that it has visited, since calls wait for each other."""
        return (self._frame_of(before.source), before.time) in self._seen

    def _enter(self, row: int, begun: int, before: LastWait) -> tuple[int, int]:
        """From the start of an execution to what it waited for."""
        by = BY_ACTOR if self.calls.place(row).actor else BY_WORKER
        is_known = before.edge not in _BEFORE_ARGUMENTS or self.causes.knows_needs(row)
        is_retry = before.edge == BY_RETRY
        # Whatever else it needed, it had to wait for a slot of its actor. It could have had another worker.
        has_slots = is_known or by == BY_ACTOR
        if is_retry:
            # Ray puts a task that raised behind those that wait already.
            has_slots, is_known = by == BY_WORKER and self.table.state[before.source] != LOST, True
        lane = self.slots.lane(row) if has_slots else None
        freed = lane.freed(row, begun, before.time) if lane is not None else None
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
            argument = self.causes.last_made(caller, ran.began - waited)
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
        is_assumed = is_assumed or (
            self.causes.is_method(row) and self.causes.created(row, self.table.start[row]) is None
        )
        there = self.causes.there_since(row)
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
            self.steps.append(PathStep(kind, start, end, row, edge, source, is_assumed))

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
        start, end, others = table.start[frame], table.end_or_now(frame), -1
        for lane in self.slots.lanes_of(actor):
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
        return [each for each in gaps(self._spoken[frame], start, end) if each[1] - each[0] > most]

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
        clamped = self.causes.clamped
        found = self.causes.binding(wait, self.table.end_or_now(wait))
        self.causes.clamped = clamped
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
        made = self.causes.last_made(frame, end)
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
        request = self.served.requested(time) if frame in self._drivers and not self.causes.in_request else None
        if request is None:
            return None
        end = self.table.end_or_now(request)
        waited = max(begun, made[1] if made else begun, begun if wait is None else self.table.end_or_now(wait))
        since = max(self.table.start[request], waited)
        if since >= min(end, time):
            return None
        self._run(end, time, frame, BY_CODE, -1)
        self.assumed = self.causes.in_request = self._has_requests = True
        before, start, seen = len(self.steps), self.start, self._seen
        self.start, self._seen = since, set()
        self._walk(request, end, since)
        self.start, self._seen, self.causes.in_request = start, seen, False
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
        found = self.causes.last_made(frame, until, of_datasets=of_datasets)
        if found is None or found[1] < begun or (wait is not None and found[1] <= self.table.end_or_now(wait)):
            return None
        return found if found[1] < time or self.calls.frame_end(frame) == time else None

    def _waits_unseen(self, frame: int) -> bool:
        """Whether the frame may wait without a span, as coroutines do with ``await``, and for futures and requests."""
        unseen = frame in self.calls.with_futures or self.served.waits_unseen(frame)
        return unseen or (frame < len(self.table) and self.calls.place(frame).slots > 1)

    def _frame_of(self, row: int) -> int:
        """The frame that a span is part of; -1 for no span.

        A call that makes no span passes on that of its caller, so what it does seems to be its caller's.
        """
        if row < 0:
            return -1
        frame = self.calls.frame[row]
        self.assumed = self.assumed or self.calls.resource_of(frame) != self.table.resource[row]
        return frame

    # --- totals ---------------------------------------------------------------------------------------------------

    def _add_up(self, path: Path) -> None:
        first: dict[str, int] = {}
        for step in path.steps:
            length = step.took
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


def _root(calls: Calls) -> tuple[int, int, int]:
    """The frame whose end is the end of the run, and the start and end of the path."""
    table = calls.table
    if not len(table):
        return -1, 0, 0
    root = max(calls.drivers() or calls.frames(), key=calls.frame_end)
    has_span = root < len(table) and calls.role[root] == DRIVER
    start = calls.frame_start(root) if has_span else min(map(calls.frame_start, calls.frames()))
    return root, start, calls.frame_end(root)
