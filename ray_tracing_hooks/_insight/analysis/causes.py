"""What ended a wait, and what an execution waited for before it started.

A wait for a request to Ray Serve names the object that the call of a deployment returned (``ray.object_ids`` of
``serve.remote``, recorded where waits are). The call waits for a free replica, is sent to it, waits for the event loop
of the replica, and then runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.critical_path import (
    BY_ACTOR,
    BY_ARGUMENT,
    BY_CODE,
    BY_CREATION,
    BY_GET,
    BY_ITEM,
    BY_RANK,
    BY_RETRY,
    BY_SUBMISSION,
)
from ray_tracing_hooks._insight.analysis.pipelines import tasks_of_operators
from ray_tracing_hooks._insight.analysis.slots import Slots
from ray_tracing_hooks._insight.model.calls import (
    GET,
    SUBMISSION,
    WAIT,
    Calls,
    is_item,
    is_put,
)
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans
from ray_tracing_hooks._insight.model.span import is_creation
from ray_tracing_hooks._insight.model.table import ENDED, LOST

Arrivals = Mapping[int, tuple[int, int]]
"""For the row of each step at which ranks of Ray Train met, the training loop of the last to come, and when it came."""


_MOST_ATTEMPTS = 64
"""The most attempts before the last one that are searched for the one that ended a wait."""


class LastWait(NamedTuple):
    """The last thing that a frame had to wait for."""

    time: int
    edge: str
    source: int


class Causes:
    """The causes of waits and of the starts of executions.

    Attributes:
        clamped: By how much causes ended after their effects, in total.
        in_request: Whether the walk is in a request to a proxy of Ray Serve.
    """

    def __init__(self, calls: Calls, arrivals: Arrivals, served: ServedCalls, slots: Slots) -> None:
        self._calls, self._table = calls, calls.table
        self._arrivals, self._served, self._slots = arrivals, served, slots
        self.clamped, self.in_request = 0, False
        self._made: dict[tuple[int, bool], tuple[list[int], list[int]]] = {}
        self._of_datasets = tasks_of_operators(calls)

    def last_made(self, frame: int, time: int, *, of_datasets: bool = True) -> tuple[int, int] | None:
        """The last of a frame's calls to end by ``time``, with its end; with or without those of datasets."""
        if (frame, of_datasets) not in self._made:
            calls, table = self._calls, self._table
            rows = [
                calls.execution[call]
                for row in calls.members(frame)
                if calls.role[row] == SUBMISSION
                and calls.execution[call := calls.call_of[row]] >= 0
                and (of_datasets or call not in self._of_datasets)
            ]
            rows += [*calls.loops_of(frame), *self._served.made_in(frame)]
            ended = sorted((table.end_or_now(row), row) for row in rows)
            self._made[frame, of_datasets] = [row for _, row in ended], [end for end, _ in ended]
        rows, ends = self._made[frame, of_datasets]
        place = bisect_right(ends, time) - 1
        return (rows[place], ends[place]) if place >= 0 else None

    def binding(self, wait: int, end: int) -> LastWait | None:
        """What a wait that lasted until ``end`` waited for last; None if unknown.

        The edge ``BY_CODE`` means that it is only assumed.
        """
        calls, table = self._calls, self._table
        step = self._step_of(wait)
        if step >= 0:
            loop, moment = self._arrivals[step]
            return LastWait(min(moment, end), BY_RANK, loop)
        last: LastWait | None = None
        failed = table.failed(wait) or table.state[wait] != ENDED
        for object_id, call in calls.made_by(wait, table.ready if calls.role[wait] == WAIT else None):
            found = self._made_at(object_id, call, end, failed=failed, good=not failed and calls.role[wait] == GET)
            if found is not None and found.edge == BY_ITEM and table.name_of(wait) == "ray.get":
                # There is no reference to an item before it is there.
                found = LastWait(table.start[wait], BY_ITEM, found.source)
            if found is not None and (last is None or found.time > last.time):
                last = found
        for row in self._served.awaited(wait):
            # The first that a replica tells of a request is that it accepts it.
            is_part = table.end_or_now(row) > end
            time = min(table.end_or_now(row), end)
            if table.start[row] < end and not (is_part and self.gave_up(wait)) and (last is None or time > last.time):
                last = LastWait(time, BY_ITEM if is_part else BY_GET, row)
        if last is None and table.failed(wait) and not self.gave_up(wait):
            last = self._died(wait, end)
        # A library waits for internal calls of its own, which end with what it has started.
        library = calls.library_before(calls.frame[wait], end) if last is None else None
        # A proxy and a replica wait for calls of deployments in ways that do not always name these.
        unseen = (library is not None and library[1] == end) or (last is None and self.in_request)
        if calls.role[wait] == GET and (calls.is_cut(wait) or unseen):
            made = self.last_made(calls.frame[wait], end)
            if made is not None and (last is None or made[1] > last.time):
                return LastWait(made[1], BY_CODE, made[0])
        return last

    def is_known(self, wait: int) -> bool:
        """Whether it is recorded of all that a wait got when that was there: if not, the rest may have been last."""
        calls, role = self._calls, self._calls.role[wait]
        got = calls.made_by(wait, self._table.ready if role == WAIT else None)
        if self._served.awaited(wait):
            return True
        return all(
            calls.is_known(*each) and (self._table.failed(wait) or not self._ends_badly(each[1])) for each in got
        )

    def _ends_badly(self, call: int) -> bool:
        """Whether the last attempt of a call that is recorded failed: if its result was good, there was another one."""
        return call >= 0 and (row := self._calls.execution[call]) >= 0 and self._raised(row)

    def _raised(self, row: int) -> bool:
        """Whether an execution ended with an error, or with its process. A program can set the status by itself."""
        return self._table.state[row] == LOST or self._table.attribute(row, names.ERROR_TYPE) is not None

    def _died(self, wait: int, end: int) -> LastWait | None:
        """The execution whose death ended a wait, if its own end is only known to be later: when that was noticed."""
        calls, table = self._calls, self._table
        for _, call in calls.made_by(wait):
            for row in calls.attempts(call)[-1:] if call >= 0 else ():
                if table.state[row] == LOST and table.start[row] < end < table.end_or_now(row):
                    self.clamped += table.end_or_now(row) - end
                    return LastWait(end, BY_GET, row)
        return None

    def _step_of(self, wait: int) -> int:
        """The step of Ray Train in which a wait is for other ranks; -1 for none."""
        above = self._table.parent[wait] if self._arrivals else -1
        while above >= 0 and above not in self._arrivals and above != self._calls.frame[wait]:
            above = self._table.parent[above]
        return above if above in self._arrivals else -1

    def gave_up(self, wait: int) -> bool:
        """Whether a wait timed out or was cancelled before its objects were available."""
        calls, table = self._calls, self._table
        if calls.role[wait] != WAIT:
            error = table.attribute(wait, names.ERROR_TYPE)
            is_late = isinstance(error, str) and error.endswith("GetTimeoutError")
            return is_late or table.attribute(wait, names.RAY_CANCELLED) is True
        if table.failed(wait) or table.state[wait] != ENDED:
            return False
        wanted, found = calls.wanted(wait), calls.ready_count(wait)
        return found < wanted or not found

    def late(self, wait: int, until: int) -> LastWait | None:
        """What a wait that gave up had waited for, if that was made since the wait began and before ``until``.

        It may have been made before the wait gave up: who waits learns of it a moment later.
        """
        calls, begun = self._calls, self._table.start[wait]
        if calls.role[wait] == WAIT:
            ready = set(self._table.ready.get(wait, ()))
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

    def names_any(self, wait: int) -> bool:
        """Whether a wait was for any object, with its id recorded or not, or for a placement group."""
        if self._table.attribute(wait, names.RAY_PLACEMENT_GROUP_ID):
            return True
        return bool(self._calls.objects_of(wait)) or bool(self._table.attribute(wait, names.RAY_OBJECT_COUNT))

    def _made_at(self, object_id: str, call: int, end: int, *, failed: bool, good: bool = False) -> LastWait | None:
        """What made an object of ``call`` available and when, if that was before ``end`` or can be assumed to be.

        ``failed``: whether who waited may have got none; ``good``: whether it was the result of a successful call.
        """
        calls, table = self._calls, self._table
        if is_put(object_id):
            row = calls.put_of(object_id)
            return LastWait(min(end, table.end_or_now(row)), BY_GET, row) if row >= 0 else None
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
            return LastWait(made, BY_GET, row)
        if is_item(object_id) or (calls.is_generator(row) and table.start[row] < end):
            return LastWait(end, BY_ITEM, row)
        if failed or table.start[row] >= end:
            return None  # the wait gave up before
        self.clamped += made - end
        return LastWait(end, BY_GET, row)

    def _held_up(self, call: int, end: int) -> LastWait | None:
        """What keeps the actor of a call busy, if the call has not started."""
        submission = self._calls.submission[call]
        actor = self._calls.place(submission).actor if submission >= 0 else ""
        lane = self._slots.lane_of_actor(actor) if actor else None
        row = lane.holder(end) if lane is not None else -1
        return LastWait(end, BY_ACTOR, row) if row >= 0 else None

    # --- what an execution waited for -----------------------------------------------------------------------------

    def ready(self, row: int, begun: int) -> LastWait | None:
        """The last precondition of an execution apart from a free slot; None if none is known."""
        calls, table = self._calls, self._table
        call = calls.call_of[row]
        attempts = calls.attempts(call)
        place = bisect_left(attempts, row)
        if place and self._number_of(row) == self._number_of(attempts[place - 1]) + 1:
            failed = attempts[place - 1]
            return LastWait(self._clamp(table.end_or_now(failed), begun), BY_RETRY, failed)
        candidates: list[LastWait] = []
        submission = calls.submission[call]
        submitted = calls.submitted_ns(call)
        if (started := calls.started_loop(row)) is not None:
            candidates.append(LastWait(self._clamp(table.end_or_now(started), begun), BY_CODE, started))
        if submission >= 0:
            candidates.append(LastWait(min(submitted, begun), BY_SUBMISSION, submission))
        elif submitted:
            candidates.append(LastWait(min(submitted, begun), BY_SUBMISSION, self._caller(row)))
        for object_id, its in calls.made_by(submission) if submission >= 0 else ():
            found = self._made_at(object_id, its, begun, failed=False, good=True)
            if found is not None and found.source != row:
                candidates.append(LastWait(found.time, BY_ARGUMENT, found.source))
        if (created := self.created(row, begun)) is not None:
            candidates.append(created)
        return max(candidates, key=lambda before: before.time, default=None)

    def _number_of(self, row: int) -> int:
        """How often the call of an execution had been tried before."""
        number = self._table.attribute(row, names.RAY_ATTEMPT)
        return number if isinstance(number, int) else bisect_left(self._calls.attempts(self._calls.call_of[row]), row)

    def knows_needs(self, row: int) -> bool:
        """Whether all is recorded that an execution may have waited for: arguments, its actor, and earlier attempts."""
        calls = self._calls
        submission = calls.submission[calls.call_of[row]]
        return (
            submission >= 0
            and not self._number_of(row)
            and not calls.is_cut(submission)
            and all(calls.is_known(*each) and not self._ends_badly(each[1]) for each in calls.made_by(submission))
            and (not self.is_method(row) or self.there_since(row) is not None)
        )

    def is_method(self, row: int) -> bool:
        return bool(self._calls.place(row).actor) and not is_creation(self._calls.function_of(row))

    def _caller(self, row: int) -> int:
        """The execution that submitted a call without a recorded submission; -1 if unknown."""
        call = self._calls.call_of_caller(row)
        return self._calls.execution[call] if call >= 0 else -1

    def created(self, row: int, begun: int) -> LastWait | None:
        """The creation of the actor before this method ran; None if there is none."""
        creation = self._slots.creation(row)
        if creation < 0:
            return None
        return LastWait(self._clamp(self._table.end_or_now(creation), begun), BY_CREATION, creation)

    def there_since(self, row: int) -> int | None:
        """When the actor of a method is known to have been there: then its calls wait for no resources and no worker.

        None for other executions, and for the first method of an actor whose creation is not recorded.
        """
        if not self.is_method(row):
            return None
        if (created := self.created(row, self._table.start[row])) is not None:
            return created.time
        first = self._slots.first_method(row)
        return self._table.start[first] if first != row else None

    def _clamp(self, cause: int, effect: int) -> int:
        self.clamped += max(0, cause - effect)
        return min(cause, effect)


_TASK_DIGITS = 48


class Served(NamedTuple):
    """The execution of a request in a replica, and when it came to each part of its way; in nanoseconds."""

    row: int
    call: int
    """The row of the call of the deployment."""
    made: int
    chosen: int
    """When it had a replica, if it waited for nothing but that."""
    began: int
    """In the replica."""
    ran: int
    """When the event loop came to it."""


class ServedCalls:
    """The calls of deployments that replicas ran, as what callers wait for."""

    def __init__(self, calls: Calls, spans: ServeSpans | None) -> None:
        self._calls, self._table = calls, calls.table
        self._spans = spans if spans is not None and len(spans.called) else None

    def is_replica(self, frame: int) -> bool:
        return self._spans is not None and frame < len(self._table) and bool(self._spans.is_replica[frame])

    def ran(self, row: int) -> Served | None:
        """How an execution came about; None if its call is not recorded."""
        call = self._table.parent[row]
        if self._spans is None or call < 0 or self._spans.replica[call] < 0:
            return None
        began, end = self._table.start[row], self._table.end_or_now(row)
        made = min(self._table.start[call], began)
        chosen = min(made + int(self._spans.choice[call]), began)
        return Served(row, call, made, chosen, began, min(began + int(self._spans.loop_wait[row]), end))

    def awaited(self, wait: int) -> list[int]:
        """The executions of the requests that a wait was for, as far as they are known."""
        found = (self._by_object.get((self._table.resource[wait], each[:_TASK_DIGITS]), -1) for each in self._ids(wait))
        return [row for row in found if row >= 0]

    def waits_unseen(self, frame: int) -> bool:
        """Whether a frame may wait for requests without a span: replicas do, and callers of those whose object is not
        recorded, such as calls by gRPC.
        """
        return self.is_replica(frame) or frame in self._unlinked

    def made_in(self, frame: int) -> list[int]:
        """The executions of the requests that a frame has made."""
        return self._by_frame.get(frame, [])

    def requested(self, time: int) -> int | None:
        """The request to a proxy, with no context of its client, that was open last before ``time``; None if none was.

        It may be open then.
        """
        rows, starts = self._requests
        place = bisect_left(starts, time) - 1
        return rows[place] if place >= 0 else None

    def freed_by(self, row: int, time: int, since: int) -> int:
        """The execution in the same replica that was the last to end by ``time``, if after ``since``; -1 for none."""
        rows, ends = self._by_end[self._table.resource[row]]
        place = bisect_right(ends, time) - 1
        return rows[place] if place >= 0 and ends[place] > since and rows[place] != row else -1

    def held_by(self, ran: Served) -> int:
        """The execution whose code the event loop had come to before, if it went on into the wait for it; -1 if not."""
        row = self._before.get(ran.row, -1)
        return row if row >= 0 and self._table.end_or_now(row) > ran.began else -1

    def _ids(self, wait: int) -> tuple[str, ...]:
        return self._calls.objects_of(wait) if self._spans is not None else ()

    @cached_property
    def _requests(self) -> tuple[list[int], list[int]]:
        """The last to end of the requests to proxies up to each one, by start; and their starts."""
        spans, frame = self._spans, self._calls.frame
        found = spans.roots().row.tolist() if spans is not None else []
        rows = [row for row in found if spans is not None and spans.is_server[row] and frame[row] == row]
        last = accumulate(rows, lambda one, other: max(one, other, key=self._table.end_or_now))
        return list(last), [self._table.start[row] for row in rows]

    @cached_property
    def _by_object(self) -> dict[tuple[int, str], int]:
        """By the process of the caller and the task of the object, the execution that made it."""
        return {
            (self._table.resource[call], each[:_TASK_DIGITS]): row
            for call, row in self._executions()
            for each in self._table.objects.get(call, ())
        }

    @cached_property
    def _by_frame(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for call, row in self._executions():
            found.setdefault(self._calls.frame[call], []).append(row)
        return found

    @cached_property
    def _unlinked(self) -> set[int]:
        return {self._calls.frame[call] for call, _ in self._executions() if call not in self._table.objects}

    def _executions(self) -> Iterator[tuple[int, int]]:
        """Each call of a deployment that a replica ran, with its execution there."""
        spans = self._spans
        for call in spans.called.tolist() if spans is not None else ():
            if spans is not None and spans.replica[call] >= 0:
                yield call, int(spans.replica[call])

    @cached_property
    def _by_end(self) -> dict[int, tuple[list[int], list[int]]]:
        """The executions of each replica, which is a process, and their ends, by these."""
        ends = self._table.end_or_now
        return {
            replica: (by_end := sorted(rows, key=ends), [ends(row) for row in by_end])
            for replica, rows in self._rows.items()
        }

    @cached_property
    def _before(self) -> dict[int, int]:
        """For each execution, the one in the same replica that its event loop had come to before."""
        spans, start = self._spans, self._table.start
        if spans is None:
            return {}
        by_run = [sorted(rows, key=lambda row: start[row] + int(spans.loop_wait[row])) for rows in self._rows.values()]
        return {after: before for rows in by_run for before, after in pairwise(rows)}

    @cached_property
    def _rows(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in np.nonzero(self._spans.is_replica)[0].tolist() if self._spans is not None else ():
            found.setdefault(self._table.resource[row], []).append(row)
        return found
