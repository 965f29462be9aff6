"""Event loops that stood still: in an async actor, one method that does not let go keeps all others waiting.

An event loop begins a call as soon as it gets to it. So a call that had been submitted, and was not begun while nothing
else began or ended either, waited for code that kept the loop: for what ended when the loop went on, or for what had
begun when it stopped. This is told from spans of calls alone, and so it is what seems to have happened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ray_tracing_hooks._insight.model.calls import Place
from ray_tracing_hooks._insight.model.table import Table

LEAST = 20_000_000
"""Nanoseconds: a loop that stands still for less may as well have been late for other reasons."""


class Stall(NamedTuple):
    """A time in which nothing began or ended in a loop, and what kept it. Times are nanoseconds since the epoch."""

    start: int
    end: int
    row: int
    """The execution that kept the loop; -1 where none can have."""


class Loop:
    """The executions of one event loop: of an async actor, or of one of its concurrency groups."""

    def __init__(self, table: Table, rows: Sequence[int]) -> None:
        self._stalls = _stalls(table, rows)
        self._ends = [stall.end for stall in self._stalls]

    def waited(self, ready: int, begun: int) -> Iterator[Stall]:
        """What a call waited for that could have begun at one time, and began at another: the last first.

        Only as far as the loop was busy without a break until it began the call.
        """
        place = bisect_right(self._ends, begun) - 1
        while place >= 0 and (stall := self._stalls[place]).row >= 0 and stall.end - max(stall.start, ready) >= LEAST:
            yield stall
            place -= 1


def is_loop(place: Place) -> bool:
    """Whether what runs there shares an event loop with others."""
    return place.slots > 1 and (place.is_asyncio or place.slots >= _SLOTS_OF_ASYNCIO)


_SLOTS_OF_ASYNCIO = 1000
"""So many methods of an async actor run at once if the program does not say; nobody asks for so many threads."""


def _stalls(table: Table, rows: Sequence[int]) -> list[Stall]:
    moments = sorted(
        [(table.start[row], False, row) for row in rows] + [(table.end_or_now(row), True, row) for row in rows]
    )
    found = []
    for (start, was_end, first), (end, is_end, last) in pairwise(moments):
        if end - start < LEAST:
            continue
        if is_end and table.start[last] <= start:
            kept_by = last  # it went on, and ended
        elif not was_end and table.end_or_now(first) > end:
            kept_by = first  # it has begun, and waits for something since the end
        else:
            kept_by = -1
        found.append(Stall(start, end, kept_by))
    return found
