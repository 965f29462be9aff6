"""Calls and Ray Data: when callers wait for it, and which tasks it ended itself.

Its own waits make no spans, but its executions and iterations do.

A caller waits for the whole of an execution that a method such as ``materialize`` asked for. In an iteration it waits
for the first batch, and then waits and does something else by turns: how long each takes in all is recorded, but not
when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.intervals import united
from ray_tracing_hooks._insight.analysis.pipelines import Operator, Pipeline, rows_named
from ray_tracing_hooks._insight.model.calls import SUBMISSION, Calls
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import nanoseconds

_MOSTLY = 0.5


def executions_waited_for(calls: Calls) -> Any:
    """The rows of executions of datasets that no iteration asked for, as a NumPy column."""
    table = calls.table
    rows = np.array(rows_named(table, names.DATASET), np.int64)
    return rows[~np.isin(as_numpy(table.parent)[rows], rows_named(table, names.DATA_ITERATION))]


def dataset_waits(calls: Calls) -> dict[int, list[tuple[int, int]]]:
    """By frame, the times in which it waits for Ray Data, in order and apart from each other.

    An iteration counts until its first batch, and all of it if waiting is most of what follows.
    """
    table = calls.table
    until = {row: _waits_until(calls, row) for row in rows_named(table, names.DATA_ITERATION)}
    until.update({row: table.end_or_now(row) for row in executions_waited_for(calls).tolist()})
    found: dict[int, list[tuple[int, int]]] = {}
    for row, end in until.items():
        if not calls.is_aside(row) and end > table.start[row]:
            found.setdefault(calls.frame[row], []).append((table.start[row], end))
    return {frame: united(times) for frame, times in found.items()}


def tasks_of_operators(calls: Calls) -> set[int]:
    """The calls that operators make. Nobody waits for one of them, but for its execution or iteration."""
    table = calls.table
    operators = rows_named(table, names.DATA_OPERATOR)
    if not operators:
        return set()
    submissions = np.nonzero(np.isin(as_numpy(table.parent), operators))[0].tolist()
    return {calls.call_of[row] for row in submissions if calls.role[row] == SUBMISSION}


def _waits_until(calls: Calls, row: int) -> int:
    table, attributes = calls.table, calls.table.span(row).attributes
    waited, used = attributes.get(names.RAY_DATA_WAIT_TIME), attributes.get(names.RAY_DATA_USER_TIME)
    if not isinstance(waited, (int, float)) or not isinstance(used, (int, float)):
        return table.end_or_now(row)  # it has not ended: it may wait for its next batch
    first = min(nanoseconds(attributes.get(names.RAY_DATA_FIRST_BATCH_TIME)), nanoseconds(waited))
    rest = nanoseconds(waited) - first
    if rest >= _MOSTLY * (rest + nanoseconds(used)):
        return table.end_or_now(row)
    return min(table.start[row] + first, table.end_or_now(row))


_FAILED = "failed"
"""The outcome of a dataset."""


def stopped_tasks(calls: Calls, executions: Iterable[Pipeline]) -> set[int]:
    """The rows of the tasks of these datasets that Ray Data ended itself, and of the calls that these had made.

    It needed no more of their blocks: after ``take``, at a limit, where the program leaves the loop over a dataset, or
    because the dataset failed for another reason. Nothing failed in them.
    """
    found = {
        row
        for one in executions
        if one.outcome  # else it is running, or its driver died
        for operator in one.operators
        for row in _stopped(calls, one, operator)
    }
    if not found:
        return found
    table = calls.table
    # Ray cancels the calls of a cancelled task too. A call begins after what made it, so it has a later row.
    for row in np.nonzero(table.is_failed())[0].tolist():
        if _is_cancelled(calls, row) and calls.caller(row) in found:
            found.add(row)
    return found


def _stopped(calls: Calls, dataset: Pipeline, operator: Operator) -> Iterator[int]:
    table = calls.table
    failed = [row for row in (*operator.executions, *operator.creations) if table.failed(row)]
    if operator.failed and all(_is_cancelled(calls, row) for row in failed):
        return  # the function of the program has raised it
    # Of a dataset that did not fail, Ray Data has not seen another failure. Where it kills workers, or where a function
    # is interrupted in the middle of something, the error may be any.
    is_any = dataset.outcome != _FAILED and not operator.failed
    for row in failed:
        if calls.is_last_attempt(row) and (is_any or _is_cancelled(calls, row)):
            yield row


def _is_cancelled(calls: Calls, row: int) -> bool:
    return bool(calls.table.attribute(row, names.ERROR_TYPE) == names.TASK_CANCELLED)
