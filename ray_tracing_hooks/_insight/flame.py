"""Calls merged by their stacks, over all processes: what a flame graph shows."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from ray_tracing_hooks._insight.model import CONSUMER, PRODUCER
from ray_tracing_hooks._insight.outline import call_name
from ray_tracing_hooks._insight.table import Table

MOST_STACKS = 20_000
MOST_DEPTH = 1_000
BEYOND = "(all further stacks)"
"""What stacks are put together as that are more, or deeper, than anybody can look at."""


class Flame(NamedTuple):
    """Stacks as a tree; a stack's index is greater than that of the stack above it. Times are in nanoseconds."""

    label: list[str]
    """The function or span at the end of the stack."""
    parent: list[int]
    """The stack above, -1 for none."""
    first: list[int]
    """When the first of its spans began."""
    spans: list[int]
    errors: list[int]
    total: list[int]
    """The durations of its spans, added up: spans that run at once count each."""
    wall: list[int]
    """The time in which at least one of them ran."""
    own: list[int]
    """The part of ``total`` in which a span ran and none below it did, in whatever process."""
    of: array[int]
    """By row of the table, its stack."""


def flame(table: Table, ends: array[int]) -> Flame:
    """The stacks of all spans. An execution stands right below the span that made the call, not its submission."""
    labels = [call_name(name) for name in table.names]
    above = _callers(table)
    tree = Flame([], [], [], [], [], [], [], [], array("q", b"\xff" * (8 * len(table))))
    of, depth = tree.of, [0] * 0
    known: dict[tuple[int, str], int] = {}
    beyond = -1

    def stack(parent: int, label: str, start: int) -> int:
        nonlocal beyond
        found = known.get((parent, label), -1)
        if found >= 0:
            return found
        level = depth[parent] + 1 if parent >= 0 else 0
        is_beyond = (parent >= 0 and parent == beyond) or len(tree.label) >= MOST_STACKS or level >= MOST_DEPTH
        if is_beyond:
            if beyond >= 0:
                return beyond
            parent, label, level = -1, BEYOND, 0
            beyond = len(tree.label)
        known[parent, label] = len(tree.label)
        tree.label.append(label)
        tree.parent.append(parent)
        tree.first.append(start)
        depth.append(level)
        return len(tree.label) - 1

    kinds, name_of, start = table.kind, table.name, table.start
    for row in range(len(table)):
        pending = []
        here = row
        while here >= 0 and of[here] < 0:
            pending.append(here)
            here = above[here]
        parent = of[here] if here >= 0 else -1
        for each in reversed(pending):
            index = name_of[each]
            label = table.names[index] if kinds[each] == PRODUCER else labels[index]
            parent = of[each] = stack(parent, label, start[each])
    _measure(table, ends, above, tree)
    return tree


def _callers(table: Table) -> array[int]:
    """For each row the row above it in a stack: for an execution what made the call, not the submission between."""
    parents, kinds = table.parent, table.kind
    return array(
        "q",
        [
            parents[parent] if parent >= 0 and kinds[row] == CONSUMER and kinds[parent] == PRODUCER else parent
            for row, parent in enumerate(parents)
        ],
    )


def _measure(table: Table, ends: array[int], above: array[int], tree: Flame) -> None:
    size = len(tree.label)
    tree.spans.extend([0] * size)
    tree.errors.extend([0] * size)
    tree.total.extend([0] * size)
    tree.wall.extend([0] * size)
    tree.own.extend([0] * size)
    count, errors, total, wall, own = tree.spans, tree.errors, tree.total, tree.wall, tree.own
    until = [0] * size
    covered = array("q", bytes(8 * len(table)))
    """By row, until when the spans below it are accounted for."""
    start, of = table.start, tree.of
    for row, (begin, end, stack, caller) in enumerate(zip(start, ends, of, above, strict=True)):
        count[stack] += 1
        total[stack] += end - begin
        own[stack] += end - begin
        last = until[stack]
        if end > last:
            wall[stack] += end - max(begin, last)
            until[stack] = end
        if table.failed(row):
            errors[stack] += 1
        if caller >= 0:
            inside = min(end, ends[caller])
            since = max(begin, start[caller], covered[caller])
            if inside > since:
                own[of[caller]] -= inside - since
                covered[caller] = inside
