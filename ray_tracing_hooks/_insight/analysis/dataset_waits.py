"""When callers wait for Ray Data: its own waits make no spans, but its executions and iterations do.

A caller waits for the whole of an execution that a method such as ``materialize`` asked for. In an iteration it waits
for the first batch, and then waits and does something else by turns: how long each takes in all is recorded, but not
when.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.pipelines import rows_named
from ray_tracing_hooks._insight.model.attribute_values import nanoseconds
from ray_tracing_hooks._insight.model.calls import SUBMISSION, Calls
from ray_tracing_hooks._insight.model.merge import as_numpy

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
    for row, end in sorted(until.items()):
        begin = table.start[row]
        if calls.is_aside(row) or end <= begin:
            continue
        own = found.setdefault(calls.frame[row], [])
        if own and begin <= own[-1][1]:
            own[-1] = own[-1][0], max(end, own[-1][1])
        else:
            own.append((begin, end))
    return found


def tasks_of_operators(calls: Calls) -> set[int]:
    """The calls that operators make. Nobody waits for one of them, but for its execution or iteration."""
    table = calls.table
    operators = rows_named(table, names.DATA_OPERATOR)
    if not operators:
        return set()
    submissions = np.nonzero(np.isin(as_numpy(table.parent), operators))[0].tolist()
    return {calls.call_of[row] for row in submissions if calls.role[row] == SUBMISSION}


def _waits_until(calls: Calls, row: int) -> int:
    table, told = calls.table, calls.table.span(row).attributes
    waited, used = told.get(names.RAY_DATA_WAIT_TIME), told.get(names.RAY_DATA_USER_TIME)
    if not isinstance(waited, (int, float)) or not isinstance(used, (int, float)):
        return table.end_or_now(row)  # it has not ended: it may wait for its next batch
    first = min(nanoseconds(told.get(names.RAY_DATA_FIRST_BATCH_TIME)), nanoseconds(waited))
    rest = nanoseconds(waited) - first
    if rest >= _MOSTLY * (rest + nanoseconds(used)):
        return table.end_or_now(row)
    return min(table.start[row] + first, table.end_or_now(row))
