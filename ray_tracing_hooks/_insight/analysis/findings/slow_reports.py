"""Reports of Ray Train that wait until the controller has taken the report before them."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.training import Rank, TrainRun
from ray_tracing_hooks._insight.analysis.wording import count, duration

KIND = "slow-reports"

_COST = 0.1


def find(analysis: Analysis) -> list[Finding]:
    """Runs in which every rank waited in this way for at least a tenth of the whole time."""
    wall = analysis.path.wall
    found = []
    for run in analysis.train_runs:
        least = [min(attempt.ranks, key=_handover) for attempt in run.attempts if attempt.ranks]
        waited = sum(map(_handover, least))
        if wall and waited / wall >= _COST:
            found.append(_finding(run, least, waited, wall))
    return found


def _handover(rank: Rank) -> int:
    return sum(step.handover for step in rank.steps)


def _finding(run: TrainRun, least: list[Rank], waited: int, wall: int) -> Finding:
    steps = sorted((step for rank in least for step in rank.steps if step.handover), key=lambda step: -step.handover)
    text = (
        f"reports of {quoted(run.name)} waited until the controller of Ray Train had taken the report before: each "
        f"rank for {duration(waited)} or more, at {count(len(steps), 'step')}, up to {duration(steps[0].handover)}"
    )
    advice = (
        "report once for several steps, or set RAY_TRAIN_HEALTH_CHECK_INTERVAL_S to less than 2: after so many seconds "
        "the controller takes reports"
    )
    figures: dict[str, float | int | str] = {
        "run": run.name,
        "waited_ns": waited,
        "steps": len(steps),
        "longest_ns": steps[0].handover,
    }
    title = f"Reports of {quoted(run.name)} wait for the controller"
    return Finding(KIND, text, advice, min(1.0, waited / wall), [step.row for step in steps], figures, title=title)
