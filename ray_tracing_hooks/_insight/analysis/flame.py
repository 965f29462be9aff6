"""Calls merged by their call stacks across all processes, as a flame graph shows them.

The width of a stack is either its share of the wall time or the total time of its calls. Both include all stacks below
it, so no stack is wider than the one above it, and the width agrees with the label.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ray_tracing_hooks._insight.analysis.parallelism import means
from ray_tracing_hooks._insight.model.call_names import call_name
from ray_tracing_hooks._insight.model.calls import WAITS, role_of
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER
from ray_tracing_hooks._insight.model.table import Table

MOST_STACKS = 20_000
MOST_DEPTH = 1_000
_PARTS = 4096
"""The number of equal time slices for which the mean concurrency is computed."""

BEYOND = "(other stacks)"
"""The label that replaces stacks beyond the limits on their number and depth."""


class Flame(NamedTuple):
    """Stacks as a tree; each stack's index is greater than that of the stack above it. Times are in nanoseconds."""

    label: list[str]
    """The function or span at the end of the stack."""
    parent: list[int]
    """The stack above, -1 for none."""
    first: list[int]
    """When the first of its spans started."""
    spans: list[int]
    errors: list[int]
    total: list[int]
    """The sum of the durations of its spans; concurrent spans each count in full."""
    wall: list[int]
    """The time in which at least one of them ran."""
    own: list[int]
    """The part of ``total`` in which a span ran but none below it, in any process."""
    share: list[int]
    """Its share of the wall time: each moment counts once, divided equally among what ran then, as in ``own``. Waits
    get a share only of moments in which nothing ran. A stack's share of the wall time includes those of the stacks
    below it; the shares of all stacks add up to the time in which there was any span."""
    is_wait: list[bool]
    """Whether it waits for objects, as ``ray.get`` does; the calls that it waits for are its siblings."""
    of: array[int]
    """By row of the table, its stack."""


def flame(table: Table, ends: array[int]) -> Flame:
    """The stacks of all spans. An execution is directly below the span that made the call, not below its submission."""
    labels = [call_name(name) for name in table.names]
    above = callers(table)
    tree = Flame([], [], [], [], [], [], [], [], [], [], array("q", b"\xff" * (8 * len(table))))
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


def callers(table: Table) -> array[int]:
    """For each row the row above it in its stack: for an execution the span that made the call, not its submission."""
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
    for figures in (tree.spans, tree.errors, tree.total, tree.wall):
        figures.extend([0] * size)
    tree.is_wait.extend(role_of(label) in WAITS for label in tree.label)
    count, errors, total, wall = tree.spans, tree.errors, tree.total, tree.wall
    until = [0] * size
    for row, (begin, end, stack) in enumerate(zip(table.start, ends, tree.of, strict=True)):
        count[stack] += 1
        total[stack] += end - begin
        last = until[stack]
        if end > last:
            wall[stack] += end - max(begin, last)
            until[stack] = end
        if table.failed(row):
            errors[stack] += 1
    first = table.start[0] if len(table) else 0
    own, share = spent(table.start, ends, above, tree.of, tree.is_wait, first, max(ends, default=first))
    tree.own.extend(own)
    tree.share.extend(share)


def spent(
    begin: Sequence[int],
    end: Sequence[int],
    above: Sequence[int],
    of: Sequence[int],
    is_wait: Sequence[bool],
    first: int,
    last: int,
) -> tuple[list[int], list[int]]:
    """For each stack the own time of its spans, and its share of the time from ``first`` to ``last``.

    ``begin``, ``end``, ``above`` and ``of`` have for each span, by start: its start and end within that time, the
    number of the span above it or -1, and its stack.
    """
    length = max(1, last - first)
    width = max(1, -(-length // _PARTS))
    rows = list(map(is_wait.__getitem__, of))
    ran = means(((a, b) for row, a, b in pieces(begin, end, above) if not rows[row]), first, length, _PARTS)
    waited = means(((a, b) for row, a, b in pieces(begin, end, above) if rows[row]), first, length, _PARTS)
    # In a slice in which nothing runs at times, waits share the rest.
    clocks = (
        _clock([1 / max(1.0, each) for each in ran], width),
        _clock([(1 - min(1.0, busy)) / max(1.0, each) for busy, each in zip(ran, waited, strict=True)], width),
    )
    own, share = [0] * len(is_wait), [0.0] * len(is_wait)
    for row, since, until in pieces(begin, end, above):
        rate, passed = clocks[rows[row]]
        own[of[row]] += until - since
        at, to = (since - first) // width, min(_PARTS - 1, (until - first) // width)
        share[of[row]] += (
            passed[to] + (until - first - to * width) * rate[to] - passed[at] - (since - first - at * width) * rate[at]
        )
    return own, [round(each) for each in share]


def pieces(begin: Sequence[int], end: Sequence[int], above: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The intervals in which each span ran but none below it: its number, start and end of the interval."""
    done = array("q", begin)
    """For each span, the end of the time that has been covered."""
    for since, until, caller in zip(begin, end, above, strict=True):
        if caller >= 0:
            told = done[caller]
            inside, since = min(until, end[caller]), max(since, told)  # noqa: PLW2901  not before the covered time
            if inside > since:
                if since > told:
                    yield caller, told, since
                done[caller] = inside
    for row, (told, until) in enumerate(zip(done, end, strict=True)):
        if until > told:
            yield row, told, until


def _clock(rate: list[float], width: int) -> tuple[list[float], list[float]]:
    """A clock that runs at another rate in each slice: its rates, and its reading at the start of each slice."""
    return rate, [0.0, *(each * width for each in accumulate(rate))]
