"""Functions and methods of a run: how often and how long they ran and waited, and how many calls ran at the same time.

A call *runs* while its own code does: from the start of an execution to its end, without the time it waits in
``ray.get``, ``ray.wait`` and ``await`` (:func:`waits`). During that time the execution is *waiting*: it occupies its
worker but does nothing. A driver is not a call and counts as neither.

So the sum of the self times of all functions is the mean number of running calls times the duration of the run.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ray_tracing_hooks._insight.analysis.critical_path import Path
from ray_tracing_hooks._insight.analysis.pipelines import executions_waited_for
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, EXECUTION, NOWHERE, PARTLY, SUBMISSION, WAITS, Calls
from ray_tracing_hooks._insight.model.grouped import distinct, most_at_once, split, uncovered
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy


def _times() -> array[int]:
    return array("q")


@dataclass
class Function:
    """A function or method. Times are nanoseconds; lists of times are sorted.

    Calls that ``.options(name=...)`` gave different names may count as functions of their own; see :class:`Calls`.
    """

    name: str
    calls: int = 0
    """The number of submissions, and of executions without a recorded submission."""
    executions: array[int] = field(default_factory=lambda: array("i"))
    """The rows of all attempts, retries included, by start. There may be more than calls."""
    self_times: array[int] = field(default_factory=_times)
    """The self time of each execution."""
    durations: array[int] = field(default_factory=_times)
    queued: array[int] = field(default_factory=_times)
    """The queue time, from submission to start, of each call where both are known."""
    submitting: array[int] = field(default_factory=_times)
    """How long each ``.remote()`` took."""
    failed: int = 0
    """The number of executions that failed or were interrupted, and of submissions that failed."""
    on_path: int = 0
    """Time that its code ran on the critical path, and so the most that the run could save if it took no time."""
    is_assumed: bool = False
    """Whether the self time of an execution is assumed: see :func:`assumed_times`."""
    has_waits: bool = False
    """Whether waits of an execution were recorded."""
    waits_recorded: str = NOWHERE
    """``EVERYWHERE``, ``PARTLY`` or ``NOWHERE``: where waits were recorded, of the processes that ran it."""

    @property
    def self_time(self) -> int:
        return sum(self.self_times)


def functions(calls: Calls, self_time: Sequence[int], assumed: Any, path: Path, is_failed: Any) -> list[Function]:
    """Every function that was called, by self time, largest first; ``assumed`` and ``is_failed`` are NumPy columns."""
    table, size = calls.table, len(calls.functions)
    start, ends = as_numpy(table.start), as_numpy(table.ends)
    of, submission = as_numpy(calls.function), as_numpy(calls.submission)
    ran = calls.rows_of(EXECUTION)
    of_run = of[as_numpy(calls.call_of)[ran]]
    called = np.nonzero(submission >= 0)[0]
    queued = calls.queued()
    waited = np.nonzero(queued >= 0)[0]
    made = submission[called]
    refused = called[is_failed[made] & (as_numpy(calls.execution)[called] < 0)]
    recorded = np.array(calls.waits_recorded, bool)[as_numpy(table.resource)[ran]]
    columns = zip(
        calls.functions,
        np.bincount(of, minlength=size).tolist(),
        split(of_run, size, ran)[0],
        _sorted(of_run, size, as_numpy(self_time)[ran]),
        _sorted(of_run, size, ends[ran] - start[ran]),
        _sorted(of[waited], size, queued[waited]),
        _sorted(of[called], size, ends[made] - start[made]),
        np.bincount(np.concatenate([of_run[is_failed[ran]], of[refused]]), minlength=size).tolist(),
        np.bincount(of_run, assumed[ran], size).astype(bool).tolist(),
        np.bincount(of_run, _has_waits(calls)[ran], size).astype(bool).tolist(),
        map(where_of, np.bincount(of_run, recorded, size).tolist(), np.bincount(of_run, minlength=size).tolist()),
        strict=True,
    )
    found = [
        Function(name, many, as_array(rows, "i"), own, took, queues, submitting, failed, path.functions[name], *known)
        for name, many, rows, own, took, queues, submitting, failed, *known in columns
        if many
    ]
    return sorted(found, key=lambda each: (-each.self_time, each.name))


def where_of(part: float, whole: int) -> str:
    """Where waits were recorded, if they were in the processes of so many of all executions."""
    return NOWHERE if not part else EVERYWHERE if part == whole else PARTLY


def _sorted(groups: Any, size: int, values: Any) -> list[array[int]]:
    (found,) = split(groups, size, values)
    return [as_array(np.sort(each), "q") for each in found]


Pieces = tuple[Any, Any, Any]
"""Intervals as NumPy columns: the row that each belongs to, its start and its end."""


def self_times(calls: Calls, running: Pieces) -> array[int]:
    """For each execution, by row, its self time: the sum of its intervals in ``running``. 0 for other rows."""
    rows, begins, ends = running
    found = np.zeros(len(calls.table), np.int64)
    np.add.at(found, rows, ends - begins)
    return as_array(found, "q")


def assumed_times(calls: Calls) -> Any:
    """For each row, as a NumPy column, whether it is an execution whose self time is assumed.

    Its process did not record its waits, and it made calls. The time in which these ran is taken to be waiting, so the
    self time is the least that its own code can have run.
    """
    found = np.zeros(len(calls.table), bool)
    frames = as_numpy(calls.frame)[_made_unrecorded(calls)]
    found[frames[frames < len(found)]] = True
    return found & (as_numpy(calls.role) == EXECUTION)


def running(calls: Calls, *, with_requests: bool = False) -> Pieces:
    """The intervals in which the code of each execution ran, by row and time; several if it waited.

    ``with_requests``: also that of requests in replicas of Ray Serve.
    """
    table = calls.table
    is_run = as_numpy(calls.role) == EXECUTION
    ran = np.nonzero(is_run | calls.is_in_replica if with_requests else is_run)[0]
    number = np.full(len(table), -1)
    number[ran] = np.arange(len(ran))
    frames, begins, ends = waits(calls)
    is_of_row = frames < len(table)
    own = number[frames[is_of_row]]
    here = np.nonzero(is_of_row)[0][own >= 0]
    first, last = as_numpy(table.start)[ran], as_numpy(table.ends)[ran]
    of_run, since, until = uncovered(first, last, own[own >= 0], begins[here], ends[here])
    return ran[of_run], since, until


def waits(calls: Calls) -> Pieces:
    """The intervals in which each frame waited in ``ray.get``, ``ray.wait`` and ``await``, and for Ray Data.

    If the process did not record its waits, these are the times in which calls that the frame made had not ended, since
    it may have waited for them.
    """
    frame, role, ends = as_numpy(calls.frame), as_numpy(calls.role), as_numpy(calls.table.ends)
    waited = np.concatenate([np.nonzero(np.isin(role, WAITS))[0], executions_waited_for(calls)])
    made = _made_unrecorded(calls)
    execution = as_numpy(calls.execution)[as_numpy(calls.call_of)[made]]
    return (
        np.concatenate([frame[waited], frame[made]]),
        np.concatenate([as_numpy(calls.table.start)[waited], ends[made]]),
        np.concatenate([ends[waited], ends[execution]]),
    )


def _made_unrecorded(calls: Calls) -> Any:
    """The rows of submissions of calls that ran, by frames whose process did not record its waits."""
    made = calls.rows_of(SUBMISSION)
    recorded = np.array(calls.waits_recorded, bool)
    made = made[~recorded[calls.resources_of(as_numpy(calls.frame)[made])]]
    return made[as_numpy(calls.execution)[as_numpy(calls.call_of)[made]] >= 0]


def _has_waits(calls: Calls) -> Any:
    """For each row, as a NumPy column, whether waits of it were recorded."""
    found = np.zeros(len(calls.table), bool)
    frames = as_numpy(calls.frame)[np.isin(as_numpy(calls.role), WAITS)]
    found[frames[frames < len(found)]] = True
    return found


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of the values does not exceed; 0 if there are none.

    If exactly this share does not exceed it, the mean of it and the next value, as for the median of an even number.
    """
    if not ordered:
        return 0
    last, place = len(ordered) - 1, share * len(ordered)
    return (ordered[min(last, max(0, math.ceil(place) - 1))] + ordered[min(last, int(place))]) // 2


def are_always_longer(times: Any, others: Any, parts: int) -> bool:
    """Whether each of so many parts of the times, by call, has a longer median than any part of the others."""
    ours, theirs = ([float(np.median(part)) for part in np.array_split(each, parts)] for each in (times, others))
    return min(ours) > max(theirs)


_MOST_OF_RESOURCE = 1e15
"""No call needs as much, which is in bytes for memory."""


def resources_of(assigned: str) -> dict[str, float]:
    """The resources that were assigned to an execution, by their JSON."""
    try:
        found = json.loads(assigned or "{}")
    except (ValueError, RecursionError):
        return {}
    return {
        str(key): float(value)
        for key, value in (found.items() if isinstance(found, dict) else ())
        if isinstance(value, (int, float)) and 0 < value < _MOST_OF_RESOURCE
    }


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
    ran = calls.rows_of(EXECUTION)
    places = [calls.places[site] for site in distinct(as_numpy(table.site)[ran]).tolist()]
    held = np.minimum(as_numpy(table.ends)[ran], path.end) - np.maximum(as_numpy(table.start)[ran], path.start)
    begins, ends = np.maximum(running[1], path.start), np.minimum(running[2], path.end)
    begins, ends = begins[ends > begins], ends[ends > begins]
    total = sum((ends - begins).tolist())
    wall = max(1, path.wall)
    return Parallelism(
        average=total / wall,
        peak=most_at_once(begins, ends),
        waiting=(sum(np.maximum(held, 0).tolist()) - total) / wall,
        buckets=means(begins, ends, path.start, path.wall, BUCKETS) if path.wall else [],
        workers=len({place.worker for place in places} - {""}),
        nodes=len({place.node for place in places} - {""}),
    )


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
