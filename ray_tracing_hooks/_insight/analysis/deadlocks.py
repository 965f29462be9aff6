"""Deadlocks: calls that wait for each other in a cycle, so that none of them can end."""

from __future__ import annotations

import numpy as np

from ray_tracing_hooks._insight.model.calls import EXECUTION, WAITS, Calls
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import RUNNING


def deadlocks(calls: Calls) -> list[list[int]]:
    """Cycles of running executions, each waiting in ``ray.get`` or ``ray.wait`` for the next one to end, or for a call
    that cannot start because its actor is busy with the next one.
    """
    table = calls.table
    running = np.nonzero(as_numpy(table.state) == RUNNING)[0].tolist()
    in_actor: dict[str, list[int]] = {}
    for row in running:
        if calls.role[row] == EXECUTION and (actor := calls.place(row).actor) and calls.place(row).slots == 1:
            in_actor.setdefault(actor, []).append(row)
    after: dict[int, list[int]] = {}
    for row in running:
        if calls.role[row] not in WAITS:
            continue
        for _, call in calls.made_by(row):
            if call < 0:
                continue
            execution = calls.execution[call]
            if execution < 0:
                after.setdefault(calls.frame[row], []).extend(
                    in_actor.get(calls.place(calls.submission[call]).actor, ())
                )
            elif table.state[execution] == RUNNING:
                after.setdefault(calls.frame[row], []).append(execution)
    return _circles(after)


def _circles(after: dict[int, list[int]]) -> list[list[int]]:
    """One cycle for each entry into one, without recursion."""
    found = []
    done: set[int] = set()
    for first in after:
        path: list[int] = []
        position: dict[int, int] = {}
        pending = [iter([first])]
        while pending:
            here = next(pending[-1], None)
            if here is None:
                pending.pop()
                if path:
                    left = path.pop()
                    del position[left]
                    done.add(left)
            elif here in position:
                found.append(path[position[here] :])
            elif here not in done:
                position[here] = len(path)
                path.append(here)
                pending.append(iter(after.get(here, ())))
    return found
