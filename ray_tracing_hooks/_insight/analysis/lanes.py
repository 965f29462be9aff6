"""Lanes of a timeline: in a lane, spans follow each other or nest, and never overlap otherwise.

A process has as many lanes as it has concurrent work: one for a plain worker, several for an actor with threads or
coroutines. A span is placed in the lane of its parent, inside it, if both are in the same process, the parent does not
end earlier, and no sibling is in the way. Otherwise it starts a new stack in the first free lane of the process, at its
full length: no span is shortened or left out.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.processes import Places
from ray_tracing_hooks._insight.model.table import Table


class Lane(NamedTuple):
    """One lane."""

    place: int
    """The index of its place."""
    number: int
    """Its number within its place, from 0."""


class Lanes(NamedTuple):
    """The lanes of all spans of a table."""

    of: array[int]
    """By row of the table, the index of its lane in ``lanes``."""
    depth: array[int]
    """By row, the number of spans of its lane that enclose it."""
    lanes: list[Lane]
    """In the order of the places, then by number."""
    overflows: int
    """How many spans overlap their parent in the same process without being inside it; each is in another lane."""


def lanes(table: Table, places: Places, ends: array[int] | None = None) -> Lanes:
    """The lane of each span. ``ends`` are the ends of the spans from :func:`ends_of`, if known already."""
    ends = ends_of(table) if ends is None else ends
    start, parents, place_of = table.start, table.parent, places.of
    of, depth = array("L", bytes(8 * len(table))), array("L", bytes(8 * len(table)))
    in_place = [_Place() for _ in places.places]
    placed = bytearray(len(table))
    found: list[Lane] = []
    stacks: list[list[int]] = []
    overflows = 0
    for row in outer_first(table, ends):
        place, begin, end, parent = place_of[row], start[row], ends[row], parents[row]
        stack: list[int] | None = None
        lane = of[parent] if parent >= 0 else 0
        if parent >= 0 and place_of[parent] == place:
            if begin < start[parent] < end or begin < ends[parent] < end:
                overflows += 1
            elif placed[parent]:
                stack = stacks[lane]
                while stack and ends[stack[-1]] <= begin and stack[-1] != parent:
                    stack.pop()
                if not stack or stack[-1] != parent or end > ends[parent]:
                    stack = None
        if stack is None:
            there = in_place[place]
            while there.busy and there.busy[0][0] <= begin:
                heappush(there.free, heappop(there.busy)[1:])
            if there.free:
                lane = heappop(there.free)[1]
                stack = stacks[lane]
                stack.clear()
            else:
                lane = len(found)
                found.append(Lane(place, there.count))
                stack = []
                stacks.append(stack)
                there.count += 1
            heappush(there.busy, (end, found[lane].number, lane))
        of[row] = lane
        depth[row] = len(stack)
        stack.append(row)
        placed[row] = 1
    return _ordered(of, depth, found, overflows)


def by_lane(table: Table, ends: array[int], found: Lanes) -> list[list[int]]:
    """The rows of each lane, outer spans before the spans inside them.

    Spans that were recorded together stay together, so reading them from their files is faster than by time.
    """
    rows: list[list[int]] = [[] for _ in found.lanes]
    for row in outer_first(table, ends):
        rows[found.of[row]].append(row)
    return rows


def ends_of(table: Table) -> array[int]:
    """When each span ended, or until when it is shown: never before its start.

    A span that its program never ended is shown at its start only: its duration is unknown, and its recorded end is the
    end of its process, which may be much later.
    """
    now, site = table.end_or_now, table.site
    never_ended = [bool(each.get(names.RAY_NEVER_ENDED)) for each in table.sites]
    return array("q", [max(begin, 0 if never_ended[site[row]] else now(row)) for row, begin in enumerate(table.start)])


def outer_first(table: Table, ends: array[int]) -> list[int]:
    """The rows by start; for equal starts the longest first; for equal times parents before children."""
    order = list(range(len(table)))
    start = table.start
    position, size = 0, len(order)
    while position < size:
        begin = start[position]
        after = position + 1
        while after < size and start[after] == begin:
            after += 1
        if after - position > 1:
            steps = _steps_up(table.parent, position, after)
            order[position:after] = sorted(
                range(position, after),
                key=lambda row: (-ends[row], steps[row - position], row),
            )
        position = after
    return order


class _Place:
    """The lanes of one place: those that are free, and those in which a stack of spans is open."""

    __slots__ = ("busy", "count", "free")

    def __init__(self) -> None:
        self.count = 0
        self.free: list[tuple[int, int]] = []
        """Number and index of the free lanes, a heap."""
        self.busy: list[tuple[int, int, int]] = []
        """The time from which each other lane is free, its number and its index, a heap."""


def _steps_up(parents: array[int], first: int, after: int) -> list[int]:
    """A number for each row from ``first`` to ``after``, greater than those of its ancestors. Visits each row once."""
    steps = [-1] * (after - first)
    for row in range(first, after):
        chain = []
        here = row
        while first <= here < after and steps[here - first] < 0:
            steps[here - first] = 0  # in case parents form a cycle, which has no first row
            chain.append(here)
            here = parents[here]
        known = steps[here - first] + 1 if first <= here < after else 0
        for number, link in enumerate(reversed(chain), known):
            steps[link - first] = number
    return steps


def _ordered(of: array[int], depth: array[int], found: list[Lane], overflows: int) -> Lanes:
    order = sorted(range(len(found)), key=found.__getitem__)
    position = array("L", bytes(8 * len(order)))
    for new, old in enumerate(order):
        position[old] = new
    return Lanes(array("L", [position[old] for old in of]), depth, [found[index] for index in order], overflows)
