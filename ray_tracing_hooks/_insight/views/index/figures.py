"""Figures of a range or a filter: for stacks, for places, and for how many calls ran at the same time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ray_tracing_hooks._insight.analysis.flame import spent
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER
from ray_tracing_hooks._insight.views.index.filters import FAILED
from ray_tracing_hooks._insight.views.page.content import STRIP

Columns = Mapping[str, Sequence[int]]

WAITING = 64
"""The flag of waits, such as ``ray.get``."""

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
    start, took, flags, lane = columns["start"], columns["took"], columns["flags"], columns["lane"]
    depth, stacks, functions = columns["depth"], columns["flame"], columns["function"]
    stack_count, place_count, function_count = sizes
    spans, wall, until = (array("q", bytes(8 * stack_count)) for _ in range(3))
    summed = [0] * stack_count
    busy, calls, errors, ended, idle = (array("q", bytes(8 * place_count)) for _ in range(5))
    single = _single_lanes(places, place_count)
    seen = bytearray(function_count + 1)
    for row in rows:
        begin, stack = start[row], stacks[row]
        end = begin + took[row]
        begin, end = max(begin, first), min(end, last)
        spans[stack] += 1
        summed[stack] += end - begin
        known = until[stack]
        if end > known:
            wall[stack] += end - max(begin, known)
            until[stack] = end
        seen[functions[row]] = 1
        place = places[lane[row]]
        if flags[row] & FAILED:
            errors[place] += 1
        if flags[row] & WAITING and single[place]:
            known = idle[place]
            if end > known:
                busy[place] -= end - max(begin, known)
                idle[place] = end
        if not depth[row]:
            calls[place] += 1
            known = ended[place]
            if end > known:
                busy[place] += end - max(begin, known)
                ended[place] = end
    return Figures(spans, summed, wall, busy, calls, errors, seen[1:])


def spent_in(
    columns: Columns, parents: Sequence[int], rows: Iterable[int], first: int, last: int, is_wait: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """For each stack the own time of its spans among ``rows`` in a range, and their share of it, as in a ``Flame``.

    ``is_wait``: for each stack, whether it waits.
    """
    start, took, flags, stacks = columns["start"], columns["took"], columns["flags"], columns["flame"]
    here: dict[int, int] = {}
    begins, ends, above, of = array("q"), array("q"), array("q"), array("q")
    for row in rows:
        parent = parents[row]
        if parent >= 0 and flags[row] & 7 == CONSUMER and flags[parent] & 7 == PRODUCER:
            parent = parents[parent]
        above.append(here.get(parent, -1))
        here[row] = len(begins)
        begins.append(max(start[row], first))
        ends.append(max(begins[-1], min(start[row] + took[row], last)))
        of.append(stacks[row])
    return spent(begins, ends, above, of, is_wait, first, last)


def strip(
    columns: Columns, parents: Sequence[int], rows: Iterable[int], extent: int, *, has_calls: bool
) -> tuple[list[float], bytearray]:
    """How many calls (without calls: spans) ran on average in each slice of the run; and the slices with errors.

    ``rows`` are by start. Calls do not count as running while they wait, if their waits are among the rows.
    """
    start, took, flags = columns["start"], columns["took"], columns["flags"]
    running, more, failed = [0.0] * STRIP, [0] * (STRIP + 1), bytearray(STRIP)
    waited: dict[int, int] = {}
    size = extent / STRIP or 1
    top = STRIP - 1
    for row in rows:
        flag, begin = flags[row], start[row]
        end = begin + took[row]
        last = min(top, int(end / size))
        if flag & FAILED:
            failed[last] = 1
        sign = 1
        if has_calls and flag & 7 != CONSUMER:
            held = _execution(flags, parents, row) if flag & WAITING else -1
            if held < 0:
                continue
            # Count each moment once: an execution may wait in several threads.
            begin, end = max(begin, waited.get(held, 0)), min(end, start[held] + took[held])
            if end <= begin:
                continue
            waited[held] = end
            sign = -1
            last = min(top, int(end / size))
        first = min(top, int(begin / size))
        if first == last:
            running[first] += sign * (end - begin) / size
        else:
            running[first] += sign * ((first + 1) * size - begin) / size
            more[first + 1] += sign
            more[last] -= sign
            running[last] += sign * (end - last * size) / size
    covering = 0
    for part in range(STRIP):
        covering += more[part]
        running[part] = max(0.0, running[part] + covering)
    return running, failed


def _execution(flags: Sequence[int], parents: Sequence[int], row: int) -> int:
    """The execution that a span is in, -1 for none, as for spans of a driver."""
    for _ in range(_MOST_ABOVE):
        row = parents[row]
        if row < 0 or flags[row] & 7 == CONSUMER:
            return row
    return -1


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
    begun: list[array[int]] = [array("q") for _ in range(count)]
    done: list[array[int]] = [array("q") for _ in range(count)]
    for row, queued in enumerate(columns["queued"]):
        if queued > 1:
            place, at = places[columns["lane"][row]], columns["start"][row]
            begun[place].append(at - queued + 1)
            done[place].append(at)
    return [_queue(sorted(begun[place]), done[place], extent) if done[place] else None for place in range(count)]


def _queue(begun: Sequence[int], done: Sequence[int], extent: int) -> Queue | None:
    depth = most = ended = 0
    for at in begun:
        depth += 1
        while done[ended] <= at:
            depth -= 1
            ended += 1
        most = max(most, depth)
    total = sum(done) - sum(begun)
    if most < 2 and total <= extent / 100:
        return None
    waited = []
    first = second = sum_begun = sum_done = 0
    for part in range(1, _PARTS + 1):
        time = extent * part // _PARTS
        while first < len(begun) and begun[first] <= time:
            sum_begun += begun[first]
            first += 1
        while second < len(done) and done[second] <= time:
            sum_done += done[second]
            second += 1
        waited.append(first * time - sum_begun - (second * time - sum_done))
    return Queue(most, waited)
