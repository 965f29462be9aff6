"""The heat map of the page: for each attempt of a run of Ray Train, how long each rank took and waited at each step."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.training import Attempt, Step, TrainRun
from ray_tracing_hooks._insight.views.page.details import truncated
from ray_tracing_hooks._insight.views.page.report import NumberOf

_MOST_ATTEMPTS = 20
_MOST_RANKS = 1000
_MOST_COLUMNS = 300
_MOST_CELLS = 50_000
_LONGEST_NAME = 200


def described(analysis: Analysis, number: NumberOf) -> dict[str, Any]:
    """The attempts in which a rank took a step, the latest if there are many. Times are in microseconds."""
    found = [
        _attempt(analysis, run, attempt, number)
        for run in analysis.train_runs
        for attempt in run.attempts
        if any(rank.steps for rank in attempt.ranks)
    ]
    return {"training": found[-_MOST_ATTEMPTS:], "trainings": len(found)}


def _attempt(analysis: Analysis, run: TrainRun, attempt: Attempt, number: NumberOf) -> dict[str, Any]:
    ranks = attempt.ranks[:_MOST_RANKS]
    steps = max(step.number for rank in attempt.ranks for step in rank.steps)
    most = min(_MOST_COLUMNS, max(1, _MOST_CELLS // len(ranks)))
    size = -(-steps // most)
    columns = -(-steps // size)
    delays = [0] * columns
    last = [0] * len(ranks)
    position = {rank.rank: index for index, rank in enumerate(ranks)}
    for meeting in attempt.meetings:
        delays[(meeting.number - 1) // size] += meeting.delay // 1000
        if meeting.last in position:
            last[position[meeting.last]] += 1
    rows = []
    for rank, times in zip(ranks, last, strict=True):
        longest: list[Step | None] = [None] * columns
        waited = [0] * columns
        for step in rank.steps:
            column = (step.number - 1) // size
            held = longest[column]
            longest[column] = step if held is None or step.took > held.took else held
            waited[column] = max(waited[column], step.waited)
        rows.append(
            {
                "rank": rank.rank,
                "row": number(rank.row),
                "node": analysis.calls.place(rank.row).node[:8],
                "failed": analysis.table.failed(rank.row),
                "last": times,
                # 0 for a step that is not there.
                "took": [1 + step.took // 1000 if step else 0 for step in longest],
                "waited": [each // 1000 for each in waited],
                "rows": [number(step.row) if step else -1 for step in longest],
            }
        )
    return {
        "run": truncated(run.name, _LONGEST_NAME),
        "attempt": attempt.number,
        "row": number(attempt.row),
        "failed": analysis.table.failed(attempt.row),
        "steps": steps,
        "met": len(attempt.meetings),
        "size": size,
        "world": len(attempt.ranks),
        "delays": delays,
        "ranks": rows,
    }
