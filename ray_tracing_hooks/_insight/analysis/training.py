"""Runs of Ray Train: their attempts, the training loops of ranks, and the steps at which ranks meet. Experiments of Ray
Tune: their trials.

At a step (a report, or a collective function) every rank waits until all are there. How long each waited was measured
on its own clock, so the clocks of nodes do not matter: the last rank to come is the one that waited least.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import nanoseconds, whole
from ray_tracing_hooks._insight.model.table import ENDED, Table

MOST_STEPS = 200_000
"""The most steps of ranks that are read from the files."""

_HANDED_OVER = 10_000_000
"""The controller takes a report in less than this, in nanoseconds, if it has taken the one before."""

_RUN, _ATTEMPT, _WORKER = (f" {each}" for each in (names.TRAIN_RUN, names.TRAIN_ATTEMPT, names.TRAIN_WORKER))


@dataclass
class Step:
    """One step of one rank. Times are nanoseconds."""

    row: int
    number: int
    """From 1: the ranks that meet there have the same one."""
    took: int
    """From the end of the rank's step before it, or the start of its loop, to the start of this one."""
    waited: int = 0
    """How much longer the rank waited there than the last rank to come."""
    handover: int = 0
    """How long the rank waited there until the controller had taken the report before."""


@dataclass
class Rank:
    row: int
    rank: int
    steps: list[Step] = field(default_factory=list)


@dataclass
class Meeting:
    """A step of an attempt at which at least two ranks met. Times are nanoseconds."""

    number: int
    last: int
    """The rank that came last."""
    delay: int
    """How much earlier the step would have been over without it: how long the last but one waited for it; 0 where all
    waited for the controller after that."""
    waited: int
    """How long the other ranks waited for it, added up."""


@dataclass
class Attempt:
    row: int
    number: int
    ranks: list[Rank] = field(default_factory=list)
    """By rank."""
    meetings: list[Meeting] = field(default_factory=list)
    scheduling: int = 0
    """How long it took until its workers ran, in nanoseconds; 0 if they never did."""


@dataclass
class TrainRun:
    """One run of Ray Train."""

    row: int
    name: str
    attempts: list[Attempt] = field(default_factory=list)


def train_runs(table: Table) -> list[TrainRun]:
    """The runs in a table, by start. Attempts whose run is not there are left out."""
    by_name = [_kind(name) for name in table.names]
    if _WORKER not in by_name:
        return []
    found: dict[int, TrainRun] = {}
    attempts: dict[int, Attempt] = {}
    ranks: dict[int, Rank] = {}
    steps: list[int] = []
    for row, name in enumerate(table.name):
        kind = by_name[name]
        above = table.parent[row]
        if kind == _RUN:
            found[row] = TrainRun(row, table.name_of(row).removesuffix(_RUN))
        elif kind == _ATTEMPT and (of := table.around(row, found)) >= 0:
            # With internal calls recorded, those of the controller are between them.
            run, span = found[of], table.span(row)
            number = whole(span.attributes.get(names.RAY_TRAIN_ATTEMPT)) or len(run.attempts) + 1
            attempts[row] = Attempt(
                row, number, scheduling=nanoseconds(span.attributes.get(names.RAY_TRAIN_SCHEDULING_TIME))
            )
            run.attempts.append(attempts[row])
        elif kind == _WORKER and above in attempts:
            rank = whole(table.span(row).attributes.get(names.RAY_TRAIN_WORLD_RANK))
            ranks[row] = Rank(row, rank if rank is not None else len(attempts[above].ranks))
            attempts[above].ranks.append(ranks[row])
        elif kind == names.TRAIN_REPORT:
            steps.append(row)
    for attempt in attempts.values():
        attempt.ranks.sort(key=lambda each: each.rank)
    barriers = _read_steps(table, steps[:MOST_STEPS], ranks)
    for attempt in attempts.values():
        _meet(attempt, barriers)
    return list(found.values())


def last_to_come(table: Table, runs: list[TrainRun]) -> dict[int, tuple[int, int]]:
    """For the row of each step at which ranks met, the training loop of the rank that came last, and when it came."""
    found = {}
    for attempt in (attempt for run in runs for attempt in run.attempts):
        there: dict[int, list[tuple[int, int, int]]] = {}
        for rank in attempt.ranks:
            for step in rank.steps:
                there.setdefault(step.number, []).append((table.start[step.row], rank.row, step.row))
        for came in there.values():
            moment, loop, _ = max(came)
            found.update({row: (loop, moment) for _, _, row in came if len(came) > 1})
    return found


def _kind(name: str) -> str:
    if name == names.TRAIN_REPORT or name.startswith(names.TRAIN_COLLECTIVES):
        return names.TRAIN_REPORT
    return next((suffix for suffix in (_RUN, _ATTEMPT, _WORKER) if name.endswith(suffix)), "")


def _read_steps(table: Table, rows: list[int], ranks: dict[int, Rank]) -> dict[int, int]:
    """Add the steps to their ranks, and return how long each waited at its barrier, where that is known."""
    loops = {row: loop for row in rows if (loop := table.around(row, ranks)) >= 0}
    barriers: dict[int, int] = {}
    numbers: dict[int, int] = {}
    handovers: dict[int, int] = {}
    for row in table.as_recorded(loops):
        span = table.span(row)
        numbers[row] = whole(span.attributes.get(names.RAY_TRAIN_STEP)) or 0
        handovers[row] = nanoseconds(span.attributes.get(names.RAY_TRAIN_HANDOVER_TIME))
        if names.RAY_TRAIN_BARRIER_TIME in span.attributes:
            barriers[row] = nanoseconds(span.attributes.get(names.RAY_TRAIN_BARRIER_TIME))
    for row in sorted(loops):
        rank = ranks[loops[row]]
        before = table.end_or_now(rank.steps[-1].row) if rank.steps else table.start[rank.row]
        number = numbers[row] or len(rank.steps) + 1
        rank.steps.append(Step(row, number, max(0, table.start[row] - before), handover=handovers[row]))
    return barriers


def _meet(attempt: Attempt, barriers: dict[int, int]) -> None:
    """Find out who came last at each step, and set how long the others waited."""
    # Where a rank was replaced within the attempt, its steps are counted anew, and those of the others are not.
    if len({rank.rank for rank in attempt.ranks}) < max(2, len(attempt.ranks)):
        return
    by_number: dict[int, list[tuple[int, Rank, Step]]] = {}
    for rank in attempt.ranks:
        for step in rank.steps:
            if step.row in barriers:
                by_number.setdefault(step.number, []).append((barriers[step.row], rank, step))
    for number, there in sorted(by_number.items()):
        # Of a rank that died at the barrier, it is not known how long it waited.
        if len(there) < len(attempt.ranks):
            continue
        there.sort(key=lambda each: each[0])
        least = there[0][0]
        for barrier, _, step in there:
            step.waited = barrier - least
        waited = sum(step.waited for _, _, step in there)
        # The controller takes a report when its interval is over, however early the last rank comes.
        is_last = min(step.handover for _, _, step in there) < _HANDED_OVER
        attempt.meetings.append(Meeting(number, there[0][1].rank, there[1][2].waited if is_last else 0, waited))


MOST_TRIALS = 50_000
"""The most trials that are read from the files."""

_EXPERIMENT, _TRIAL = f" {names.TUNE_EXPERIMENT}", f" {names.TUNE_TRIAL}"


@dataclass
class Trial:
    row: int
    stopped_by: str
    iterations: int
    error: str
    """The type of the error that ended it, if one did."""
    running: int
    """How long it ran, in nanoseconds: without the time until it ran for the first time; 0 if it never ran."""
    has_run: bool
    """Whether it ran at all. Of a trial that has not ended, it is not recorded, and assumed."""


@dataclass
class Experiment:
    row: int
    name: str
    trials: list[Trial] = field(default_factory=list)


def experiments(table: Table) -> list[Experiment]:
    """The experiments in a table, by start."""
    kinds = [next((each for each in (_EXPERIMENT, _TRIAL) if name.endswith(each)), "") for name in table.names]
    if _TRIAL not in kinds:
        return []
    found: dict[int, Experiment] = {}
    rows: list[int] = []
    for row, name in enumerate(table.name):
        if kinds[name] == _EXPERIMENT:
            found[row] = Experiment(row, table.name_of(row).removesuffix(_EXPERIMENT))
        elif kinds[name] == _TRIAL and table.parent[row] in found:
            rows.append(row)
    for row in table.as_recorded(rows[:MOST_TRIALS]):
        found[table.parent[row]].trials.append(_trial(table, row))
    for experiment in found.values():
        experiment.trials.sort(key=lambda trial: trial.row)
    return list(found.values())


def is_made_by_trial(table: Table, row: int) -> bool:
    """Whether a span is directly below a trial: Ray Tune made that call, and decided when."""
    above = table.parent[row]
    return above >= 0 and table.name_of(above).endswith(_TRIAL)


def _trial(table: Table, row: int) -> Trial:
    attributes = table.span(row).attributes
    pending, iterations = attributes.get(names.RAY_TUNE_PENDING_TIME), whole(attributes.get(names.RAY_TUNE_ITERATIONS))
    has_run = pending is not None or bool(iterations) or table.state[row] != ENDED
    return Trial(
        row,
        str(attributes.get(names.RAY_TUNE_STOPPED_BY) or ""),
        iterations or 0,
        str(attributes.get(names.ERROR_TYPE) or "") if table.failed(row) else "",
        max(0, table.duration(row) - nanoseconds(pending)) if has_run else 0,
        has_run,
    )
