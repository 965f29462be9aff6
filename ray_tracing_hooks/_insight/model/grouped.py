"""Trees and groups of rows, computed on whole columns: Python code for each of ten million rows takes minutes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

_CHUNK = 1 << 20


def tops(above: Any) -> Any:
    """For each row of a forest the root of its tree. ``above``: for each row its parent, -1 for roots."""
    found = np.where(above < 0, np.arange(len(above), dtype=np.int32), above).astype(np.int32)
    while True:
        # Each round goes twice as far up as the previous one.
        further = found[found]
        if (further == found).all():
            return found
        found = further


def nearest(is_one: Any, above: Any) -> Any:
    """For each row of a forest the nearest row that is one of these: itself, or one above it; -1 if there is none."""
    top = tops(np.where(is_one, -1, above))
    return np.where(is_one[top], top, -1)


def levels(above: Any) -> Any:
    """For each row of a forest the number of its ancestors. ``above``: for each row its parent, -1 for roots."""
    found = (above >= 0).astype(np.int32)
    up = np.where(above < 0, np.arange(len(above), dtype=np.int32), above).astype(np.int32)
    while True:
        further = up[up]
        if (further == up).all():
            return found
        found += found[up]
        up = further


def distinct(numbers: Any) -> Any:
    """The distinct numbers, ascending. ``np.unique`` hashes them since NumPy 2.3, which is far slower for many."""
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered if is_new.all() else ordered[is_new]


def by_first(column: Any) -> list[int]:
    """The distinct numbers of a column, in the order of their first occurrence."""
    found, first = np.unique(column, return_index=True)
    return cast("list[int]", found[np.argsort(first)].tolist())


def places_of(wanted: Any, ordered: Any) -> Any:
    """For each number its index in the ascending ``ordered``, or the index where it would be, at most the last one."""
    found = np.empty(len(wanted), np.int32)
    for begin in range(0, len(wanted), _CHUNK):
        some = wanted[begin : begin + _CHUNK]
        # Searching in ascending order is many times faster, since it reads memory that is in the processor's caches.
        order = np.argsort(some)
        found[begin + order] = np.searchsorted(ordered, some[order])
    return np.minimum(found, len(ordered) - 1)


def unique_columns(keys: Any) -> tuple[Any, Any]:
    """The index of the first of each distinct column of a matrix, and for each column the index of its equal there."""
    number = np.zeros(keys.shape[1], np.int64)
    for row in keys:
        # Numbered anew for each row, they stay below the number of columns, so that the products do not overflow.
        own, of = np.unique(row, return_inverse=True)
        number = np.unique(number * len(own) + of, return_inverse=True)[1]
    return np.unique(number, return_index=True, return_inverse=True)[1:]


def sums(groups: Any, values: Any, size: int) -> list[int]:
    """The sum of the values of each of ``size`` groups. Sums may exceed 64 bits."""
    low, high = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(low, groups, values & 0xFFFFFFFF)
    np.add.at(high, groups, values >> 32)
    return [(upper << 32) + lower for lower, upper in zip(low.tolist(), high.tolist(), strict=True)]


def by_group(groups: Any, size: int) -> Any:
    """The indexes of the items of each of ``size`` groups one after the other, in their order."""
    # NumPy sorts numbers of 16 bits by radix, many times as fast as larger ones.
    small = groups.astype(np.uint16) if size <= 1 << 16 else groups
    return np.argsort(small, kind="stable")


def split(groups: Any, size: int, *columns: Any) -> list[list[Any]]:
    """Each column split into ``size`` groups, which keep the order of their values."""
    order = by_group(groups, size)
    cuts = np.searchsorted(groups[order], np.arange(1, size))
    return [np.split(column[order], cuts)[:size] for column in columns]


def greatest_before(groups: Any, values: Any, least: Any) -> Any:
    """For each value the maximum of the values before it in its group, but at least the group's ``least``.

    ``groups`` are ascending; ``least`` has a value for each of them.
    """
    if not len(values):
        return values.copy()
    low, width = int(values.min()), int(values.max()) - int(values.min()) + 1
    # With an offset for each group that is greater than all of its values, the maximum so far is always one of the same
    # group. Where this takes more than 64 bits, as in damaged times, ranks stand in for the values.
    order = None
    if (int(groups[-1]) + 1) * width < 1 << 63:
        most = values - low
    else:
        order, width = np.argsort(values), len(values)
        most = np.empty(width, np.int64)
        most[order] = np.arange(width)
    offset = groups.astype(np.int64) * width
    most += offset
    np.maximum.accumulate(most, out=most)
    most -= offset
    del offset
    if order is None:
        most += low
    else:
        most = values[order[most]]
    found = least[groups]
    np.maximum(found[1:], most[:-1], out=found[1:], where=groups[1:] == groups[:-1])
    return found


def most_at_once(begins: Any, ends: Any) -> int:
    """The maximum number of intervals that overlap at one time. None of them may be empty."""
    ended = np.searchsorted(np.sort(ends), np.sort(begins), side="right")
    return int(max(np.arange(1, len(begins) + 1) - ended, default=0))


def covered_by_group(groups: Any, begins: Any, ends: Any, size: int) -> Any:
    """How much time the intervals of each of ``size`` groups cover. They are by start, and no time is negative."""
    order = by_group(groups, size)
    groups, begins, ends = groups[order], begins[order], ends[order]
    del order
    since = greatest_before(groups, ends, np.zeros(size, np.int64))
    np.maximum(begins, since, out=since)
    ends -= since
    np.maximum(ends, 0, out=ends)
    found = np.zeros(size, np.int64)
    np.add.at(found, groups, ends)
    return found


def uncovered(first: Any, last: Any, groups: Any, begins: Any, ends: Any) -> tuple[Any, Any, Any]:
    """The parts of time ranges, from ``first`` to ``last``, that no interval covers.

    ``groups``: for each interval the number of the range that it belongs to. Intervals may be empty or end before they
    start. Returns columns with, for each part by range and time, the number of its range, its start and its end.
    """
    # Damaged times, or ends that are not known, may make an interval end before it starts: it covers nothing.
    is_long = ends > begins
    groups = np.concatenate([groups[is_long], np.arange(len(first))])
    # An empty interval at the end of each range, so that the last part is before an interval like the others.
    begins, ends = np.concatenate([begins[is_long], last]), np.concatenate([ends[is_long], last])
    order = np.lexsort((begins, groups))
    groups, begins, ends = groups[order], begins[order], ends[order]
    since = greatest_before(groups, ends, first)
    until = np.minimum(begins, last[groups])
    is_left = until > since
    return groups[is_left], since[is_left], until[is_left]
