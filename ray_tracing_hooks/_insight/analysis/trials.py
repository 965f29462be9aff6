"""Experiments of Ray Tune and their trials."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.attribute_values import nanoseconds, whole
from ray_tracing_hooks._insight.model.table import ENDED, Table

MOST_TRIALS = 50_000
"""The most trials that are read from the files."""

_EXPERIMENT, _TRIAL = f" {names.TUNE_EXPERIMENT}", f" {names.TUNE_TRIAL}"


@dataclass
class Trial:
    """One trial."""

    row: int
    status: str
    """Its last status; empty if it is not recorded, as for a trial that has not ended."""
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
    """One experiment."""

    row: int
    name: str
    scheduler: str
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
            scheduler = str(table.attribute(row, names.RAY_TUNE_SCHEDULER) or "")
            found[row] = Experiment(row, table.name_of(row).removesuffix(_EXPERIMENT), scheduler)
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
        str(attributes.get(names.RAY_TUNE_TRIAL_STATUS) or ""),
        str(attributes.get(names.RAY_TUNE_STOPPED_BY) or ""),
        iterations or 0,
        str(attributes.get(names.ERROR_TYPE) or "") if table.failed(row) else "",
        max(0, table.duration(row) - nanoseconds(pending)) if has_run else 0,
        has_run,
    )
