"""A run of Ray Train that takes long until its first step: for resources, workers, its backend, or in the training
loop.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import STARTING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import in_both
from ray_tracing_hooks._insight.analysis.training import Attempt, TrainRun
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import EXECUTION, SUBMISSION
from ray_tracing_hooks._insight.model.merge import as_numpy

KIND = "training-start"

_COST = 0.1
_SECONDS = {"controller": 15, "resources": 2, "workers": 20, "backend": 15, "loop": 30}
_USUAL = {part: seconds * 10**9 for part, seconds in _SECONDS.items()}
"""How long each part of the start may take. The loop's is that until its first step."""

_CREATION = "RayTrainWorker.__init__"

_WHAT = {
    "controller": "for its controller to start",
    "resources": "for resources for its workers",
    "workers": "for its workers to start",
    "backend": "for the set-up of its workers and their backend",
    "loop": "from the start of the training loops to their first step",
}
_WITH_PROCESSES = ("controller", "workers")
"""The parts in which worker processes start."""
_TO_STEP, _TO_LOOPS = "its first step", "its training loops, which took no step"
_ADVICE = {
    "controller": "start it on a node that is not busy, and with a small runtime_env",
    "resources": "free resources that are held but not used, ask for less per worker, or add nodes before the run",
    "workers": "start with images that have all packages, a small runtime_env, and fewer workers on each node",
    "backend": "look at the calls of RayTrainWorker before the training loops, such as the set-up of process groups",
    "loop": "load models and data once for each node, or while other parts of the run start",
}


def find(analysis: Analysis) -> list[Finding]:
    """Runs in which a part of the start took longer than usual, and at least a tenth of the whole time.

    It measures the time from ``fit()`` to the first step, by what is recorded of it: the attempt, the creation of its
    workers, and the training loops. What is longer than usual in the longest of these parts is what it costs, since
    the caller waits.
    """
    return [_finding(analysis, *each) for each in _slow_starts(analysis)]


def starting_meanwhile(analysis: Analysis) -> int:
    """How much of the time in which the run waited for workers to start is in the part that such a finding is about."""
    times = []
    for run, parts, _, slow in _slow_starts(analysis):
        if slow in _WITH_PROCESSES:
            before = list(parts)[: list(parts).index(slow)]
            begin = analysis.table.start[run.row] + sum(parts[part] for part in before)
            times.append((begin, begin + parts[slow]))
    steps = analysis.path.steps
    return in_both(times, ((step.start, step.end) for step in steps if step.kind == STARTING))


def _slow_starts(analysis: Analysis) -> Iterator[tuple[TrainRun, dict[str, int], int, str]]:
    """Each run with its parts, their total, and the slowest part."""
    wall = analysis.path.wall
    for run in analysis.train_runs:
        parts, total = _parts(analysis, run)
        slow = {part: took for part, took in parts.items() if took > _USUAL[part] and wall and took / wall >= _COST}
        if slow:
            yield run, parts, total, max(slow, key=lambda part: slow[part])


def _parts(analysis: Analysis, run: TrainRun) -> tuple[dict[str, int], int]:
    """How long each part of the start of a run took, in nanoseconds: those that are known, in their order. And how long
    all of it took.
    """
    if not run.attempts or not run.attempts[0].ranks:
        return {}, 0
    table, attempt = analysis.table, run.attempts[0]
    begun = min(table.start[rank.row] for rank in attempt.ranks)
    asked, ready = _workers(analysis, attempt)
    steps = [table.start[rank.steps[0].row] for rank in attempt.ranks if rank.steps]
    moments = {
        "controller": table.start[attempt.row],
        "resources": asked,
        "workers": ready,
        "backend": begun,
        "loop": min(steps, default=0),
    }
    parts, before = {}, table.start[run.row]
    for part, moment in moments.items():
        if moment >= before:
            # Where the creation of workers was not recorded, this may be the time that they took to start.
            if part != "backend" or ready:
                parts[part] = moment - before
            before = moment
    return parts, before - table.start[run.row]


def _workers(analysis: Analysis, attempt: Attempt) -> tuple[int, int]:
    """When the first worker of an attempt was asked for, and when the last one was there; 0 if unknown."""
    calls, table = analysis.calls, analysis.table
    asked, ready = 0, 0
    is_creation = np.array([_CREATION in name for name in table.names], bool)
    for row in np.nonzero(is_creation[as_numpy(table.name)])[0].tolist():
        call = calls.call_of[row]
        submission, execution = (calls.submission[call], calls.execution[call]) if call >= 0 else (-1, -1)
        if submission < 0 or table.parent[submission] != attempt.row:
            continue
        if calls.role[row] == SUBMISSION:
            asked = min(asked or table.start[row], table.start[row])
        elif calls.role[row] == EXECUTION and execution == row:
            ready = max(ready, table.end_or_now(row))
    return asked, ready


def _finding(analysis: Analysis, run: TrainRun, parts: dict[str, int], total: int, slow: str) -> Finding:
    in_order = [slow, *(part for part in parts if part != slow)]
    text = (
        f"{quoted(run.name)} took {duration(total)} from fit() to {_TO_STEP if 'loop' in parts else _TO_LOOPS}: "
        + ", ".join(f"{duration(parts[part])} {_WHAT[part]}" for part in in_order)
    )
    if slow == "resources" and (held := _held(analysis, run)):
        text += f"; {held} ran on the cluster in that time"
    figures: dict[str, float | int | str] = {
        "run": run.name,
        "part": slow,
        "total_ns": total,
        **{f"{part}_ns": took for part, took in parts.items()},
    }
    share = min(1.0, (parts[slow] - _USUAL[slow] // 2) / analysis.path.wall)
    title = f"{quoted(run.name)} starts slowly"
    return Finding(KIND, text, _ADVICE[slow], share, [run.row, run.attempts[0].row], figures, title=title)


def _held(analysis: Analysis, run: TrainRun) -> str:
    """How many other calls ran when the run began, which may have held what it waited for."""
    table, calls = analysis.table, analysis.calls
    begun = table.start[run.row]
    running = [
        row
        for row in np.nonzero(as_numpy(calls.role) == EXECUTION)[0].tolist()
        if table.start[row] < begun < table.end_or_now(row)
    ]
    return count(len(running), "call") if running else ""
