"""Lanes of a timeline: in a lane, spans follow each other or nest, and never overlap otherwise.

A process has as many lanes as it has concurrent work: one for a plain worker, several for an actor with threads or
coroutines. A span is placed in the lane of its parent, inside it, if both are in the same process, the parent does not
end earlier, and no sibling is in the way. Otherwise it starts a new stack in the first free lane of the process, at its
full length: no span is shortened or left out.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.grouped import levels
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.processes import Places
from ray_tracing_hooks._insight.model.table import Table

_CHUNK = 100_000


class Lane(NamedTuple):
    place: int
    """The index of its place."""
    number: int
    """Its number within its place, from 0."""


class Lanes(NamedTuple):
    of: array[int]
    """By row of the table, the index of its lane in ``lanes``."""
    depth: array[int]
    """By row, the number of spans of its lane that enclose it."""
    lanes: list[Lane]
    """In the order of the places, then by number."""


def lanes(table: Table, places: Places, ends: array[int] | None = None) -> Lanes:
    """The lane of each span. ``ends`` are the ends of the spans from :func:`ends_of`, if known already."""
    ends = ends_of(table) if ends is None else ends
    order = outer_first(table, ends)
    may_nest, fits = _nesting(table, places, ends, order)
    of, depth = array("I", bytes(4 * len(table))), array("I", bytes(4 * len(table)))
    in_place = [_LanesOfPlace() for _ in places.places]
    found: list[Lane] = []
    stacks: list[list[int]] = []
    columns = order, may_nest, fits, *(as_numpy(each)[order] for each in (places.of, table.start, ends, table.parent))
    for row, nests, is_inside, place, begin, end, parent in _numbers(columns):
        stack: list[int] | None = None
        lane = of[parent] if nests else 0
        if nests:
            stack = stacks[lane]
            while stack and ends[stack[-1]] <= begin and stack[-1] != parent:
                stack.pop()
            if not stack or stack[-1] != parent or not is_inside:
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
    return _ordered(of, depth, found)


def _nesting(table: Table, places: Places, ends: array[int], order: Any) -> tuple[Any, Any]:
    """In the given order, whether each span may be inside its parent, and whether it ends in it."""
    start, end, parent, place = (as_numpy(each) for each in (table.start, ends, table.parent, places.of))
    above = parent[order]
    is_same = (above >= 0) & (place[above] == place[order])
    begin, until = start[order], end[order]
    overlaps = is_same & (
        ((begin < start[above]) & (start[above] < until)) | ((begin < end[above]) & (end[above] < until))
    )
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order))
    is_after = position[above] < np.arange(len(order))
    return is_same & ~overlaps & is_after, until <= end[above]


def _numbers(columns: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The rows of NumPy columns as Python numbers, converted in chunks since they take more memory than the columns."""
    for begin in range(0, len(columns[0]), _CHUNK):
        yield from zip(*(column[begin : begin + _CHUNK].tolist() for column in columns), strict=True)


def by_lane(table: Table, ends: array[int], found: Lanes) -> list[list[int]]:
    """The rows of each lane, outer spans before the spans inside them.

    Spans that were recorded together stay together, so reading them from their files is faster than by time.
    """
    rows: list[list[int]] = [[] for _ in found.lanes]
    for row in outer_first(table, ends).tolist():
        rows[found.of[row]].append(row)
    return rows


def ends_of(table: Table) -> array[int]:
    """When each span ended, or until when it is shown: never before its start.

    A span that its program never ended is shown at its start only: its duration is unknown, and its recorded end is the
    end of its process, which may be much later.
    """
    is_open = table.is_at(lambda site: bool(site.get(names.RAY_NEVER_ENDED)))
    start, ends = as_numpy(table.start), as_numpy(table.ends)
    if not is_open.any() and (ends >= start).all():
        return table.ends
    return as_array(np.maximum(start, np.where(is_open, 0, ends)), "q")


def outer_first(table: Table, ends: array[int]) -> Any:
    """The rows by start; for equal starts the longest first; for equal times parents before children."""
    start = as_numpy(table.start)
    if (start[1:] != start[:-1]).all():
        return np.arange(len(table))
    return np.lexsort((levels(as_numpy(table.parent)), -as_numpy(ends), start))


class _LanesOfPlace:
    """The lanes of one place: those that are free, and those in which a stack of spans is open."""

    __slots__ = ("busy", "count", "free")

    def __init__(self) -> None:
        self.count = 0
        self.free: list[tuple[int, int]] = []
        """Number and index of the free lanes, a heap."""
        self.busy: list[tuple[int, int, int]] = []
        """The time from which each other lane is free, its number and its index, a heap."""


def _ordered(of: array[int], depth: array[int], found: list[Lane]) -> Lanes:
    order = sorted(range(len(found)), key=found.__getitem__)
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return Lanes(as_array(position[as_numpy(of)], "I") if len(of) else of, depth, [found[index] for index in order])
