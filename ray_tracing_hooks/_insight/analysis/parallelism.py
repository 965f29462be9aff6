"""How many calls ran at the same time, by the definition that all views share.

A call *runs* while its own code does: from the start of an execution to its end, without the time it waits in
``ray.get``, ``ray.wait`` and ``await`` (:func:`~ray_tracing_hooks._insight.analysis.functions.waits`). During that time
the execution is *waiting*: it occupies its worker but does nothing. A driver is not a call and counts as neither.

So the sum of the self times of all functions is the mean number of running calls times the duration of the run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ray_tracing_hooks._insight.analysis.critical_path import Path
from ray_tracing_hooks._insight.analysis.functions import waits
from ray_tracing_hooks._insight.model.calls import EXECUTION, Calls

BUCKETS = 60


@dataclass
class Parallelism:
    """How many calls ran at the same time, over the wall time of a run."""

    average: float
    """How many ran, on average."""
    peak: int
    """The most that ran at any moment."""
    waiting: float
    """How many executions waited, on average."""
    buckets: list[float]
    """How many ran, on average, in each of equal slices of the wall time."""
    workers: int
    """How many workers ran at least one call."""
    nodes: int


def parallelism(calls: Calls, path: Path) -> Parallelism:
    """The parallelism of a run over the wall time of its path."""
    table = calls.table
    workers, nodes = set(), set()
    held = 0
    for row, role in enumerate(calls.role):
        if role == EXECUTION:
            place = calls.place(row)
            workers.add(place.worker)
            nodes.add(place.node)
            held += max(0, min(table.end_or_now(row), path.end) - max(table.start[row], path.start))
    begins, ends = array("q"), array("q")
    for _, start, end in running(calls):
        if min(end, path.end) > max(start, path.start):
            begins.append(max(start, path.start))
            ends.append(min(end, path.end))
    ran = sum(ends) - sum(begins)
    wall = max(1, path.wall)
    return Parallelism(
        average=ran / wall,
        peak=_peak(begins, ends),
        waiting=(held - ran) / wall,
        buckets=means(zip(begins, ends, strict=True), path.start, path.wall, BUCKETS) if path.wall else [],
        workers=len(workers - {""}),
        nodes=len(nodes - {""}),
    )


def running(calls: Calls) -> Iterator[tuple[int, int, int]]:
    """The intervals in which the code of each execution ran: its row, start and end; several if it waited."""
    table = calls.table
    waiting = waits(calls)
    for row, role in enumerate(calls.role):
        if role != EXECUTION:
            continue
        done, end = table.start[row], table.end_or_now(row)
        for begun, ended in sorted(waiting.get(row, ())):
            if min(begun, end) > done:
                yield row, done, min(begun, end)
            done = max(done, ended)
        if end > done:
            yield row, done, end


def means(intervals: Iterable[tuple[int, int]], start: int, length: int, parts: int) -> list[float]:
    """How many intervals overlap, on average, in each of equal slices of the time from ``start``."""
    width = max(1, -(-length // parts))
    found = [0.0] * parts
    whole = [0] * (parts + 1)
    """By slice, how many more intervals fill it completely than fill the slice before."""
    for begin, end in intervals:
        first, last = (begin - start) // width, (end - 1 - start) // width
        if first == last:
            found[first] += end - begin
        else:
            found[first] += start + (first + 1) * width - begin
            found[last] += end - start - last * width
            whole[first + 1] += 1
            whole[last] -= 1
    filling = 0
    for part in range(parts):
        filling += whole[part]
        # The last slice may be shorter than the others.
        found[part] = (found[part] + filling * width) / max(1, min(width, length - part * width))
    return found


def _peak(begins: Iterable[int], ends: Iterable[int]) -> int:
    peak = ended = 0
    ordered = array("q", sorted(ends))
    for begun, start in enumerate(sorted(begins), 1):
        while ordered[ended] <= start:
            ended += 1
        peak = max(peak, begun - ended)
    return peak
