"""Runs of Ray Train that failed and began again: what that cost, until they ran again and in work since the last
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.training import Attempt, TrainRun
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.errors import error_type

KIND = "training-restarts"

_COST = 0.02


@dataclass
class _Restart:
    """An attempt that failed and was followed by another one. Times are nanoseconds."""

    attempt: Attempt
    cause: str
    down: int
    """Until the ranks of the next attempt ran."""
    lost: int
    """From the last checkpoint of the attempt, or else the start of its loops, to its end."""
    ran_again: bool


def find(analysis: Analysis) -> list[Finding]:
    """Runs whose restarts cost a fiftieth of the time."""
    wall, found = analysis.path.wall, []
    for run in analysis.train_runs:
        restarts = _restarts(analysis, run)
        cost = sum(each.down + each.lost for each in restarts)
        if restarts and wall and cost / wall >= _COST:
            found.append(_finding(analysis, run, restarts, cost))
    return found


def rows_of_restarts(analysis: Analysis) -> set[int]:
    """The training loops of attempts that failed and were followed by another one, and of ranks that were ended because
    another one had failed.
    """
    found: set[int] = set()
    for run in analysis.train_runs:
        for attempt in run.attempts[:-1]:
            if analysis.table.failed(attempt.row):
                found.update(rank.row for rank in attempt.ranks)
        for attempt in run.attempts[-1:]:
            failed = [rank.row for rank in attempt.ranks if analysis.table.failed(rank.row)]
            raised = [row for row in failed if _is_own(analysis, row)]
            if raised:
                found.update(set(failed) - set(raised))
    return found


def _is_own(analysis: Analysis, row: int) -> bool:
    """Whether a rank failed by itself: others are killed where one has failed."""
    return error_type(analysis.table.span(row)) != names.WORKER_DIED


def _restarts(analysis: Analysis, run: TrainRun) -> list[_Restart]:
    table, found = analysis.table, []
    transfers = _transfers(analysis)
    for attempt, following in zip(run.attempts, run.attempts[1:], strict=False):
        if not table.failed(attempt.row):
            continue  # it was resized
        end = table.end_or_now(attempt.row)
        running = min((table.start[rank.row] for rank in following.ranks), default=table.end_or_now(following.row))
        begun = min((table.start[rank.row] for rank in attempt.ranks), default=end)
        saved = [transfers[step.row] for rank in attempt.ranks for step in rank.steps if step.row in transfers]
        found.append(
            _Restart(
                attempt,
                error_type(table.span(attempt.row)),
                running - end,
                end - max([begun, *saved]),
                bool(following.ranks),
            )
        )
    return found


def _transfers(analysis: Analysis) -> dict[int, int]:
    """When the transfer of the checkpoint of a report ended, by the row of the report."""
    table = analysis.table
    if names.TRAIN_TRANSFER not in table.names:
        return {}
    name = table.names.index(names.TRAIN_TRANSFER)
    return {
        table.parent[row]: table.end_or_now(row)
        for row, its in enumerate(table.name)
        if its == name and not table.failed(row)
    }


def _finding(analysis: Analysis, run: TrainRun, restarts: list[_Restart], cost: int) -> Finding:
    causes = list(dict.fromkeys(each.cause for each in restarts if each.cause))
    after = f" after {', '.join(map(quoted, causes))}" if causes else ""
    down, lost = sum(each.down for each in restarts), sum(each.lost for each in restarts)
    until = "until it ran again" if all(each.ran_again for each in restarts) else "in which it did not run"
    head = f"{quoted(run.name)} was restarted {count(len(restarts), 'time')}"
    tail = f": {duration(down)} {until}, and {duration(lost)} of work since the last checkpoint was lost"
    advice = "save checkpoints more often" if lost > down else "look for the cause of the failures"
    figures: dict[str, float | int | str] = {
        "run": run.name,
        "restarts": len(restarts),
        "down_ns": down,
        "lost_ns": lost,
        "causes": ",".join(causes),
    }
    rows = [each.attempt.row for each in sorted(restarts, key=lambda each: -(each.down + each.lost))]
    share = min(1.0, cost / analysis.path.wall)
    title = f"{quoted(run.name)} was restarted"
    return Finding(KIND, head + after + tail, advice, share, rows, figures, without_errors=head + tail, title=title)
