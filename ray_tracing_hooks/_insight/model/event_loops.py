"""Blocked event loops: in an async actor, a method that does not yield keeps all other calls waiting.

An event loop starts a call as soon as it can, unless as many run as the actor lets run at once. So if a call was
submitted but not started, while fewer ran and no other call started or ended either, code blocked the loop: the call
that ended when the loop continued, or the one that had started when the loop stopped. This is inferred from the spans
of calls alone, so it is what probably happened. Until a call of the loop has ended, those that go on do not count: a
new actor still imports and connects, and starts its first calls one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ray_tracing_hooks._insight.model.calls import Place
from ray_tracing_hooks._insight.model.table import Table

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
    """Whether calls in this place share an event loop."""
    return place.slots > 1 and (place.is_asyncio or place.slots >= _SLOTS_OF_ASYNCIO)


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
