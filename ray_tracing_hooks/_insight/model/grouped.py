"""Trees and groups of rows, gone over as whole columns: a step in Python for each of ten million rows takes minutes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np


def tops(above: Any) -> Any:
    """For each row of a forest the root that it is below. ``above`` is the row above each one, -1 for roots."""
    found = np.where(above < 0, np.arange(len(above), dtype=np.int32), above).astype(np.int32)
    while True:
        # Each round goes twice as far up as the one before.
        further = found[found]
        if (further == found).all():
            return found
        found = further


def levels(above: Any) -> Any:
    """For each row of such a forest how many rows it is below."""
    found = (above >= 0).astype(np.int32)
    up = np.where(above < 0, np.arange(len(above), dtype=np.int32), above).astype(np.int32)
    while True:
        further = up[up]
        if (further == up).all():
            return found
        found += found[up]
        up = further


def by_first(column: Any) -> list[int]:
    """The different numbers of a column, in the order in which they come."""
    found, first = np.unique(column, return_index=True)
    return cast("list[int]", found[np.argsort(first)].tolist())


def unique_columns(keys: Any) -> tuple[Any, Any]:
    """Of the different columns of a matrix of numbers where each is first, and for each column which of these it is."""
    number = np.zeros(keys.shape[1], np.int64)
    for row in keys:
        # Together no more than there are columns, so that the next number fits as well.
        own, of = np.unique(row, return_inverse=True)
        number = np.unique(number * len(own) + of, return_inverse=True)[1]
    return np.unique(number, return_index=True, return_inverse=True)[1:]


def sums(groups: Any, values: Any, size: int) -> list[int]:
    """For each of so many groups the sum of its values, which may be more than a column can hold."""
    low, high = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(low, groups, values & 0xFFFFFFFF)
    np.add.at(high, groups, values >> 32)
    return [(upper << 32) + lower for lower, upper in zip(low.tolist(), high.tolist(), strict=True)]


def split(groups: Any, size: int, *columns: Any) -> list[list[Any]]:
    """Columns cut by group: for each of so many groups, and each column, its values in their order."""
    order = np.argsort(groups, kind="stable")
    cuts = np.searchsorted(groups[order], np.arange(1, size))
    return [np.split(column[order], cuts)[:size] for column in columns]


def greatest_before(groups: Any, values: Any, least: Any) -> Any:
    """For each value the greatest of those before it in its group, and of the group's least one.

    ``groups`` are ascending; ``least`` has a value for each of them.
    """
    many = len(values)
    order = np.argsort(values)
    rank = np.empty(many, np.int64)
    rank[order] = np.arange(many)
    # As one number with its group, the greatest rank so far is one of the same group.
    rank += groups.astype(np.int64) * many
    np.maximum.accumulate(rank, out=rank)
    rank %= max(many, 1)
    found = least[groups]
    is_same = groups[1:] == groups[:-1]
    found[1:][is_same] = np.maximum(found[1:][is_same], values[order[rank[:-1][is_same]]])
    return found


def most_at_once(begins: Any, ends: Any) -> int:
    """The most of some intervals, of which none is empty, that there are at one moment."""
    ended = np.searchsorted(np.sort(ends), np.sort(begins), side="right")
    return int(max(np.arange(1, len(begins) + 1) - ended, default=0))


def covered_by_group(groups: Any, begins: Any, ends: Any, size: int) -> Any:
    """For each of so many groups the time in which at least one of its intervals is. They come by begin, from 0 on."""
    order = np.argsort(groups, kind="stable")
    groups, begins, ends = groups[order], begins[order], ends[order]
    since = np.maximum(begins, greatest_before(groups, ends, np.zeros(size, np.int64)))
    found = np.zeros(size, np.int64)
    np.add.at(found, groups, np.maximum(ends - since, 0))
    return found


def uncovered(first: Any, last: Any, groups: Any, begins: Any, ends: Any) -> tuple[Any, Any, Any]:
    """What is left of stretches of time, from ``first`` to ``last``, without some intervals.

    ``groups`` says to which stretch each interval belongs. For each piece, by stretch and time, the number of its
    stretch, and from when until when it is.
    """
    groups = np.concatenate([groups, np.arange(len(first))])
    # An interval without length at the end of each stretch: what is before it is the last piece.
    begins, ends = np.concatenate([begins, last]), np.concatenate([ends, last])
    order = np.lexsort((begins, groups))
    groups, begins, ends = groups[order], begins[order], ends[order]
    since = greatest_before(groups, ends, first)
    until = np.minimum(begins, last[groups])
    is_left = until > since
    return groups[is_left], since[is_left], until[is_left]
