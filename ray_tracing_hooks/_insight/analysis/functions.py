"""Functions and methods of a run: how often and how long they ran and waited."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.critical_path import Path
from ray_tracing_hooks._insight.model.calls import EXECUTION, SUBMISSION, WAITS, Calls


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
    executions: list[int] = field(default_factory=list)
    """The rows of all attempts, retries included, by start. There may be more than calls."""
    self_times: array[int] = field(default_factory=_times)
    """The self time of each execution."""
    durations: array[int] = field(default_factory=_times)
    queued: array[int] = field(default_factory=_times)
    """The queue time, from submission to start, of each call where both are known."""
    submitting: array[int] = field(default_factory=_times)
    """How long each ``.remote()`` took."""
    failed: int = 0
    """The number of executions that failed or were interrupted."""
    on_path: int = 0
    """Time that its code ran on the critical path, and so the most that the run could save if it took no time."""

    @property
    def self_time(self) -> int:
        return sum(self.self_times)


def functions(calls: Calls, self_time: Sequence[int], path: Path) -> list[Function]:
    """Every function that was called, by self time, largest first."""
    table = calls.table
    found = [Function(name) for name in calls.functions]
    for call in range(len(calls)):
        function = found[calls.function[call]]
        function.calls += 1
        row = calls.submission[call]
        if row >= 0:
            function.submitting.append(table.duration(row))
        attempts = calls.attempts(call)
        function.executions += attempts
        if (queued := calls.queued_ns(call)) is not None:
            function.queued.append(queued)
        for attempt in attempts:
            function.self_times.append(self_time[attempt])
            function.durations.append(table.duration(attempt))
            function.failed += table.failed(attempt)
    for function in found:
        function.executions.sort()
        for times in (function.self_times, function.durations, function.queued, function.submitting):
            times[:] = array("q", sorted(times))
        function.on_path = path.functions[function.name]
    return sorted((each for each in found if each.calls), key=lambda each: (-each.self_time, each.name))


def self_times(calls: Calls) -> array[int]:
    """For each execution, by row, its self time: its duration without the time it waited. 0 for other rows."""
    table = calls.table
    waiting = waits(calls)
    found = array("q", bytes(8 * len(table)))
    for row, role in enumerate(calls.role):
        if role == EXECUTION:
            start, end = table.start[row], table.end_or_now(row)
            found[row] = end - start - covered(waiting.get(row, ()), start, end)
    return found


def waits(calls: Calls) -> dict[int, list[tuple[int, int]]]:
    """The intervals in which each frame waited in ``ray.get``, ``ray.wait`` and ``await``, by frame.

    If the process did not record its waits, these are the times in which calls that the frame made had not ended, since
    it may have waited for them.
    """
    table, frame = calls.table, calls.frame
    found: dict[int, list[tuple[int, int]]] = {}
    for row, role in enumerate(calls.role):
        if role in WAITS:
            found.setdefault(frame[row], []).append((table.start[row], table.end_or_now(row)))
        elif role == SUBMISSION and not calls.records_waits(frame[row]):
            execution = calls.execution[calls.call_of[row]]
            if execution >= 0:
                found.setdefault(frame[row], []).append((table.end_or_now(row), table.end_or_now(execution)))
    return found


def covered(intervals: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """How much of the time from ``start`` to ``end`` is in at least one of the intervals."""
    total, done = 0, start
    for begun, ended in sorted(intervals):
        here, there = max(begun, done), min(ended, end)
        if there > here:
            total += there - here
            done = there
    return total


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of the values does not exceed; 0 if there are none.

    If exactly this share does not exceed it, the mean of it and the next value, as for the median of an even number.
    """
    if not ordered:
        return 0
    last, place = len(ordered) - 1, share * len(ordered)
    return (ordered[min(last, max(0, math.ceil(place) - 1))] + ordered[min(last, int(place))]) // 2
