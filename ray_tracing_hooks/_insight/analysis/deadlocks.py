"""Deadlocks: calls that wait for each other in a cycle, so that none of them can end.

A call that waits for a slot of an actor starts when any of the calls that hold the slots ends, and a ``ray.wait`` ends
when any of its objects is there. So a cycle alone is no deadlock: each way out of it has to be blocked as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.calls import EXECUTION, WAIT, WAITS, Calls, is_item
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import RUNNING


def deadlocks(calls: Calls, state: int = RUNNING) -> list[list[int]]:
    """Cycles of running executions, each waiting in ``ray.get`` or ``ray.wait`` for the next one to end, or for a call
    that cannot start because its actor is busy with the next one.

    With ``LOST`` as ``state``, those that were in a cycle until their processes died.
    """
    table = calls.table
    running = np.nonzero(as_numpy(table.state) == state)[0].tolist()
    busy = _busy(calls, running)
    waits: dict[int, list[_Wait]] = {}
    for row in running:
        if calls.role[row] not in WAITS:
            continue
        if table.attribute(row, names.RAY_TIMEOUT) is not None or (calls.role[row] == WAIT and calls.is_cut(row)):
            waits.setdefault(calls.frame[row], []).append(_Wait([], 0))
            continue
        objects: list[list[int]] = []
        for object_id, call in calls.made_by(row):
            execution = calls.execution[call] if call >= 0 else -1
            if is_item(object_id):
                objects.append([])  # it may be there before its generator ends
            elif execution >= 0:
                objects.append([execution] if table.state[execution] == state else [])
            else:
                place = calls.place(calls.submission[call]) if call >= 0 else None
                objects.append(busy.get((place.actor, place.group), []) if place is not None else [])
        enough = calls.wanted(row) if calls.role[row] == WAIT else len(objects)
        waits.setdefault(calls.frame[row], []).append(_Wait(objects, enough))
    stuck = _stuck(waits)
    return _circles(
        {
            frame: [each for wait in own for holders in wait.objects for each in holders if each in stuck]
            for frame, own in waits.items()
            if frame in stuck
        }
    )


class _Wait(NamedTuple):
    objects: list[list[int]]
    """For each object the executions of which one has to end first; none if nothing is known to block it."""
    enough: int
    """How many of the objects it waits for."""


def _busy(calls: Calls, running: list[int]) -> dict[tuple[str, str], list[int]]:
    """The executions that hold all slots of an actor, by its id and concurrency group, if they do.

    Of concurrency groups it is not known how many slots they have.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for row in running:
        place = calls.place(row)
        if calls.role[row] == EXECUTION and place.actor:
            found.setdefault((place.actor, place.group), []).append(row)
    return {key: rows for key, rows in found.items() if not key[1] and len(rows) >= calls.slots_of(rows)[0]}


def _stuck(waits: dict[int, list[_Wait]]) -> set[int]:
    """The frames that can never go on: all waits of each wait for others of them."""
    stuck = set(waits)
    while True:
        free = {
            frame
            for frame in stuck
            if any(
                sum(not holders or not stuck.issuperset(holders) for holders in wait.objects) >= wait.enough
                for wait in waits[frame]
            )
        }
        if not free:
            return stuck
        stuck -= free


def _circles(after: dict[int, list[int]]) -> list[list[int]]:
    """The cycles on the ways from each frame to the first that it waits for."""
    found = []
    done: set[int] = set()
    for first in after:
        path: list[int] = []
        here = first
        while here >= 0 and here not in done:
            done.add(here)
            path.append(here)
            here = next(iter(after[here]), -1)
        if here in path:
            found.append(path[path.index(here) :])
    return found
