"""Times as pairs of a start and an end, in nanoseconds: what they cover, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def covered(intervals: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """How much of the time from ``start`` to ``end`` is in at least one of the intervals."""
    total, done = 0, start
    for begun, ended in sorted(intervals):
        here, there = max(begun, done), min(ended, end)
        if there > here:
            total += there - here
            done = there
    return total


def united(times: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time in intervals that do not touch each other, in order."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(times):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif end > begin:
            found.append((begin, end))
    return found


def gaps(intervals: Iterable[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """The parts of the time from ``start`` to ``end`` that are in none of the intervals, in order."""
    found = []
    for begin, until in [*sorted(intervals), (end, end)]:
        if min(begin, end) > start:
            found.append((start, min(begin, end)))
        start = max(start, until)
    return found


def in_both(one: Iterable[tuple[int, int]], other: Iterable[tuple[int, int]]) -> int:
    """How much time is in an interval of each. Those of ``other`` do not overlap; those of ``one`` may."""
    total = begin = end = 0
    ordered = iter(sorted(one))
    for since, until in sorted(other):
        while True:
            total += max(0, min(end, until) - max(begin, since))
            if end >= until:
                break
            if (later := next(ordered, None)) is None:
                begin = end
                break
            begin, end = max(later[0], end), max(later[1], end)
    return total


def taken_by(begins: Any, ends: Any, since: Any, until: Any) -> Any:
    """How much of each time range the intervals take. They are by start, and do not overlap."""
    total = np.concatenate([[0], np.cumsum(ends - begins)])
    before = []
    for at in (since, until):
        begun = np.searchsorted(begins, at)
        # The last one that has begun may go on.
        left = np.where(begun > 0, np.maximum(ends[begun - 1] - at, 0), 0) if len(ends) else 0
        before.append(total[begun] - left)
    return before[1] - before[0]
