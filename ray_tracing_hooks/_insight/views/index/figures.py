"""Figures of a range or a filter: for stacks, for places, and for how many calls ran at the same time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks._insight.analysis.flame import spent
from ray_tracing_hooks._insight.model.grouped import (
    covered_by_group,
    distinct,
    greatest_before,
    most_at_once,
    split,
    sums,
)
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER
from ray_tracing_hooks._insight.views.page.content import STRIP
from ray_tracing_hooks._insight.views.page.flags import FAILED, KIND, WAITING

Columns = Mapping[str, Sequence[int]]

_MOST_ABOVE = 1000


class Figures(NamedTuple):
    """The same figures that the page computes from the spans it holds. Times are nanoseconds."""

    spans: array[int]
    summed: list[int]
    wall: array[int]
    """For each stack of the flame graph: number of spans, total duration, and the time in which at least one ran."""
    busy: array[int]
    calls: array[int]
    errors: array[int]
    """For each place: the time in which something ran without waiting, the number of outermost spans, and of errors."""
    functions: bytearray
    """For each function whether it occurs."""


def figures(
    columns: Columns,
    rows: Iterable[int],
    first: int,
    last: int,
    places: Sequence[int],
    sizes: tuple[int, int, int],
) -> Figures:
    """The figures of ``rows``, which are by start and overlap a range.

    ``sizes``: the numbers of stacks, places and functions.
    """
    # A slice of a column is not copied.
    chosen = slice(rows.start, rows.stop, rows.step) if isinstance(rows, range) else _numbers(rows)
    start, took, flags, lane, depth, stack, function = (
        as_numpy(columns[name])[chosen] for name in ("start", "took", "flags", "lane", "depth", "flame", "function")
    )
    stack_count, place_count, function_count = sizes
    begin, end = np.maximum(start, first), np.minimum(start + took, last)
    place = np.array(places, np.int64)[lane]
    single = np.array(_single_lanes(places, place_count), bool)
    is_idle, is_outer = (flags & WAITING != 0) & single[place], depth == 0
    idle, ran = (covered_by_group(place[each], begin[each], end[each], place_count) for each in (is_idle, is_outer))
    seen = np.zeros(function_count + 1, np.uint8)
    seen[function] = 1
    return Figures(
        as_array(np.bincount(stack, minlength=stack_count), "q"),
        sums(stack, end - begin, stack_count),
        as_array(covered_by_group(stack, begin, end, stack_count), "q"),
        as_array(np.maximum(ran - idle, 0), "q"),  # a filter may keep waits without what waited
        as_array(np.bincount(place[is_outer], minlength=place_count), "q"),
        as_array(np.bincount(place[flags & FAILED != 0], minlength=place_count), "q"),
        bytearray(seen[1:]),
    )


def spent_in(
    columns: Columns, parents: Sequence[int], rows: Iterable[int], first: int, last: int, is_wait: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """For each stack the own time of its spans among ``rows`` in a range, and their share of it, as in a ``Flame``.

    ``is_wait``: for each stack, whether it waits.
    """
    chosen = _numbers(rows)
    start, took, kind = (as_numpy(columns[name])[chosen] for name in ("start", "took", "flags"))
    above, kind = as_numpy(parents)[chosen].astype(np.int64), kind & KIND
    is_call = (above >= 0) & (kind == CONSUMER) & (as_numpy(columns["flags"])[above] & KIND == PRODUCER)
    above = np.where(is_call, as_numpy(parents)[above], above)
    # The last item stays -1: an index of -1, for a row without a parent, selects it.
    here = np.full(len(parents) + 1, -1)
    here[chosen] = np.arange(len(chosen))
    above = here[above]
    # Rows are by start. A parent that starts after its child does not count as one.
    above = np.where(above < np.arange(len(chosen)), above, -1)
    begins = np.maximum(start, first)
    ends = np.maximum(begins, np.minimum(start + took, last))
    return spent(begins, ends, above, as_numpy(columns["flame"])[chosen].astype(np.int64), is_wait, first, last)


def _numbers(rows: Iterable[int]) -> Any:
    """Rows as a NumPy column."""
    return np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else np.fromiter(rows, np.int64)


def strip(
    columns: Columns, parents: Sequence[int], rows: Iterable[int], extent: int, *, has_calls: bool
) -> tuple[list[float], bytearray]:
    """How many calls (without calls: spans) ran on average in each slice of the run; and the slices with errors.

    ``rows`` are by start. Calls do not count as running while they wait, if their waits are among the rows.
    """
    chosen = _numbers(rows)
    start, took, flags = (as_numpy(columns[name])[chosen] for name in ("start", "took", "flags"))
    size = extent / STRIP or 1
    end = start + took
    failed = bytearray(STRIP)
    for part in distinct(_part(end[flags & FAILED != 0], size)).tolist():
        failed[part] = 1
    begin, sign = start, np.ones(len(chosen), np.int64)
    if has_calls:
        is_run = flags & KIND == CONSUMER
        is_wait = ~is_run & (flags & WAITING != 0)
        held = _executions(columns, parents, chosen[is_wait])
        waits = np.nonzero(is_wait)[0][held >= 0]
        since, until = _once(columns, start[waits], end[waits], held[held >= 0])
        begin = begin.copy()
        begin[waits], end[waits], sign[waits] = since, until, -1
        is_run[waits[until > since]] = True
        begin, end, sign = begin[is_run], end[is_run], sign[is_run]
    from_part, to_part = _part(begin, size), _part(end, size)
    is_in_one = from_part == to_part
    at_first = np.where(is_in_one, sign * (end - begin), sign * ((from_part + 1) * size - begin)) / size
    at_last = np.where(is_in_one, 0, sign * (end - to_part * size) / size)
    # Sums of floats depend on the order, so add in the order of the spans.
    parts, shares = np.stack([from_part, to_part], axis=1).ravel(), np.stack([at_first, at_last], axis=1).ravel()
    running = np.bincount(parts, shares, STRIP).tolist()
    more = np.zeros(STRIP + 1, np.int64)
    np.add.at(more, from_part[~is_in_one] + 1, sign[~is_in_one])
    np.subtract.at(more, to_part[~is_in_one], sign[~is_in_one])
    covering = 0
    for part, change in enumerate(more[:STRIP].tolist()):
        covering += change
        running[part] = max(0.0, running[part] + covering)
    return running, failed


def _part(time: Any, size: float) -> Any:
    """The part of the strip that each time is in."""
    return np.minimum(STRIP - 1, (time / size).astype(np.int64))


def _once(columns: Columns, begin: Any, end: Any, held: Any) -> tuple[Any, Any]:
    """Clip waits, by start, so that each moment counts once: an execution may wait in several threads."""
    executions, number = np.unique(held, return_inverse=True)
    order = np.argsort(number, kind="stable")
    until = np.minimum(end, (as_numpy(columns["start"]) + as_numpy(columns["took"]))[held])
    waited = np.empty_like(begin)
    # An empty wait, or one after the end of its execution, does not affect later ones.
    own = np.where(until > begin, until, 0)
    waited[order] = greatest_before(number[order], own[order], np.zeros(len(executions), np.int64))
    return np.maximum(begin, waited), until


def _executions(columns: Columns, parents: Sequence[int], rows: Any) -> Any:
    """The executions that spans are in, -1 for none, as for spans of a driver."""
    flags, parent = as_numpy(columns["flags"]), as_numpy(parents)
    found = parent[rows].astype(np.int64)
    for _ in range(_MOST_ABOVE - 1):
        is_inside = (found >= 0) & (flags[found] & KIND != CONSUMER)
        if not is_inside.any():
            return found
        found[is_inside] = parent[found[is_inside]]
    return np.where((found >= 0) & (flags[found] & KIND == CONSUMER), found, -1)


def _single_lanes(places: Sequence[int], count: int) -> list[bool]:
    """For each place whether at most one execution runs there at a time, so that nothing runs while it waits."""
    lanes = [0] * count
    for place in places:
        lanes[place] += 1
    return [each == 1 for each in lanes]


class Queue(NamedTuple):
    """The calls that waited for a place."""

    most: int
    """The most that waited at the same time."""
    waited: list[int]
    """The total time that calls have waited by the end of each slice of the run."""


_PARTS = 1024


def queues(columns: Columns, places: Sequence[int], count: int, extent: int) -> list[Queue | None]:
    """The queue of each place; None if hardly any calls waited."""
    queued, place_of = as_numpy(columns["queued"]), np.array(places, np.int64)
    rows = np.nonzero(queued > 1)[0]
    place, at = place_of[as_numpy(columns["lane"])[rows]], as_numpy(columns["start"])[rows]
    begun, done = split(place, count, at - queued[rows] + 1, at)
    return [
        _queue(np.sort(first), last, extent) if len(last) else None for first, last in zip(begun, done, strict=True)
    ]


def _queue(begun: Any, done: Any, extent: int) -> Queue | None:
    most = most_at_once(begun, done)
    total = sum(done.tolist()) - sum(begun.tolist())
    if most < 2 and total <= extent / 100:
        return None
    waited = []
    sums_begun, sums_done = (np.concatenate([[0], np.cumsum(each)]) for each in (begun, done))
    for part in range(1, _PARTS + 1):
        time = extent * part // _PARTS
        first, second = (int(np.searchsorted(each, time, side="right")) for each in (begun, done))
        waited.append(first * time - int(sums_begun[first]) - (second * time - int(sums_done[second])))
    return Queue(most, waited)
