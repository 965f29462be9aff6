"""A rank of Ray Train that the other ranks wait for: at reports and collective functions, all wait until the last is
there.
"""

from __future__ import annotations

import math

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.training import Attempt, Meeting, TrainRun
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "straggler-rank"

_COST = 0.05
_STEPS = 3
"""A rank that was late less often may have been so by chance."""
_LATE = 0.1
"""A rank that came last was late where the step waited for it at least this share of what it did at worst."""
_DEVIATIONS = 2.0
"""How far from its share of the delays, in standard deviations, those of a rank are that are not by chance."""


def find(analysis: Analysis) -> list[Finding]:
    """In each run the rank whose lateness cost most, if the run would be a twentieth shorter without it."""
    wall = analysis.path.wall
    found = []
    for run in analysis.train_runs:
        late: dict[int, list[tuple[Attempt, Meeting]]] = {}
        for attempt in run.attempts:
            for meeting in attempt.meetings:
                late.setdefault(meeting.last, []).append((attempt, meeting))
        if not late or not wall:
            continue
        rank = max(late, key=lambda each: sum(meeting.delay for _, meeting in late[each]))
        delay = sum(meeting.delay for _, meeting in late[rank])
        if delay / wall >= _COST and _is_often(late[rank]) and not _is_chance(run, delay):
            found.append(_finding(analysis, run, rank, late[rank], delay))
    return found


def _is_often(late: list[tuple[Attempt, Meeting]]) -> bool:
    """Whether a rank was late at several steps, and not only the last one by a hair."""
    worst = max(meeting.delay for _, meeting in late)
    return sum(meeting.delay >= _LATE * worst for _, meeting in late) >= _STEPS


def _is_chance(run: TrainRun, delay: int) -> bool:
    """Whether one of the ranks would delay the run as much if each was as likely as the others to be last at a step."""
    expected = variance = 0.0
    for attempt in run.attempts:
        share = 1 / max(1, len(attempt.ranks))
        for meeting in attempt.meetings:
            expected += share * meeting.delay
            variance += share * (1 - share) * meeting.delay**2
    return delay - expected < _DEVIATIONS * math.sqrt(variance)


def _finding(analysis: Analysis, run: TrainRun, rank: int, late: list[tuple[Attempt, Meeting]], delay: int) -> Finding:
    met = sum(len(attempt.meetings) for attempt in run.attempts)
    waited = sum(meeting.waited for _, meeting in late)
    most = max(len(attempt.ranks) for attempt in run.attempts)
    worst = max(late, key=lambda each: each[1].delay)[1]
    text = (
        f"rank {rank} of {quoted(run.name)} was the last of {most} ranks at {len(late):,} of {count(met, 'step')}: "
        f"the run waited {duration(delay)} for it, and the other ranks {duration(waited)} together; "
        f"at worst {duration(worst.delay)}, at step {worst.number:,}{_where(analysis, run, rank)}"
    )
    advice = (
        "look at what this rank does more than the others, such as saving checkpoints or logging, at its share of the "
        "data, and at its node; reports are less frequent if they cover several steps"
    )
    rows = [
        step.row
        for attempt, meeting in sorted(late, key=lambda each: -each[1].delay)
        for each in attempt.ranks
        if each.rank == rank
        for step in each.steps
        if step.number == meeting.number
    ]
    figures: dict[str, float | int | str] = {
        "run": run.name,
        "rank": rank,
        "ranks": most,
        "steps": met,
        "last_at": len(late),
        "delay_ns": delay,
        "waited_ns": waited,
        "longest_ns": worst.delay,
        "longest_step": worst.number,
    }
    title = f"Rank {rank} of {quoted(run.name)} comes last"
    return Finding(KIND, text, advice, min(1.0, delay / analysis.path.wall), rows, figures, title=title)


def _where(analysis: Analysis, run: TrainRun, rank: int) -> str:
    """The node of the rank, if it has others than all ranks have."""
    nodes = {each.rank: analysis.calls.place(each.row).node for attempt in run.attempts for each in attempt.ranks}
    own = nodes.get(rank, "")
    others = sum(node != own for node in nodes.values())
    return f"; {percent(others / len(nodes))} of the ranks ran on other nodes than its {own[:8]}" if others else ""
