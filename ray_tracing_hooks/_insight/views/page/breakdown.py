"""Breaks down each kind of time in the split of a run: by function, actor or worker, and calls."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.critical_path import (
    ACTOR_QUEUE,
    RUN,
    SUBMIT,
    WORKER_QUEUE,
    Path,
    submissions,
)
from ray_tracing_hooks._insight.model.calls import WAITS, Calls

MOST_GROUPS = 20
MOST_ROWS = 20


@dataclass
class Group:
    """Time of one kind in one function, in nanoseconds."""

    function: str
    place: int = -1
    """The index of the place of the busy actor or worker; -1 if the time was not spent waiting for one."""
    ns: int = 0
    most: int = 0
    """The longest single part of it."""
    calls: int = 0
    """How many spans it comes from."""
    rows: list[int] = field(default_factory=list)
    """The rows of these spans, largest time first; at most ``MOST_ROWS``."""


def breakdown(calls: Calls, split: Path, place_of: Sequence[int]) -> dict[str, list[Group]]:
    """The groups of each kind of time, largest first. ``place_of`` has the place of each row of the table."""
    found: dict[str, dict[tuple[str, int], Group]] = {}
    spent: dict[tuple[str, str, int], dict[int, int]] = {}

    def add(kind: str, row: int, place: int, ns: int) -> None:
        function = _function(calls, row)
        group = found.setdefault(kind, {}).setdefault((function, place), Group(function, place))
        group.ns += ns
        group.most = max(group.most, ns)
        of = spent.setdefault((kind, function, place), {})
        of[row] = of.get(row, 0) + ns

    for step in split.steps:
        length = step.end - step.start
        if step.kind == RUN:
            for row, ns in submissions(calls, step):
                add(SUBMIT, row, -1, ns)
                length -= ns
        is_queue = step.kind in (ACTOR_QUEUE, WORKER_QUEUE)
        if length > 0:
            add(step.kind, step.row, place_of[step.row] if is_queue else -1, length)
    for kind, groups in found.items():
        for (function, place), group in groups.items():
            of = spent[kind, function, place]
            group.calls = len(of)
            group.rows = heapq.nlargest(
                MOST_ROWS, (row for row in of if 0 <= row < len(calls.table)), key=of.__getitem__
            )
    return {kind: sorted(groups.values(), key=lambda each: (-each.ns, each.function)) for kind, groups in found.items()}


def _function(calls: Calls, row: int) -> str:
    """The function that a step belongs to; for a wait, the function that waited."""
    if row < 0:
        return "no span"
    if row < len(calls.table) and calls.role[row] in WAITS:
        return calls.frame_name(calls.frame[row])
    return calls.frame_name(row)
