"""Tasks that Ray Data ended itself, since it needed no more of their blocks: after ``take``, at a limit, where the
program leaves the loop over a dataset, or because the dataset failed for another reason. Nothing failed in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.pipelines import Operator, Pipeline
from ray_tracing_hooks._insight.model.calls import Calls

_FAILED = "failed"
"""The outcome of a dataset."""


def stopped_tasks(calls: Calls, executions: Iterable[Pipeline]) -> set[int]:
    """The rows of the tasks of these datasets that Ray Data ended, and of the calls that these had made."""
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
        if _is_cancelled(calls, row) and _caller(calls, row) in found:
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


def _caller(calls: Calls, row: int) -> int:
    """The row of the execution that made the call of this execution; -1 for another span."""
    call = calls.call_of[row]
    submission = calls.submission[call] if call >= 0 else -1
    return calls.frame[submission] if submission >= 0 else -1
