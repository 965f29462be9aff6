"""What was read in parts put together: one set of columns, with indexes that are common to all."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import le
from typing import Any

from ray_tracing_hooks._insight.columns import ENDED, NONE, Columns
from ray_tracing_hooks._insight.model import Span
from ray_tracing_hooks._insight.source import Lines
from ray_tracing_hooks._insight.texts import IdLists, Texts

_PLAIN = ("start", "end", "submitted", "span_id", "parent_id", "kind", "status", "state")
_BUCKETS = 4


class Whole:
    """The parts one after the other; each is let go of when it has been added."""

    def __init__(self, parts: Iterable[tuple[str, Columns]]) -> None:
        self.start, self.end, self.submitted = array("q"), array("q"), array("q")
        self.span_id, self.parent_id = array("Q"), array("Q")
        self.trace, self.name, self.resource, self.scope = array("I"), array("I"), array("I"), array("I")
        self.site, self.task, self.caller = array("I"), array("I"), array("I")
        self.kind, self.status, self.state = bytearray(), bytearray(), bytearray()
        self.objects, self.ready = IdLists(), IdLists()
        self.kept: dict[int, Span] = {}
        self.openings: set[int] = set()
        self.traces: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.scopes: dict[str, int] = {}
        self.resources: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        self.lines = Lines()
        self.duplicates = 0
        self.different = 0
        """How many span ids there are."""
        self._resource_of: dict[str, int] = {}
        self._site_of: dict[str, int] = {}
        # Each with how many are before it: asking for one adds it.
        ids: dict[str, int] = defaultdict(count().__next__)
        for path, columns in parts:
            self._add(path, columns, ids)
        self.ids = Texts(ids)

    def _add(self, path: str, columns: Columns, ids: dict[str, int]) -> None:
        base = len(self.start)
        for name in _PLAIN:
            getattr(self, name).extend(getattr(columns, name))
        for name, known in (
            ("trace", _joined(self.traces, columns.traces)),
            ("name", _joined(self.names, columns.names)),
            ("scope", _joined(self.scopes, columns.scopes)),
            ("resource", _joined_dicts(self.resources, self._resource_of, columns.resources)),
            ("site", _joined_dicts(self.sites, self._site_of, columns.sites)),
        ):
            column: array[int] = getattr(columns, name)
            if known != list(range(len(known))):
                column = array("I", list(map(known.__getitem__, column)))
            getattr(self, name).extend(column)
        # The last one is what an index of -1 stands for.
        known = [*map(ids.__getitem__, columns.ids), NONE]
        for name in ("task", "caller"):
            getattr(self, name).extend(array("I", list(map(known.__getitem__, getattr(columns, name)))))
        self.objects.take(columns.objects, base)
        self.ready.take(columns.ready, base)
        self.kept.update({row + base: span for row, span in columns.kept.items()})
        self.openings.update([row + base for row in columns.openings])
        self.lines.add(path, columns.origins, base)

    def order(self) -> Sequence[int]:
        """The rows as the table has them: each span once, by start."""
        rows: Sequence[int] = range(len(self.start))
        self.different = self._different_ids()
        if self.different < len(rows):
            rows = self._without_duplicates()
        start = self.start
        if isinstance(rows, range) and all(map(le, start, memoryview(start)[1:])):
            return rows
        return sorted(rows, key=start.__getitem__)

    def _different_ids(self) -> int:
        # Not in one set, which would take more memory than all columns.
        low = self.span_id.tobytes()[::8]
        found = 0
        for bucket in range(_BUCKETS):
            is_in = bytes(byte % _BUCKETS == bucket for byte in range(256))
            found += len(set(compress(self.span_id, low.translate(is_in))))
        return found

    def _without_duplicates(self) -> list[int]:
        best: dict[tuple[int, int], int] = {}
        for row, key in enumerate(zip(self.trace, self.span_id, strict=True)):
            other = best.setdefault(key, row)
            if other != row:
                self.duplicates += not (row in self.openings or other in self.openings)
                if self._rank(row) > self._rank(other):
                    best[key] = row
        return list(best.values())

    def _rank(self, row: int) -> tuple[bool, bool, int]:
        return bool(self.end[row]), self.state[row] == ENDED, self.end[row]


def _joined(known: dict[str, int], more: Iterable[str]) -> list[int]:
    return [known.setdefault(text, len(known)) for text in more]


def _joined_dicts(known: list[dict[str, Any]], index: dict[str, int], more: Iterable[dict[str, Any]]) -> list[int]:
    found = []
    for each in more:
        key = json.dumps(each, sort_keys=True)
        if key not in index:
            index[key] = len(known)
            known.append(each)
        found.append(index[key])
    return found
