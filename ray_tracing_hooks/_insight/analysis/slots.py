"""Executions that share slots: of an actor or a concurrency group, or of a worker; and event loops that are blocked.

In an async actor, a method that does not yield keeps all other calls waiting. An event loop starts a call as soon as it
can, unless as many run as the actor lets run at once. So if a call was submitted but not started, while fewer ran and
no other call started or ended either, code blocked the loop: the call that ended when the loop continued, or the one
that had started when the loop stopped. This is inferred from the spans of calls alone, so it is what probably happened.
Until a call of the loop has ended, those that go on do not count: a new actor still imports and connects, and starts
its first calls one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks._insight.model.calls import EXECUTION, Calls, Place
from ray_tracing_hooks._insight.model.grouped import by_group
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.span import is_creation
from ray_tracing_hooks._insight.model.table import Table


class Freed(NamedTuple):
    """What freed the slot that an execution took."""

    row: int
    """The execution that ended, or released the event loop."""
    time: int
    is_assumed: bool = False
    """Whether it is only inferred that the event loop was blocked, or how many slots there are."""


@dataclass
class Lane:
    """Executions that share slots: of one actor and concurrency group, or of one worker. Rows, and their times."""

    by_start: Sequence[int]
    starts: Sequence[int]
    by_end: Sequence[int]
    ends: Sequence[int]
    slots: int
    is_known: bool
    """Whether the number of slots is."""
    loop: Loop | None
    """The event loop that the executions share, if any."""

    @cached_property
    def _last_full(self) -> Sequence[int]:
        """For each place in ``ends``, the last place up to there before whose end all slots were taken; -1 for none."""
        begun = np.searchsorted(as_numpy(self.starts), as_numpy(self.ends))
        ended = np.searchsorted(as_numpy(self.ends), as_numpy(self.ends))
        places = np.arange(len(self.ends))
        full = np.where(begun - ended >= self.slots, places, -1)
        return memoryview(as_array(np.maximum.accumulate(full), "q"))

    def freed(self, row: int, start: int, ready: int) -> Freed | None:
        """The execution that freed the slot for one that started at ``start``.

        ``ready`` is when the later one could have started. None if a slot was free all the time from then.
        """
        if self.loop is not None and (stall := next(self.loop.waited(ready, start), None)) is not None:
            return Freed(stall.row, stall.end, is_assumed=True)
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
        return Freed(self.by_end[place], self.ends[place], is_assumed=not (self.is_known and was_full))

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


class Slots:
    """The executions that share slots, in lanes, and the creations of actors."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        table = calls.table
        creations: dict[str, list[int]] = {}
        first_method: dict[str, int] = {}
        ran = calls.rows_of(EXECUTION)
        site = as_numpy(table.site)[ran]
        has_actor = np.array([bool(place.actor) for place in calls.places], bool)[site]
        creates = np.array([is_creation(name) for name in calls.functions], bool)
        is_creation_of = has_actor & creates[as_numpy(calls.function)[as_numpy(calls.call_of)[ran]]]
        for row in ran[is_creation_of].tolist():
            creations.setdefault(calls.place(row).actor, []).append(row)
        number: dict[tuple[str, str], int] = {}
        of_site = [number.setdefault(key, len(number)) if (key := _lane_of(each))[0] else -1 for each in calls.places]
        lane = np.array(of_site, np.int64)[site]
        is_member = ~is_creation_of & (lane >= 0)
        ran, site, lane = ran[is_member], site[is_member], lane[is_member]
        # Rows are by start, so those of a lane stay by start.
        order = by_group(lane, len(number))
        rows, lane = ran[order], lane[order]
        starts, ends = as_numpy(table.start)[rows], as_numpy(table.ends)[rows]
        by_end = np.lexsort((ends, lane))
        own = [memoryview(as_array(each, "q")) for each in (rows, starts, rows[by_end], ends[by_end])]
        cuts = np.searchsorted(lane, np.arange(len(number) + 1)).tolist()
        lanes: dict[tuple[str, str], Lane] = {}
        for key, (begin, end) in zip(number, pairwise(cuts), strict=True):
            if begin < end:
                here = slice(begin, end)
                slots, is_known = calls.slots_of(rows[here])
                loop = Loop(table, rows[here].tolist(), slots) if is_loop(calls.place(int(rows[begin]))) else None
                by_start, started, ended, ends_here = (each[here] for each in own)
                lanes[key] = Lane(by_start, started, ended, ends_here, slots, is_known, loop)
                first = int(rows[begin])
                first_method[key[0]] = min(first, first_method.get(key[0], first))
        self._lanes, self._creations, self._first_method = lanes, creations, first_method

    @property
    def lanes(self) -> Collection[Lane]:
        return self._lanes.values()

    def lane(self, row: int) -> Lane | None:
        """That of an execution; None if it is unknown."""
        return self._lanes.get(_lane_of(self._calls.place(row)))

    def lane_of_actor(self, actor: str) -> Lane | None:
        """That of the methods of an actor in no concurrency group; None if it is unknown."""
        return self._lanes.get((actor, ""))

    def lanes_of(self, actor: str) -> Sequence[Lane]:
        """All of an actor."""
        return self._by_actor.get(actor, ())

    @cached_property
    def _by_actor(self) -> dict[str, list[Lane]]:
        found: dict[str, list[Lane]] = {}
        for (actor, _), lane in self._lanes.items():
            found.setdefault(actor, []).append(lane)
        return found

    def creation(self, row: int) -> int:
        """The creation of the actor before this method ran; -1 if there is none."""
        place = self._calls.place(row)
        rows = self._creations.get(place.actor, ()) if place.actor else ()
        before = bisect_left(rows, row) - 1
        return rows[before] if before >= 0 and not is_creation(self._calls.function_of(row)) else -1

    def first_method(self, row: int) -> int:
        """The first method of the actor of this one, as far as is recorded."""
        return self._first_method.get(self._calls.place(row).actor, row)


def _lane_of(place: Place) -> tuple[str, str]:
    """Identifies the executions that share slots with one in this place; empty strings if that is unknown."""
    return (place.actor, place.group) if place.actor else (place.worker, "")


LEAST = 20_000_000
"""Nanoseconds. A shorter stall may have other causes."""


_PART = 0.25


class Stall(NamedTuple):
    """A time in which no call of a loop started or ended though one could, and the call that blocked it.

    Nanoseconds since the epoch.
    """

    start: int
    end: int
    row: int
    """The execution that blocked the loop; -1 if none can have."""


class Loop:
    """The executions on one event loop: of an async actor, or of one of its concurrency groups."""

    def __init__(self, table: Table, rows: Sequence[int], slots: int) -> None:
        """``slots``: how many of them may run at once."""
        self._stalls = _stalls(table, rows, slots)
        self._ends = [stall.end for stall in self._stalls]

    def waited(self, ready: int, begun: int) -> Iterator[Stall]:
        """The stalls between the time a call was ``ready`` to run and its start at ``begun``, the last one first.

        Only those of the unbroken busy period that ended with the start of the call.
        """
        place = bisect_right(self._ends, begun) - 1
        while place >= 0 and (stall := self._stalls[place]).row >= 0 and _is_long(stall, ready):
            yield stall
            place -= 1


def _is_long(stall: Stall, ready: int) -> bool:
    """Whether a call that was ready waited for a good part of a stall, and not just for its own delivery."""
    return stall.end - max(stall.start, ready) >= max(LEAST, _PART * (stall.end - stall.start))


def is_loop(place: Place) -> bool:
    return bool(place.actor) and place.slots > 1 and (place.is_asyncio or place.slots >= _SLOTS_OF_ASYNCIO)


_SLOTS_OF_ASYNCIO = 1000
"""Ray's default for the concurrent methods of an async actor; programs do not ask for this many threads."""


def _stalls(table: Table, rows: Sequence[int], slots: int) -> list[Stall]:
    moments = sorted(
        [(table.start[row], False, row) for row in rows] + [(table.end_or_now(row), True, row) for row in rows]
    )
    found = []
    running, has_ended = 0, False
    for (start, was_end, first), (end, is_end, last) in pairwise(moments):
        running += -1 if was_end else 1
        has_ended = has_ended or was_end
        if end - start < LEAST or running >= slots:
            continue
        if is_end and table.start[last] <= start:
            kept_by = last  # it kept running, and ended
        elif has_ended and not was_end and table.end_or_now(first) > end:
            kept_by = first  # it started here, and was still running at the end of the stall
        else:
            kept_by = -1
        found.append(Stall(start, end, kept_by))
    return found
