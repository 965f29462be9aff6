"""How many calls ran at the same time, by the definition that all views share.

A call *runs* while its own code does: from the start of an execution to its end, without the time it waits in
``ray.get``, ``ray.wait`` and ``await`` (:func:`~ray_tracing_hooks._insight.analysis.functions.waits`). During that time
the execution is *waiting*: it occupies its worker but does nothing. A driver is not a call and counts as neither.

So the sum of the self times of all functions is the mean number of running calls times the duration of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ray_tracing_hooks._insight.analysis.critical_path import Path
from ray_tracing_hooks._insight.analysis.functions import Pieces
from ray_tracing_hooks._insight.model.calls import EXECUTION, Calls
from ray_tracing_hooks._insight.model.grouped import distinct, most_at_once, sums
from ray_tracing_hooks._insight.model.merge import as_numpy

_CHUNK = 1 << 17

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


def parallelism(calls: Calls, running: Pieces, path: Path) -> Parallelism:
    """The parallelism of a run over the wall time of its path, from the intervals in which its calls were running."""
    table = calls.table
    ran = np.nonzero(as_numpy(calls.role) == EXECUTION)[0]
    places = [calls.places[site] for site in distinct(as_numpy(table.site)[ran]).tolist()]
    held = sum(sums(*_within(path, as_numpy(table.start)[ran], as_numpy(table.ends)[ran])))
    begins, ends = np.maximum(running[1], path.start), np.minimum(running[2], path.end)
    begins, ends = begins[ends > begins], ends[ends > begins]
    total = sum(sums(np.zeros(len(begins), np.int64), ends - begins, 1))
    wall = max(1, path.wall)
    return Parallelism(
        average=total / wall,
        peak=most_at_once(begins, ends),
        waiting=(held - total) / wall,
        buckets=means(begins, ends, path.start, path.wall, BUCKETS) if path.wall else [],
        workers=len({place.worker for place in places} - {""}),
        nodes=len({place.node for place in places} - {""}),
    )


def _within(path: Path, begins: Any, ends: Any) -> tuple[Any, Any, int]:
    """How long each interval is within a path, as arguments of :func:`sums` that put all in one group."""
    lengths = np.maximum(0, np.minimum(ends, path.end) - np.maximum(begins, path.start))
    return np.zeros(len(lengths), np.int64), lengths, 1


def means(begins: Any, ends: Any, start: int, length: int, parts: int) -> list[float]:
    """How many intervals overlap, on average, in each of equal slices of the time from ``start``."""
    width = max(1, -(-length // parts))
    partly = np.zeros(parts)
    change = np.zeros(parts + 1, np.int64)
    """By slice, how many intervals start minus how many stop to fill whole slices with it."""
    for begun in range(0, len(begins), _CHUNK):
        begin, end = begins[begun : begun + _CHUNK], ends[begun : begun + _CHUNK]
        first, last = (begin - start) // width, (end - 1 - start) // width
        is_in_one = first == last
        at_first = np.where(is_in_one, end - begin, start + (first + 1) * width - begin)
        at_last = np.where(is_in_one, 0, end - start - last * width)
        # Sums of floats depend on the order, so add in the order of the intervals.
        places, times = np.stack([first, last], axis=1), np.stack([at_first, at_last], axis=1)
        np.add.at(partly, places.ravel(), times.ravel())
        for each, sign in ((first + 1, 1), (last, -1)):
            change += sign * np.bincount(each[~is_in_one], minlength=parts + 1)
    found = partly.tolist()
    filling = 0
    for part, changed in enumerate(change[:parts].tolist()):
        filling += changed
        # The last slice may be shorter than the others.
        found[part] = (found[part] + filling * width) / max(1, min(width, length - part * width))
    return cast("list[float]", found)
