"""How many executions ran at once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from ray_tracing_hooks._insight.calls import EXECUTION, Calls
from ray_tracing_hooks._insight.path import Path

BUCKETS = 60


@dataclass
class Parallelism:
    """Executions that ran at once; those that waited in ``ray.get`` count by the share of time that they did not."""

    average: float
    """Over the wall time of the run."""
    peak: int
    """The most executions at once, waiting or not."""
    buckets: list[float]
    """The average in equal parts of the wall time, by time."""
    workers: int
    """How many workers ran anything."""
    nodes: int


def parallelism(calls: Calls, self_time: Sequence[int], path: Path) -> Parallelism:
    """The executions of a run over the wall time of its path."""
    table = calls.table
    width = max(1, -(-path.wall // BUCKETS))
    busy = [0.0] * BUCKETS
    whole = [0.0] * BUCKETS
    """Where executions begin, and end, to run in whole buckets."""
    begins, ends = array("q"), array("q")
    workers, nodes = set(), set()
    for row, role in enumerate(calls.role):
        if role != EXECUTION:
            continue
        place = calls.place(row)
        workers.add(place.worker)
        nodes.add(place.node)
        start, end = max(table.start[row], path.start), min(table.end_or_now(row), path.end)
        if end <= start:
            continue
        begins.append(start)
        ends.append(end)
        share = self_time[row] / max(1, table.duration(row))
        first, last = (start - path.start) // width, (end - 1 - path.start) // width
        if first == last:
            busy[first] += share * (end - start)
        else:
            busy[first] += share * (path.start + (first + 1) * width - start)
            busy[last] += share * (end - path.start - last * width)
            whole[first + 1] += share
            whole[last] -= share
    running = 0.0
    for bucket, change in enumerate(whole):
        running += change
        busy[bucket] += running * width
    peak = ended = 0
    ordered = array("q", sorted(ends))
    for begun, start in enumerate(sorted(begins), 1):
        while ordered[ended] <= start:
            ended += 1
        peak = max(peak, begun - ended)
    buckets = [each / width for each in busy] if path.wall else []
    return Parallelism(sum(busy) / max(1, path.wall), peak, buckets, len(workers - {""}), len(nodes - {""}))
