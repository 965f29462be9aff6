"""Chooses the spans that a page shows, and those with details, for a run that is too large to show completely."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from ray_tracing_hooks._insight.model.table import ENDED, Table

_SLOWEST = 100


def sample(table: Table, ends: array[int], most: int, wanted: Iterable[int]) -> list[int]:
    """At most ``most`` rows, in order.

    First those of ``wanted`` (the critical path, evidence of findings), then spans that failed or have not ended, the
    slowest of each name, and the first and the last span; then an evenly spaced sample of the rest.
    """
    size = len(table)
    if size <= most:
        return list(range(size))
    rows = range(size)
    return _first((wanted, (0, size - 1), _failed(table, rows), _slowest(table, ends, rows)), rows, most)


def with_details(table: Table, ends: array[int], rows: Sequence[int], most: int, path: Iterable[int]) -> list[int]:
    """The rows whose details the page holds: at most ``most`` of the rows that it shows, in order.

    First spans that failed or have not ended, then the slowest of each name, then the critical path; then an evenly
    spaced sample of the rest.
    """
    if len(rows) <= most:
        return list(rows)
    shown = range(len(table)) if len(rows) == len(table) else frozenset(rows)
    on_path = (row for row in path if row in shown)
    return _first((_failed(table, rows), _slowest(table, ends, rows), on_path), rows, most)


def _first(groups: Iterable[Iterable[int]], rows: Sequence[int], most: int) -> list[int]:
    """At most ``most`` rows, in order: the groups by priority, then an evenly spaced sample of the other rows.

    A group that does not fit is sampled evenly too.
    """
    chosen: dict[int, None] = {}
    for group in groups:
        more = [row for row in dict.fromkeys(group) if row not in chosen]
        chosen.update(dict.fromkeys(_spread(more, most - len(chosen))))
    chosen.update(dict.fromkeys(_spread([row for row in rows if row not in chosen], most - len(chosen))))
    return sorted(chosen)


def _spread(rows: Sequence[int], most: int) -> Iterable[int]:
    """All rows, or ``most`` evenly spaced ones."""
    if len(rows) <= most:
        return rows
    return [rows[place * len(rows) // most] for place in range(most)]


def _failed(table: Table, rows: Iterable[int]) -> Iterator[int]:
    return (row for row in rows if table.failed(row) or table.state[row] != ENDED)


def _slowest(table: Table, ends: array[int], rows: Iterable[int]) -> Iterator[int]:
    """The slowest spans of each name."""
    start, name = table.start, table.name
    by_name: dict[int, array[int]] = {}
    for row in rows:
        by_name.setdefault(name[row], array("I")).append(row)
    for of_name in by_name.values():
        yield from nlargest(_SLOWEST, of_name, key=lambda row: ends[row] - start[row])
