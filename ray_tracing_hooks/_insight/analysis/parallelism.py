"""How many calls ran at once: what every view means by it.

A call *runs* while its own code does: from the beginning of an execution to its end, without what it waits in
``ray.get``, ``ray.wait`` and ``await`` (:func:`~ray_tracing_hooks._insight.analysis.functions.waits`). An execution
that waits is *waiting*: it holds its worker, and does nothing there. A driver is no call, and counts as neither.

So the sum of the self times of all functions is the mean of what runs, times the length of the run.
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
    """Calls that ran at once, over the wall time of a run."""

    average: float
    """How many ran, on average."""
    peak: int
    """The most that ran at one moment."""
    waiting: float
    """How many executions waited instead, on average."""
    buckets: list[float]
    """The average of what ran in equal parts of the wall time, by time."""
    workers: int
    """How many workers ran anything."""
    nodes: int


def parallelism(calls: Calls, path: Path) -> Parallelism:
    """The calls of a run over the wall time of its path."""
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
    """When the own code of each execution ran: its row, and from when until when, several times if it waited."""
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
    """How many of the intervals there are at once, on average, in each of equal parts of the time since ``start``."""
    width = max(1, -(-length // parts))
    found = [0.0] * parts
    whole = [0] * (parts + 1)
    """Where intervals begin, and end, to fill whole parts."""
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
        # The last part may be shorter than the others.
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
