"""Clock skew between machines: detected where an effect seems to precede its cause, and corrected.

A submission starts before its execution, any other span before its children, and a task ends before the ``ray.get``
that returns its result. Where the clocks of two machines contradict this, one clock is shifted by the smallest amount
that resolves it. Where spans contradict each other, those count that most others agree with. The clock of the driver's
machine is the reference, or that of the first root span if there is no driver. Skew without a contradiction is not
corrected: clocks that differ by less than the time a message takes look equal.
Processes on one machine share its clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.calls import EXECUTION, GET, SUBMISSION, Calls
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import STATUS_ERROR
from ray_tracing_hooks._insight.model.table import ENDED, Table

_MOST_MACHINES = 200
"""With more machines no clocks are corrected, since the cost grows at least with the square of their number."""

_ROUNDS = 50
"""The longest chain of bounds that is followed. This also ends the search where bounds contradict each other."""

_FARTHEST = 1 << 61
"""Nanoseconds, or 73 years: more than a clock that begins in 1970 is off. Times that are farther apart are damaged."""


def correct(table: Table) -> Table:
    """The table with its clock skew corrected; ``quality.clocks`` has what was added for each machine."""
    return corrected(table)[0]


def corrected(table: Table) -> tuple[Table, Calls | None]:
    """The same, and the calls of the table if they were joined and remain valid, since joining them takes a while."""
    machine_of = [_machine(resource) for resource in table.resources]
    if not 1 < len(set(machine_of)) <= _MOST_MACHINES:
        return table, None
    calls = Calls(table)
    shifts = _shifts(_bounds(calls, machine_of), _reference(calls, machine_of))
    shifts = {machine: shift for machine, shift in shifts.items() if 0 < abs(shift) < _FARTHEST}
    if shifts:
        by_resource = array("q", [shifts.get(machine, 0) for machine in machine_of])
        table = table.part(range(len(table)), by_resource)
        table.quality.clocks = dict(sorted(shifts.items()))
        return table, None
    return table, calls


def _machine(resource: Mapping[str, object]) -> str:
    found = (resource.get(key) for key in ("host.name", "host.id", names.RESOURCE_NODE_ID))
    return next((str(each) for each in found if each), "")


def _reference(calls: Calls, machine_of: list[str]) -> str:
    drivers = [row for row in calls.drivers() if row < len(calls.table)]
    if drivers:
        return machine_of[calls.table.resource[drivers[0]]]
    roots = np.nonzero(as_numpy(calls.table.parent) < 0)[0]
    return machine_of[calls.table.resource[int(roots[0])]] if len(roots) else ""


def _bounds(calls: Calls, machine_of: list[str]) -> dict[tuple[str, str], int]:
    """For each pair of machines, how far effects on the second seem to precede their causes on the first, at most.

    This is the least that must be added to the times of the second, or subtracted from those of the first. It is
    negative if all effects come after their causes.
    """
    table = calls.table
    machines = list(dict.fromkeys(machine_of))
    of_resource = np.array([machines.index(machine) for machine in machine_of])
    of_row = of_resource[as_numpy(table.resource)]
    found = (_begun(calls), _below(calls), _got(calls))
    first, second, late = (
        np.concatenate(each)
        for each in zip(
            *(
                (of_row[causes], of_row[effects], as_numpy(times)[causes] - as_numpy(times)[effects])
                for causes, effects, times in found
            ),
            strict=True,
        )
    )
    least = np.full((len(machines), len(machines)), _NOTHING)
    np.maximum.at(least, (first, second), late)
    _settle(least, first, second, late)
    return {
        (machines[first], machines[second]): int(least[first, second])
        for first, second in np.argwhere(least > _NOTHING).tolist()
        if first != second
    }


def _settle(least: Any, first: Any, second: Any, late: Any) -> None:
    """Lower the bounds of two machines that contradict each other to those that most of what is between them agrees on.

    One span with a wrong time would otherwise move all that its machine recorded. ``first``, ``second`` and ``late``:
    for each cause and its effect their machines, and how far the effect seems to precede the cause.
    """
    known = (least > _NOTHING) & (least.T > _NOTHING)
    least_of_both = np.where(known, least, 0)
    for one, other in np.argwhere(known & (least_of_both + least_of_both.T > 0)).tolist():
        if one < other:
            there = np.sort(late[(first == one) & (second == other)])
            back = np.sort(-late[(first == other) & (second == one)])
            shifts = np.concatenate([[0], there, back])
            against = len(there) - np.searchsorted(there, shifts, "right") + np.searchsorted(back, shifts, "left")
            shift = shifts[np.lexsort((np.abs(shifts), against))[0]]
            least[one, other] = max(there[there <= shift], default=_NOTHING)
            least[other, one] = max(-back[back >= shift], default=_NOTHING)


def _begun(calls: Calls) -> tuple[Any, Any, Any]:
    """The rows of causes and effects, and the column of times in which they compare: submissions start first."""
    rows = np.nonzero(as_numpy(calls.role) == EXECUTION)[0]
    submission = as_numpy(calls.submission)[as_numpy(calls.call_of)[rows]]
    return submission[submission >= 0], rows[submission >= 0], calls.table.start


def _below(calls: Calls) -> tuple[Any, Any, Any]:
    """As :func:`_begun`, for all other spans: a request at the proxy starts before its part at the replica."""
    parent, role = as_numpy(calls.table.parent), as_numpy(calls.role)
    rows = np.nonzero((parent >= 0) & ((role != EXECUTION) | (role[parent] != SUBMISSION)))[0]
    return parent[rows], rows, calls.table.start


def _got(calls: Calls) -> tuple[Any, Any, Any]:
    """As :func:`_begun`, for results: an execution ends before the ``ray.get`` that returns its result ends."""
    table = calls.table
    rows, texts = table.objects.flat()
    call = calls.producers(table.objects)[texts]
    execution, first = as_numpy(calls.execution), as_numpy(calls.first)
    made = np.where((call >= 0) & (execution[call] == first[call]), execution[call], -1) if len(execution) else call
    state, status, site = as_numpy(table.state), as_numpy(table.status), as_numpy(table.site)
    is_generator = np.array([each.get(names.RAY_GENERATOR_ITEMS) is not None for each in table.sites], bool)
    is_cause = (as_numpy(calls.role)[rows] == GET) & (state[rows] == ENDED) & (status[rows] != STATUS_ERROR)
    is_cause &= (made >= 0) & (state[made] == ENDED) & ~is_generator[site[made]]
    return made[is_cause], rows[is_cause], table.end


def _shifts(bounds: Mapping[tuple[str, str], int], reference: str) -> dict[str, int]:
    """What to add to the times of each machine to satisfy all bounds, as far as they do not contradict each other."""
    shifts = {reference: 0}
    if all(least <= 0 for least in bounds.values()):
        return shifts
    upper = {(second, first): least for (first, second), least in bounds.items()}
    for machine in sorted({machine for pair in bounds for machine in pair} - {reference}):
        # Shifts that are already chosen bound the rest, so the other machines can still satisfy their bounds.
        low = _longest(bounds, shifts).get(machine)
        high = _longest(upper, {known: -shift for known, shift in shifts.items()}).get(machine)
        shift = 0 if high is None else min(0, -high)
        shifts[machine] = shift if low is None else max(shift, low)
    return shifts


def _longest(bounds: Mapping[tuple[str, str], int], known: Mapping[str, int]) -> dict[str, int]:
    """The greatest shift that chains of bounds demand of each machine, given the ``known`` shifts of some."""
    asked = dict(known)
    for _ in range(_ROUNDS):
        changed = False
        for (first, second), least in bounds.items():
            if first in asked and second not in known and asked[first] + least > asked.get(second, _NOTHING):
                asked[second] = asked[first] + least
                changed = True
        if not changed:
            break
    return asked


_NOTHING = -(1 << 63)
