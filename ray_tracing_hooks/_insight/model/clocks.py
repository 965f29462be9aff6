"""Clock skew between machines: detected where an effect seems to precede its cause, and corrected.

A submission starts before its execution, any other span before its children, and a task ends before the ``ray.get``
that returns its result. Where the clocks of two machines contradict this, one clock is shifted by the smallest amount
that resolves it. Where spans contradict each other, so that no shifts resolve it all, the few count less than the many:
between two machines, as many ask for a greater shift as for a smaller one. If more machines contradict each other, only
the pairs with the most spans between them count, as far as these connect the machines, and of effects that all go one
way, half may precede their causes. A clock that has changed gets a shift between those before and after. The clock
of the driver's machine is the reference, or that of the first root span if there is no driver. Skew without a
contradiction is not corrected: clocks that differ by less than the time a message takes look equal. Nor is a wrong time
known as such where no other span contradicts it. Processes on one machine share its clock.
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

_FARTHEST = 1 << 61
"""Nanoseconds, or 73 years: more than a clock that begins in 1970 is off. Times that are farther apart are damaged."""


def correct(table: Table) -> Table:
    """The table with its clock skew corrected; ``quality.clocks`` has what was added for each machine."""
    return corrected(table)[0]


def corrected(table: Table) -> tuple[Table, Calls | None]:
    """The same, and the calls of the table if they were joined and remain valid, since joining them takes a while."""
    machine_of = [machine(resource) for resource in table.resources]
    if not 1 < len(set(machine_of)) <= _MOST_MACHINES:
        return table, None
    calls = Calls(table)
    shifts = _shifts_of(calls, machine_of)
    if shifts:
        by_resource = array("q", [shifts.get(machine, 0) for machine in machine_of])
        table = table.part(range(len(table)), by_resource)
        table.quality.clocks = dict(sorted(shifts.items()))
        return table, None
    return table, calls


def _shifts_of(calls: Calls, machine_of: list[str]) -> dict[str, int]:
    """What to add to the times of each machine whose clock is corrected."""
    machines = sorted(set(machine_of))
    number = {machine: at for at, machine in enumerate(machines)}
    of_row = np.array([number[machine] for machine in machine_of])[as_numpy(calls.table.resource)]
    pairs = _Pairs(calls, of_row, len(machines), number.get("", -1))
    pairs.settle()
    shifts = _shifts(_chains(pairs.least), number[_reference(calls, machine_of)])
    return {machine: shift for machine, shift in zip(machines, shifts, strict=True) if 0 < abs(shift) < _FARTHEST}


def machine(resource: Mapping[str, object]) -> str:
    """The machine whose clock the spans of a Resource are by; empty if unknown."""
    found = (resource.get(key) for key in ("host.name", "host.id", names.RESOURCE_NODE_ID))
    return next((str(each) for each in found if each), "")


def _reference(calls: Calls, machine_of: list[str]) -> str:
    drivers = [row for row in calls.drivers() if row < len(calls.table)]
    if drivers:
        return machine_of[calls.table.resource[drivers[0]]]
    roots = np.nonzero(as_numpy(calls.table.parent) < 0)[0]
    return machine_of[calls.table.resource[int(roots[0])]] if len(roots) else ""


class _Pairs:
    """For each pair of machines, how far effects on the second seem to precede their causes on the first.

    Attributes:
        size: The number of machines.
        least: Their bounds: the least that must be added to the times of the second, or subtracted from those of the
            first. A bound is negative if all effects come after their causes, and ``_NOTHING`` where there are none.
    """

    def __init__(self, calls: Calls, of_row: Any, size: int, unknown: int) -> None:
        """``of_row`` has the number of the machine of each row; times of the ``unknown`` one are by several clocks."""
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
        is_known = (first != unknown) & (second != unknown)
        first, second, late = first[is_known], second[is_known], late[is_known]
        pair, late = first * size + second, np.clip(late, -_FARTHEST, _FARTHEST)
        order = np.lexsort((late, pair))
        self.size = size
        self._late = late[order]
        self._begin = np.searchsorted(pair[order], np.arange(size * size + 1))
        least = np.full(size * size, _NOTHING)
        seen = self._begin[1:] > self._begin[:-1]
        least[seen] = self._late[self._begin[1:][seen] - 1]
        self.least = least.reshape(size, size)
        np.fill_diagonal(self.least, _NOTHING)

    def settle(self) -> None:
        """Lower bounds that contradict each other, so that no time is moved against what most others agree on.

        One span with a wrong time would otherwise move all that its machine recorded.
        """
        known = (self.least > _NOTHING) & (self.least.T > _NOTHING)
        both = np.where(known, self.least, 0)
        for one, other in np.argwhere(known & (both + both.T > 0)).tolist():
            if one < other:
                self._settle(one, other)
        if (np.diagonal(_chains(self.least)) > 0).any():
            self._keep_strongest()

    def _keep_strongest(self) -> None:
        """Keep only bounds that cannot contradict each other: those of the pairs with the most spans between them, both
        ways if possible, as far as these connect the machines (a maximum spanning tree). Where all go one way, the
        bound is what half of them ask for.
        """
        between = np.diff(self._begin).reshape(self.size, self.size)
        for one, other in np.argwhere((between > 0) & (between.T == 0)).tolist():
            late = self._between((one, other))
            self.least[one, other] = late[(len(late) - 1) // 2]
        spans = np.triu(between + between.T + len(self._late) * np.minimum(between, between.T), 1)
        group, kept = np.arange(self.size), np.zeros_like(self.least, bool)
        for pair in np.argsort(-spans, axis=None, kind="stable")[: np.count_nonzero(spans)].tolist():
            one, other = divmod(pair, self.size)
            if group[one] != group[other]:
                group[group == group[other]] = group[one]
                kept[one, other] = kept[other, one] = True
        self.least[~kept] = _NOTHING

    def _settle(self, one: int, other: int) -> None:
        """Keep the bounds of two machines around the shift that is least far, in total, from what is between them: as
        many effects ask for more as for less.
        """
        there, back = self._between((one, other)), -self._between((other, one))[::-1]
        shifts = np.sort(np.concatenate([there, back]))
        more, not_less = (len(there) - np.searchsorted(there, shifts, side) for side in ("right", "left"))
        less, not_more = (np.searchsorted(back, shifts, side) for side in ("left", "right"))
        shift = min(max(0, shifts[more <= not_more][0]), shifts[not_less >= less][-1])
        self.least[one, other] = max(there[there <= shift], default=shift)
        self.least[other, one] = max(-back[back >= shift], default=-shift)

    def _between(self, pair: tuple[int, int]) -> Any:
        at = pair[0] * self.size + pair[1]
        return self._late[self._begin[at] : self._begin[at + 1]]


def _begun(calls: Calls) -> tuple[Any, Any, Any]:
    """The rows of causes and effects, and the column of times in which they compare: submissions start first."""
    rows = calls.rows_of(EXECUTION)
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
    state, status = as_numpy(table.state), as_numpy(table.status)
    is_generator = table.is_at(lambda site: site.get(names.RAY_GENERATOR_ITEMS) is not None)
    is_cause = (as_numpy(calls.role)[rows] == GET) & (state[rows] == ENDED) & (status[rows] != STATUS_ERROR)
    is_cause &= (made >= 0) & (state[made] == ENDED) & ~is_generator[made]
    return made[is_cause], rows[is_cause], table.end


def _shifts(chains: Any, reference: int) -> list[int]:
    """What to add to the times of each machine, the least that satisfies all bounds; for ``chains`` see below."""
    shifts = np.zeros(len(chains), np.int64)
    known = [reference]
    for machine in range(len(chains)):
        if machine != reference:
            # Shifts that are already chosen bound the rest, so the other machines can still satisfy their bounds.
            here, after, before = shifts[known], chains[known, machine], chains[machine, known]
            low = max((here + after)[after > _NOTHING], default=_NOTHING)
            high = min((here - before)[before > _NOTHING], default=0)
            shifts[machine] = max(low, min(0, high))
            known.append(machine)
    return [int(shift) for shift in shifts]


def _chains(least: Any) -> Any:
    """The greatest bound that chains of bounds set for each pair of machines (Floyd and Warshall's algorithm).

    If bounds contradict each other, that of some machine against itself is above 0.
    """
    longest = least.copy()
    np.fill_diagonal(longest, 0)
    for middle in range(len(least)):
        through = longest[:, middle, None] + longest[middle]
        is_longer = (through > longest) & (through > -_FARTHEST)
        longest = np.where(is_longer, np.minimum(through, _FARTHEST), longest)
    return longest


_NOTHING = -(1 << 62)
"""Less than any bound."""
