"""Rollouts of reinforcement learning: steps that wait for their last trajectories."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly
from ray_tracing_hooks._insight.analysis.wording import count, duration, shortened
from ray_tracing_hooks._insight.model.calls import EXECUTION
from ray_tracing_hooks._insight.model.span import number, whole
from ray_tracing_hooks._insight.model.table import ENDED

LONG_TAIL = "long-tail"

_LEAST = 8
"""Trajectories of a step."""
_FEW = 10
"""At most one in so many is in the tail."""
_NEARLY = 0.8
_TIMES = 2


class _Tail(NamedTuple):
    """The last trajectories of a step. Times are nanoseconds."""

    step: int
    rows: list[int]
    """Of all its trajectories, the one that ended last first."""
    few: int
    """How many of these are the tail."""
    time: int
    """Since all others had ended."""
    usual: int
    """The median duration of the others."""
    cost: int
    """How long they were on the critical path meanwhile."""


def long_tails(analysis: Analysis) -> list[Finding]:
    """Steps whose last trajectories run on while all others of the step have ended.

    Measures: this time, as far as these trajectories, or what they called, were on the critical path.
    Threshold: a tenth of the run, in steps of 8 trajectories. The last are at most a tenth of them, began before the
    others had ended, and took twice their median.
    Looks the same: a worker that is slow, which other findings name.
    Advice: to limit a trajectory, and to let other work go on meanwhile.
    Needs: trajectories in tasks or actors (ray_tracing_hooks.rl), all with an end. Of steps that overlap, none waits.
    """
    tails = _tails(analysis)
    cost = sum(each.cost for each in tails)
    if not tails or not is_costly(analysis, cost):
        return []
    worst, table = max(tails, key=lambda each: each.cost), analysis.table
    longest = max(worst.rows[: worst.few], key=table.duration)
    attributes = table.span(longest).attributes
    sample = shortened(f"sample {attributes.get(names.RAY_RL_SAMPLE)}")
    which = f"{sample}, rollout {number(attributes.get(names.RAY_RL_ROLLOUT)):,}"
    took, tokens = table.duration(longest), _tokens(analysis, worst, longest)
    text = (
        f"the last {worst.few} of {len(worst.rows):,} trajectories of step {worst.step:,} ran for "
        f"{duration(worst.time)} after the others had ended: {which} took {duration(took)}, "
        f"{took / max(1, worst.usual):.1f} times the median of {duration(worst.usual)}{tokens}"
    )
    if len(tails) > 1:
        text += (
            f"; {count(len(tails), 'step')} had such a tail, for {duration(sum(each.time for each in tails))} in all"
        )
    rows = [row for each in sorted(tails, key=lambda each: -each.cost) for row in each.rows[: each.few]]
    return [
        Finding(
            LONG_TAIL,
            text,
            "limit the tokens, turns and time of a trajectory; or let other work go on meanwhile: train with those "
            "that have ended, let the others go on into the next step, or begin with the next step's",
            cost / analysis.path.wall,
            rows,
            quotes={names.RAY_RL_SAMPLE: sample},
            title="Steps have a long tail of trajectories"
            if len(tails) > 1
            else "A step has a long tail of trajectories",
        )
    ]


def _tails(analysis: Analysis) -> list[_Tail]:
    table = analysis.table
    is_one = table.is_named(lambda name: name == names.RL_TRAJECTORY) & table.is_ours()
    steps: dict[int | None, list[int]] = defaultdict(list)
    for row in table.as_recorded(np.nonzero(is_one)[0].tolist()):
        steps[whole(table.span(row).attributes.get(names.RAY_RL_STEP))].append(row)
    found = [_tail(analysis, step, rows, steps) for step, rows in steps.items() if step is not None]
    return [each for each in found if each is not None and each.cost]


def _tail(analysis: Analysis, step: int, rows: list[int], steps: dict[int | None, list[int]]) -> _Tail | None:
    table = analysis.table
    if len(rows) < _LEAST or any(table.state[row] != ENDED or not table.end[row] for row in rows):
        return None
    rows = sorted(rows, key=lambda row: -table.end[row])
    most = max(1, len(rows) // _FEW)
    end = table.end[rows[0]]
    few = next(
        each for each in range(1, most + 1) if end - table.end[rows[each]] >= _NEARLY * (end - table.end[rows[most]])
    )
    begin, usual = table.end[rows[few]], int(np.median([table.duration(row) for row in rows[few:]]))
    if any(table.start[row] >= begin or table.duration(row) < _TIMES * usual for row in rows[:few]):
        return None
    others = (row for of, its in steps.items() if of != step for row in its)
    if any(table.start[row] < end and table.end_or_now(row) > begin for row in others):
        return None
    return _Tail(step, rows, few, end - begin, usual, _on_path(analysis, set(rows[:few]), begin, end))


def _on_path(analysis: Analysis, tail: set[int], begin: int, end: int) -> int:
    """How long the critical path was in these trajectories, what they called, and the executions that they are in."""
    table, calls = analysis.table, analysis.calls
    within = {frame for row in tail if calls.role[frame := calls.frame_of(row)] == EXECUTION}
    return sum(
        min(step.end, end) - max(step.start, begin)
        for step in analysis.path.steps
        if step.start < end and step.end > begin
        if step.row in within or table.around(step.row, tail) >= 0
    )


def _tokens(analysis: Analysis, tail: _Tail, longest: int) -> str:
    """How much the longest generated, if the generations of all trajectories were recorded."""
    found, table = analysis.generations, analysis.table
    if found is None or not found.is_read.all():
        return ""
    tokens: Counter[int] = Counter()
    wanted = set(tail.rows)
    for row, made in zip(found.row.tolist(), found.output.tolist(), strict=True):
        if (above := table.around(row, wanted)) >= 0:
            tokens[above] += number(made)
    if len(tokens) < len(wanted):
        return ""
    usual = float(np.median([tokens[row] for row in tail.rows[tail.few :]]))
    return f"; it generated {count(tokens[longest], 'token')}, and the median is {usual:,.0f}"
