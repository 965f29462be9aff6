"""Breaks down the waits of a critical path: by function and calls."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.critical_path import RUN, Step
from ray_tracing_hooks._insight.model.calls import WAITS, Calls

MOST_GROUPS = 20
MOST_ROWS = 20


@dataclass
class Group:
    """Time of one kind in one function, in nanoseconds."""

    function: str
    ns: int = 0
    most: int = 0
    """The longest single part of it."""
    of: dict[int, int] = field(default_factory=dict)
    """The part of each span, by its row; the row is -1 or beyond the table where there is no span."""

    def rows(self, size: int) -> list[int]:
        """The rows of spans in a table of this size, largest time first; at most ``MOST_ROWS``."""
        return heapq.nlargest(MOST_ROWS, (row for row in self.of if 0 <= row < size), key=self.of.__getitem__)


def breakdown(calls: Calls, steps: Sequence[Step]) -> dict[str, list[Group]]:
    """The groups of each kind of wait among these steps of a path, largest first."""
    found: dict[str, dict[str, Group]] = {}
    for step in steps:
        length = step.end - step.start
        if step.kind == RUN or length <= 0:
            continue
        function = _function(calls, step.row)
        group = found.setdefault(step.kind, {}).setdefault(function, Group(function))
        group.ns += length
        group.most = max(group.most, length)
        group.of[step.row] = group.of.get(step.row, 0) + length
    return {kind: sorted(groups.values(), key=lambda each: (-each.ns, each.function)) for kind, groups in found.items()}


def _function(calls: Calls, row: int) -> str:
    """The function that a step belongs to; for a wait, the function that waited."""
    if row < 0:
        return "no span"
    if row < len(calls.table) and calls.role[row] in WAITS:
        return calls.frame_name(calls.frame[row])
    return calls.frame_name(row)
