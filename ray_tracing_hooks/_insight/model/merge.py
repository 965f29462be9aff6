"""Merges the columns of all parts into one set: with common indexes, without duplicate spans, and sorted by start."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ray_tracing_hooks._insight.model.columns import COLUMNS, ENDED, NO_ID, NONE, Columns, Origins
from ray_tracing_hooks._insight.model.id_lists import IdLists, Strings
from ray_tracing_hooks._insight.model.span import Span

_IDS = ("task", "caller")
"""The columns of task ids. Their indexes are unified once all parts are there, other indexes part by part."""


class Details(Protocol):
    """The source of a span's details that the columns do not hold."""

    def add(self, path: str, origins: Origins, first: int) -> None:
        """Add a part of a file. Its spans are numbered from ``first``."""

    def span(self, number: int, resource: dict[str, Any], scope: str) -> Span | None:
        """The span with this number; None if it no longer exists."""

    def place(self, number: int) -> tuple[str, int, int]:
        """The file of the span with this number, the offset of its line there, -1 for none, and its index in that."""


class Merged:
    """All parts merged. The columns are NumPy arrays, with each span once, by start."""

    def __init__(self, parts: Iterable[tuple[str, Columns]], details: Details) -> None:
        """``parts``: pairs of a file's path and the columns read from it. Each is released once it is merged."""
        self.objects, self.ready, self.named = IdLists(), IdLists(), IdLists()
        self.kept: dict[int, Span] = {}
        self.traces: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.scopes: dict[str, int] = {}
        self.resources: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        self.details = details
        self.duplicates = 0
        self._openings: set[int] = set()
        self._truncated: set[int] = set()
        self._size = 0
        # All parts go into one array each: many small arrays would leave gaps in memory that the system cannot reuse.
        self._columns = {name: array("I" if name in _IDS else column.dtype.char) for name, column in _empty().items()}
        self._resource_of: dict[str, int] = {}
        self._site_of: dict[str, int] = {}
        self.ids = Strings()
        for path, columns in parts:
            self._add(path, columns)
        # Most ids are in several parts, so equal ids get one index here.
        first, self._number = np.unique(self.ids.numbers(), return_inverse=True)
        self.ids = self.ids.taken(first)
        # The number of each row, counted across all parts in their order.
        self.rows = self._by_start(self._unique())
        self.truncated = int(np.isin(self.rows, [*self._truncated]).sum())
        self.objects, self.ready = self.objects.taken(self.rows), self.ready.taken(self.rows)
        self.named = self.named.taken(self.rows)
        if self.kept:
            new = {int(old): row for row, old in enumerate(self.rows) if int(old) in self.kept}
            self.kept = {row: self.kept[old] for old, row in new.items()}

    def column(self, name: str) -> Any:
        """A column. It is released, so each column can be taken only once."""
        column = as_numpy(self._columns.pop(name))[self.rows]
        if name in _IDS:
            has_id = column != NONE
            column[has_id] = self._number[column[has_id]]
        return column

    def _add(self, path: str, columns: Columns) -> None:
        known = {
            "trace": _indexes(self.traces, columns.traces),
            "name": _indexes(self.names, columns.names),
            "scope": _indexes(self.scopes, columns.scopes),
            "resource": _indexes_of_dicts(self.resources, self._resource_of, columns.resources),
            "site": _indexes_of_dicts(self.sites, self._site_of, columns.sites),
        }
        for name in COLUMNS:
            column = as_numpy(getattr(columns, name))
            if name in known:
                column = np.array(known[name], np.uint32)[column]
            elif name in _IDS:
                column = np.where(column == NO_ID, np.uint32(NONE), column.astype(np.uint32) + np.uint32(len(self.ids)))
            self._columns[name].frombytes(column.view("B").data)
        self.ids.extend(Strings(columns.ids))
        first = self._size
        self._size += len(columns)
        self.objects.extend(columns.objects, first)
        self.ready.extend(columns.ready, first)
        self.named.extend(columns.named, first)
        self.kept.update({row + first: span for row, span in columns.kept.items()})
        self._openings.update([row + first for row in columns.openings])
        self._truncated.update([row + first for row in columns.truncated])
        self.details.add(path, columns.origins, first)

    def _by_start(self, rows: Any) -> Any:
        start = as_numpy(self._columns["start"])[rows]
        return rows if (start[1:] >= start[:-1]).all() else rows[np.argsort(start, kind="stable")]

    def _unique(self) -> Any:
        """The rows without duplicates; the best record of a span takes the place of the first one."""
        rows = np.arange(self._size)
        trace, span_id, end, state = (as_numpy(self._columns[name]) for name in ("trace", "span_id", "end", "state"))
        several = repeated(span_id)
        if not several.any():
            return rows

        def rank(row: int) -> tuple[bool, bool, int]:
            return bool(end[row]), bool(state[row] == ENDED), int(end[row])

        place: dict[tuple[int, int], int] = {}
        keep = np.ones(self._size, bool)
        for row in np.nonzero(several)[0].tolist():
            first = place.setdefault((int(trace[row]), int(span_id[row])), row)
            if first == row:
                continue
            best = int(rows[first])
            self.duplicates += not (row in self._openings or best in self._openings)
            # Of equal ones the last that was read: a spool, which comes first, has less of the scope than a file.
            if rank(row) >= rank(best):
                rows[first] = row
            keep[row] = False
        return rows[keep]


def _empty() -> dict[str, Any]:
    columns = Columns()
    return {name: as_numpy(getattr(columns, name)) for name in COLUMNS}


def repeated(numbers: Any) -> Any:
    """For each number whether it occurs more than once."""
    sorted_only = np.sort(numbers)
    if not (sorted_only[1:] == sorted_only[:-1]).any():
        return np.zeros(len(numbers), bool)  # the usual case, without the cost of the stable sort
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    same = ordered[1:] == ordered[:-1]
    found = np.zeros(len(numbers), bool)
    found[order[1:][same]] = True
    found[order[:-1][same]] = True
    return found


def as_numpy(column: Any) -> Any:
    """A NumPy array over the memory of an array, a bytearray, or a mapped part of a file."""
    view = memoryview(column)
    return np.frombuffer(view, view.format if view.format != "c" else "B")


def as_array(column: Any, typecode: str) -> array[int]:
    """A copy of a NumPy array as an ``array``, whose single items are faster to get."""
    found: array[int] = array(typecode)
    found.frombytes(np.ascontiguousarray(column, typecode).view("B").data)
    return found


def _indexes(known: dict[str, int], more: Iterable[str]) -> list[int]:
    return [known.setdefault(text, len(known)) for text in more]


def _indexes_of_dicts(known: list[dict[str, Any]], index: dict[str, int], more: Iterable[dict[str, Any]]) -> list[int]:
    found = []
    for each in more:
        key = json.dumps(each, sort_keys=True)
        if key not in index:
            index[key] = len(known)
            known.append(each)
        found.append(index[key])
    return found
