"""The bars of the timeline in drawing order, and tiles of them, which hold as much as can be seen.

A row of the timeline is one depth of one lane; its bars follow each other and do not overlap. Spans narrower than a
bucket, which is about a pixel, are merged with their neighbours in the bucket: a tile has their number, total duration,
whether one failed, and the longest of some of them. Wider spans remain single bars. So the size of a tile is limited
by its rows and buckets, whatever it holds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, compress
from operator import sub as minus
from typing import Any, NamedTuple, cast

import numpy as np

from ray_tracing_hooks._insight.analysis.lanes import Lanes
from ray_tracing_hooks._insight.model.grouped import sums
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.views.page.flags import FAILED

MOST_DEPTH = 250
"""As in the page: deeper spans are not drawn."""

BUCKETS_BITS = 9
"""The number of buckets in a tile, as a power of two."""

_LOOKED_AT = 8
"""The number of spans in a bucket among which the longest is searched."""

_MOST_SUM = (1 << 63) - 1


class Bars(NamedTuple):
    """Spans by row of the timeline and start. Times are nanoseconds from the start of the run."""

    begins: Sequence[int]
    """By row of the timeline, the index of its first bar; one item more than rows."""
    row: Sequence[int]
    """The row of the table."""
    start: Sequence[int]
    end: Sequence[int]
    ran: Sequence[int]
    """The total duration of all bars before this one; one item more than bars."""
    failed: Sequence[int]
    """How many bars before this one failed; one item more than bars."""

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[int]]) -> Bars:
        """The bars in columns that :func:`laid_out` made."""
        return cls(*(columns[f"bar_{name}"] for name in cls._fields))

    def only(self, keep: Sequence[int]) -> Bars:
        """The bars to keep, given one byte for each row of the table."""
        wanted = bytes(map(keep.__getitem__, self.row))
        begins = array("q", [0])
        for first, last in zip(self.begins, self.begins[1:], strict=False):
            begins.append(begins[-1] + wanted.count(1, first, last))
        start = array("q", compress(self.start, wanted))
        end = array("q", compress(self.end, wanted))
        failed = compress(map(minus, self.failed[1:], self.failed), wanted)
        return Bars(
            begins,
            array("I", compress(self.row, wanted)),
            start,
            end,
            _sums(as_numpy(end) - as_numpy(start)),
            array("I", accumulate(failed, initial=0)),
        )

    def first_after(self, sub: int, time: int) -> int:
        """The first bar in a row of the timeline that ends after ``time``."""
        return bisect_right(self.end, time, self.begins[sub], self.begins[sub + 1])

    def open_at(self, time: int) -> Iterator[int]:
        """The rows of the table that are open at ``time``."""
        for sub in range(len(self.begins) - 1):
            at = self.first_after(sub, time)
            if at < self.begins[sub + 1] and self.start[at] <= time:
                yield self.row[at]

    def beside(self, sub: int, start: int, row: int) -> tuple[int, int]:
        """The rows of the spans before and after a span in its row of the timeline, -1 for none."""
        low, high = self.begins[sub], self.begins[sub + 1]
        at = bisect_left(self.start, start, low, high)
        while at < high and self.start[at] == start and self.row[at] != row:
            at += 1
        is_there = at < high and self.row[at] == row
        after = at + 1 if is_there else at
        return (self.row[at - 1] if at > low else -1), (self.row[after] if after < high else -1)


class Tile(NamedTuple):
    """What to draw: single spans, and spans that represent all spans of a bucket."""

    sub: array[int]
    """The row of the timeline."""
    row: array[int]
    """The row of the table; for a bucket, that of its longest span."""
    begin: array[int]
    until: array[int]
    many: array[int]
    ran: array[int]
    failed: array[int]


def tile(bars: Bars, level: int, index: int, subs: range) -> Tile:
    """The tile with number ``index`` for some rows of the timeline, ``2**level`` nanoseconds long."""
    found = Tile(*(array("q") for _ in Tile._fields))
    shift = max(0, level - BUCKETS_BITS)
    first, last = index << level, (index + 1) << level
    add = [column.append for column in found]
    starts, ends, rows, ran, failures = bars.start, bars.end, bars.row, bars.ran, bars.failed
    for sub in subs:
        high = bars.begins[sub + 1]
        at = bars.first_after(sub, first)
        if at > bars.begins[sub] and ends[at - 1] == first == starts[at - 1]:
            at -= 1  # an instant at the start of the tile
        while at < high:
            begin = starts[at]
            if begin >= last:
                break
            limit = ((begin >> shift) + 1) << shift
            after = at + 1
            if ends[at] < limit and after < high and starts[after] < limit:
                after = bisect_left(starts, limit, after, high)
                # A span wider than a bucket has its own bar.
                after -= ends[after - 1] - starts[after - 1] > 1 << shift
            longest = at
            if after > at + 1:
                step = max(1, (after - at) // _LOOKED_AT)
                longest = max(range(at, after, step), key=lambda each: ends[each] - starts[each])
            values = sub, rows[longest], begin, ends[after - 1], after - at, ran[after] - ran[at]
            for append, value in zip(add, (*values, failures[after] - failures[at]), strict=True):
                append(value)
            at = after
    return found


def laid_out(columns: Mapping[str, Sequence[int]], deepest: Sequence[int]) -> dict[str, array[int]]:
    """The bars of all spans as columns; ``deepest`` comes from :func:`rows_of_lanes`."""
    first = np.concatenate([[0], np.cumsum(np.array(deepest, np.int64))])
    start, took, flags, lane, depth = (as_numpy(columns[name]) for name in ("start", "took", "flags", "lane", "depth"))
    row = np.nonzero(depth < MOST_DEPTH)[0]
    sub = first[lane[row]] + depth[row]
    row = row[np.argsort(sub, kind="stable")]
    starts, lengths = start[row], took[row]
    begins = np.cumsum(np.bincount(sub + 1, minlength=int(first[-1]) + 1))
    failed = np.cumsum(flags[row] & FAILED != 0)
    return {
        "bar_begins": as_array(begins, "q"),
        "bar_row": as_array(row, "I"),
        "bar_start": as_array(starts, "q"),
        "bar_end": as_array(starts + lengths, "q"),
        "bar_ran": _sums(lengths),
        "bar_failed": as_array(np.concatenate([[0], failed]), "I"),
    }


def _sums(lengths: Any) -> array[int]:
    if sum(sums(np.zeros(len(lengths), np.int64), lengths, 1)) <= _MOST_SUM:
        return as_array(np.concatenate([[0], np.cumsum(lengths)]), "q")
    # More than 292 years: some spans have damaged times, so averages would be meaningless.
    return array("q", (min(each, _MOST_SUM) for each in accumulate(lengths.tolist(), initial=0)))


def rows_of_lanes(lanes: Lanes) -> list[int]:
    """How many rows the timeline has for each lane."""
    deepest, depth = np.zeros(len(lanes.lanes), np.int64), as_numpy(lanes.depth)
    is_drawn = depth < MOST_DEPTH
    np.maximum.at(deepest, as_numpy(lanes.of)[is_drawn], depth[is_drawn] + 1)
    return cast("list[int]", deepest.tolist())
