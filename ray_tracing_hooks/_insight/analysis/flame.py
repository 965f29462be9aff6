"""Calls merged by their call stacks across all processes, as a flame graph shows them.

The width of a stack is either its share of the wall time or the total time of its calls. Both include all stacks below
it, so no stack is wider than the one above it, and the width agrees with the label.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks._insight.analysis.functions import means
from ray_tracing_hooks._insight.model.calls import WAITS, role_of
from ray_tracing_hooks._insight.model.grouped import covered_by_group, levels, sums, uncovered
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER, call_name
from ray_tracing_hooks._insight.model.table import Table

MOST_STACKS = 20_000
MOST_DEPTH = 1_000
_CHUNK = 1 << 17
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


def flame(table: Table, ends: array[int], is_failed: Any) -> Flame:
    """The stacks of all spans; the NumPy column ``is_failed`` says which of them failed.

    An execution is directly below the span that made the call, not below its submission.
    """
    above = callers(table)
    tree = Flame([], [], [], [], [], [], [], [], [], [], array("i"))
    depth: list[int] = []
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

    labels, label_of = _labels(table)
    chain_of, chains = _chains(above, label_of, len(labels))
    stack_of = [-1] * (len(chains) + 1)
    for number, parent, row in chains:
        stack_of[number] = stack(stack_of[parent], labels[label_of[row]], table.start[row])
    tree.of.frombytes(np.array(stack_of, np.int32)[chain_of].tobytes())
    tree.errors.extend(np.bincount(as_numpy(tree.of)[is_failed], minlength=len(tree.label)).tolist())
    _measure(table, ends, above, tree)
    return tree


def _labels(table: Table) -> tuple[list[str], Any]:
    """The distinct labels of the spans, and for each row the index of its label. A submission keeps its full name."""
    number: dict[str, int] = {}
    whole, short = (
        np.array([number.setdefault(label, len(number)) for label in texts], np.int64)
        for texts in (table.names, map(call_name, table.names))
    )
    name = as_numpy(table.name)
    return list(number), np.where(as_numpy(table.kind) == PRODUCER, whole[name], short[name])


def _chains(above: Any, label_of: Any, labels: int) -> tuple[Any, list[tuple[int, int, int]]]:
    """For each row the number of its chain of labels, outermost first; rows that are too deep share one chain.

    The second item lists all chains: the number of each, the number of the chain above it or -1, and its first row.
    They are by first row, each after the chain above it.
    """
    level = levels(above)
    chain_of = np.full(len(above), -1, np.int32)
    parents: list[Any] = []
    levels_of: list[Any] = []
    count = 0
    by_level = np.argsort(level, kind="stable")
    cuts = np.searchsorted(level[by_level], np.arange(1, min(int(level.max(initial=0)), MOST_DEPTH) + 1))
    for depth, rows in enumerate(np.split(by_level, cuts)):
        parent = np.where(above[rows] < 0, -1, chain_of[above[rows]])
        keys = (
            parent.astype(np.int64) * labels + label_of[rows] if depth < MOST_DEPTH else np.zeros(len(rows), np.int64)
        )
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        chain_of[rows] = number + count
        parents.append(parent[first])
        levels_of.append(np.full(len(first), depth))
        count += len(first)
    del by_level
    reached = _reached(above)
    shallow = np.nonzero(level <= MOST_DEPTH)[0]
    earliest = np.full(count, len(above))
    np.minimum.at(earliest, chain_of[shallow], reached[shallow])
    row_of = np.empty(count, np.int64)
    is_first = shallow[reached[shallow] == earliest[chain_of[shallow]]]
    row_of[chain_of[is_first]] = is_first
    if not count:
        return chain_of, []
    parent_of, depth_of = np.concatenate(parents), np.concatenate(levels_of)
    order = np.lexsort((depth_of, earliest))
    return chain_of, list(zip(order.tolist(), parent_of[order].tolist(), row_of[order].tolist(), strict=True))


def _reached(above: Any) -> Any:
    """For each row the smallest row at it or below it in the tree: its own, unless a row below it comes earlier."""
    found = np.arange(len(above), dtype=np.int32)
    for row in np.nonzero(above > found)[0].tolist():
        here = above[row]
        while here >= 0 and found[here] > row:
            found[here] = row
            here = above[here]
    return found


def callers(table: Table) -> Any:
    """For each row the row above it in its stack: for an execution the span that made the call, not its submission."""
    parent, kind = as_numpy(table.parent), as_numpy(table.kind)
    is_call = (parent >= 0) & (kind == CONSUMER) & (kind[parent] == PRODUCER)
    return np.where(is_call, parent[parent], parent)


def own_times(table: Table, ends: array[int]) -> Any:
    """For each row the time in which its span ran but none below it, in any process, as a NumPy column."""
    rows, since, until = pieces(as_numpy(table.start), as_numpy(ends), callers(table))
    found = np.zeros(len(table), np.int64)
    np.add.at(found, rows, until - since)
    return found


def _measure(table: Table, ends: array[int], above: Any, tree: Flame) -> None:
    size = len(tree.label)
    tree.is_wait.extend(role_of(label) in WAITS for label in tree.label)
    begin, end, of = as_numpy(table.start), as_numpy(ends), as_numpy(tree.of)
    tree.spans.extend(np.bincount(of, minlength=size).tolist())
    tree.total.extend(sums(of, end - begin, size))
    tree.wall.extend(covered_by_group(of, begin, end, size).tolist())
    first = table.start[0] if len(table) else 0
    own, share = spent(begin, end, above, of, tree.is_wait, first, int(end.max(initial=first)))
    tree.own.extend(own)
    tree.share.extend(share)


def spent(
    begin: Any, end: Any, above: Any, of: Any, is_wait: Sequence[bool], first: int, last: int
) -> tuple[list[int], list[int]]:
    """For each stack the own time of its spans, and its share of the time from ``first`` to ``last``.

    ``begin``, ``end``, ``above`` and ``of`` are NumPy columns with, for each span by start, its start and end within
    that time, the number of the span above it or -1, and its stack.
    """
    length = max(1, last - first)
    width = max(1, -(-length // _PARTS))
    rows, since, until = pieces(begin, end, above)
    stacks = of[rows]
    waits = np.array(is_wait, np.int8)[stacks]
    ran, waited = (means(since[waits == wait], until[waits == wait], first, length, _PARTS) for wait in (0, 1))
    # In a slice in which nothing runs at times, waits share the rest.
    clocks = (
        _clock([1 / max(1.0, each) for each in ran], width),
        _clock([(1 - min(1.0, busy)) / max(1.0, each) for busy, each in zip(ran, waited, strict=True)], width),
    )
    rate, passed = (np.array(each) for each in zip(*clocks, strict=True))
    size = len(is_wait)
    share = np.zeros(size)
    for begun in range(0, len(rows), _CHUNK):
        here = slice(begun, begun + _CHUNK)
        where, earlier, later = waits[here], since[here] - first, until[here] - first
        at, to = earlier // width, np.minimum(_PARTS - 1, later // width)
        passing = (
            passed[where, to]
            + (later - to * width) * rate[where, to]
            - passed[where, at]
            - (earlier - at * width) * rate[where, at]
        )
        np.add.at(share, stacks[here], passing)
    return sums(stacks, until - since, size), [round(each) for each in share.tolist()]


def pieces(begin: Any, end: Any, above: Any) -> tuple[Any, Any, Any]:
    """The intervals in which each span ran but none below it: columns of its number, start and end of the interval."""
    below = np.nonzero(above >= 0)[0]
    return uncovered(begin, end, above[below], begin[below], end[below])


def _clock(rate: list[float], width: int) -> tuple[list[float], list[float]]:
    """A clock that runs at another rate in each slice: its rates, and its reading at the start of each slice."""
    return rate, [0.0, *(each * width for each in accumulate(rate))]
