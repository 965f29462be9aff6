"""All spans of a run as columns: what a million of them can be held in, sorted, joined and gone over quickly.

A row is a span; rows are sorted by start. What the analysis needs of every span is in columns. The rest (attributes of
users, events, links) is read again from its file for the spans that somebody wants to see.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.columns import (
    ENDED,
    LOST,
    NONE,
    OBJECT_KEYS,
    RUNNING,
    SITE_KEYS,
    STATES,
    Columns,
)
from ray_tracing_hooks._insight.model import STATUS_ERROR, Span
from ray_tracing_hooks._insight.parts import parts_of, read_parts
from ray_tracing_hooks._insight.segments import read_segments
from ray_tracing_hooks._insight.source import Lines
from ray_tracing_hooks._spool.layout import SUFFIX

__all__ = ["ENDED", "LOST", "RUNNING", "STATES", "Table", "load"]


class Table:
    """Spans as columns; row numbers are from 0 and by start.

    ``start``, ``end``   ``array('q')``: nanoseconds since the epoch; an end of 0 is not known, and
                         none is before its start.
    ``parent``           ``array('q')``: the row of the parent, -1 where there is none or it is not in the table.
    ``span_id``          ``array('Q')``: the id as a number; :meth:`span_id_of` gives it in hex.
    ``name``             ``array('I')``: index into ``names``; likewise ``trace`` and ``traces`` (ids in hex),
                         ``resource`` and ``resources`` (attributes of the Resource), ``scope`` and ``scopes`` (names).
    ``kind, status``     ``bytearray``: the numbers of OTLP.
    ``state``            ``bytearray``: ``ENDED`` (0), ``RUNNING`` (1), ``LOST`` (2: its process died before it ended).
    ``site``             ``array('I')``: index into ``sites``, dictionaries of those attributes that are common to many
                         spans (``columns.SITE_KEYS``: function, actor, node, worker, error type, ...).
    ``task, caller``     ``array('I')``: index into ``ids`` of ``ray.task_id`` and ``ray.parent_task_id``, or ``NONE``.
    ``submitted``        ``array('q')``: ``ray.submit_time_unix_nano``, 0 where there is none.
    ``objects, ready``   dictionaries from a row to ids of objects: those among the arguments, waited for or
                         stored; those that were ready.
    ``now_ns``           when a running span is taken to end: the time of reading.
    ``quality``          what is wrong with the data.
    """

    def __init__(
        self, parts: Sequence[tuple[str, Columns]], quality: reading.Quality, now_ns: int | None = None
    ) -> None:
        """The spans of ``parts``, each with the file that it was read from; what is there twice is taken once."""
        self.quality = quality
        whole = _Whole(parts)
        order = whole.order()
        rows = len(order)
        self.start = array("q", _taken(whole.start, order))
        self.end = array("q", _taken(whole.end, order))
        self.span_id = array("Q", _taken(whole.span_id, order))
        self._parent_id = array("Q", _taken(whole.parent_id, order))
        self.trace = array("I", _taken(whole.trace, order))
        self.name = array("I", _taken(whole.name, order))
        self.resource = array("I", _taken(whole.resource, order))
        self.scope = array("I", _taken(whole.scope, order))
        self.site = array("I", _taken(whole.site, order))
        self.task = array("I", _taken(whole.task, order))
        self.caller = array("I", _taken(whole.caller, order))
        self._line = array("I", _taken(whole.line, order))
        self._place = array("I", _taken(whole.place, order))
        self.submitted = array("q", _taken(whole.submitted, order))
        self.kind = bytearray(_taken(whole.kind, order))
        self.status = bytearray(_taken(whole.status, order))
        self.state = bytearray(_taken(whole.state, order))
        self._take_sparse(whole.objects, whole.ready, whole.kept, order)
        self.traces, self.names, self.scopes = list(whole.traces), list(whole.names), list(whole.scopes)
        self.ids = list(whole.ids)
        self.resources, self.sites = whole.resources, whole.sites
        self._lines = Lines(whole.files)
        quality.spans = rows
        quality.duplicates += whole.duplicates
        quality.running, quality.lost = self.state.count(RUNNING), self.state.count(LOST)
        self._mend_times()
        self.parent = self._parents()
        del self._parent_id
        self.now_ns = self._now(now_ns)
        self._first_child: array[int] | None = None
        self._children: array[int] = array("q")
        self._last_known: dict[int, int] | None = None

    def part(self, rows: Iterable[int], shifts: Sequence[int] | None = None) -> Table:
        """A table of some of the rows. ``shifts`` are added to all times of a span, by the index of its resource.

        Lists that rows index (``names``, ``traces``, ...), the quality and the files are shared. The parent of a span
        whose parent is left out is -1.
        """
        found = Table.__new__(Table)
        found.__dict__.update(self.__dict__)
        found._cut(list(rows), shifts)  # noqa: SLF001
        return found

    def _cut(self, order: list[int], shifts: Sequence[int] | None) -> None:
        if shifts is None:
            order.sort()
        else:
            added = list(map(shifts.__getitem__, self.resource))
            self.end = array("q", [end and end + shift for end, shift in zip(self.end, added, strict=True)])
            self.start = array("q", [start + shift for start, shift in zip(self.start, added, strict=True)])
            order.sort(key=self.start.__getitem__)
        row_of = array("q", b"\xff" * 8 * (len(self) + 1))
        for row, old in enumerate(order):
            row_of[old] = row
        # The last item stays -1: what stands for the parent of a span without one.
        self.parent = array("q", [row_of[self.parent[old]] for old in order])
        for name in _COLUMNS:
            column = getattr(self, name)
            values = map(column.__getitem__, order)
            setattr(self, name, bytearray(values) if isinstance(column, bytearray) else array(column.typecode, values))
        self._take_sparse(self.objects, self.ready, self._kept, order)
        self._first_child = self._last_known = None

    def _take_sparse(
        self,
        objects: dict[int, tuple[str, ...]],
        ready: dict[int, tuple[str, ...]],
        kept: dict[int, Span],
        order: Sequence[int],
    ) -> None:
        if not isinstance(order, range):
            wanted = objects.keys() | ready.keys() | kept.keys()
            row_of = {old: row for row, old in enumerate(order) if old in wanted}
            objects = {row_of[old]: ids for old, ids in objects.items() if old in row_of}
            ready = {row_of[old]: ids for old, ids in ready.items() if old in row_of}
            kept = {row_of[old]: span for old, span in kept.items() if old in row_of}
        self.objects, self.ready, self._kept = objects, ready, kept

    @classmethod
    def of(cls, spans: Iterable[Span], now_ns: int | None = None) -> Table:
        """The table of these spans, which it keeps. ``now_ns`` is by default the last time that is in them."""
        columns = Columns()
        for span in spans:
            columns.add_span(span)
        quality = reading.Quality()
        last = max([*columns.start, *columns.end], default=0)
        return cls([("", columns)], quality, last if now_ns is None else now_ns)

    def __len__(self) -> int:
        return len(self.start)

    # --- one span -------------------------------------------------------------------------------------------------

    def name_of(self, row: int) -> str:
        return self.names[self.name[row]]

    def span_id_of(self, row: int) -> str:
        return f"{self.span_id[row]:016x}"

    def trace_id_of(self, row: int) -> str:
        return self.traces[self.trace[row]]

    def failed(self, row: int) -> bool:
        """Whether its status is an error, or its process died before it ended."""
        return self.status[row] == STATUS_ERROR or self.state[row] == LOST

    def attribute(self, row: int, key: str) -> Any:
        """One attribute, None where it is missing. Keys of this package are quick, others are read from the file."""
        if key in SITE_KEYS:
            return self.sites[self.site[row]].get(key)
        if key == names.RAY_TASK_ID:
            return self.ids[self.task[row]] if self.task[row] != NONE else None
        if key == names.RAY_PARENT_TASK_ID:
            return self.ids[self.caller[row]] if self.caller[row] != NONE else None
        if key == names.RAY_SUBMIT_TIME:
            return self.submitted[row] or None
        if key in OBJECT_KEYS or key == names.RAY_READY_OBJECT_IDS:
            # Which of the keys it is depends on the kind of span, and no span has two of them.
            found = (self.ready if key == names.RAY_READY_OBJECT_IDS else self.objects).get(row)
            is_submission = self.name_of(row) not in ("ray.get", names.AWAIT, "ray.wait", "ray.put")
            if found is None or (
                key != names.RAY_READY_OBJECT_IDS and (key == names.RAY_ARGUMENT_IDS) != is_submission
            ):
                return None
            return list(found)
        return self.span(row).attributes.get(key)

    def span(self, row: int) -> Span:
        """The span with all that is known of it.

        Made when asked for, from its file. Where that is gone or has changed meanwhile, it has what the columns hold.
        Its times and its parent are those of the table.
        """
        span = self._kept.get(row) or self._read_again(row) or self._from_columns(row)
        parent = self.parent[row]
        if (span.start_ns, span.end_ns) != (self.start[row], self.end[row]) or span.state != STATES[self.state[row]]:
            shift = self.start[row] - span.start_ns
            span = Span(
                **{field: getattr(span, field) for field in Span.__slots__}
                | {
                    "start_ns": self.start[row],
                    "end_ns": self.end[row],
                    "state": STATES[self.state[row]],
                    "parent_id": span.parent_id if parent < 0 else self.span_id_of(parent),
                    "events": [event._replace(time_ns=event.time_ns + shift) for event in span.events],
                }
            )
        return span

    def as_recorded(self, rows: Iterable[int]) -> list[int]:
        """The rows in the order in which they stand in the files: in it :meth:`span` reads each line once."""
        line, place = self._line, self._place
        return sorted(rows, key=lambda row: (line[row], place[row]))

    def end_or_now(self, row: int) -> int:
        """When it ended; of a running span when it was read, of a lost one the last time that its process recorded."""
        if end := self.end[row]:
            return end
        if self.state[row] == RUNNING:
            return max(self.now_ns, self.start[row])
        if self._last_known is None:
            self._last_known = {}
            for resource, start, end in zip(self.resource, self.start, self.end, strict=True):
                last = max(start, end)
                if last > self._last_known.get(resource, -1):
                    self._last_known[resource] = last
        return self._last_known[self.resource[row]]

    def duration(self, row: int) -> int:
        """From its start to :meth:`end_or_now`, in nanoseconds."""
        return self.end_or_now(row) - self.start[row]

    def children(self, row: int) -> Sequence[int]:
        """The rows that have this one as parent, by start."""
        if self._first_child is None:
            self._index_children()
        first = self._first_child
        assert first is not None
        return self._children[first[row] : first[row + 1]]

    def roots(self) -> list[int]:
        """The rows without parent in the table, by start."""
        return [row for row, parent in enumerate(self.parent) if parent < 0]

    # --- making ---------------------------------------------------------------------------------------------------

    def _mend_times(self) -> None:
        start, end = self.start, self.end
        for row, (begun, ended) in enumerate(zip(start, end, strict=True)):
            if ended < begun and ended:
                end[row] = begun
                self.quality.negative += 1

    def _parents(self) -> array[int]:
        rows = range(len(self))
        row_of = dict(zip(self.span_id, rows, strict=True))
        if len(row_of) == len(self):
            parent = array("q", [row_of.get(each, -1) for each in self._parent_id])
            trace = self.trace
            for row, above in enumerate(parent):
                if above >= 0 and trace[above] != trace[row]:
                    parent[row] = -1
        else:
            # Two traces have a span id in common.
            of_both = {key: row for row, key in enumerate(zip(self.trace, self.span_id, strict=True))}
            parent = array("q", [of_both.get(key, -1) for key in zip(self.trace, self._parent_id, strict=True)])
        self._cut_circles(parent)
        self.quality.orphans = sum(
            above < 0 and bool(named) for above, named in zip(parent, self._parent_id, strict=True)
        )
        return parent

    def _cut_circles(self, parent: array[int]) -> None:
        """A circle has a span that does not begin after its parent, and that is rare: these alone are followed."""
        checked: set[int] = set()
        for suspect in [row for row, above in enumerate(parent) if above >= row]:
            path: list[int] = []
            on_path: set[int] = set()
            row = suspect
            while row >= 0 and row not in checked and row not in on_path:
                path.append(row)
                on_path.add(row)
                row = parent[row]
            if row in on_path:
                circle = path[path.index(row) :]
                parent[min(circle)] = -1
                self.quality.circles += 1
            checked.update(path)

    def _now(self, given: int | None) -> int:
        if given is not None:
            return given
        if self.quality.running:
            return time.time_ns()
        return max(max(self.start, default=0), max(self.end, default=0))

    def _index_children(self) -> None:
        count = array("q", bytes(8 * (len(self) + 1)))
        for above in self.parent:
            if above >= 0:
                count[above + 1] += 1
        total = 0
        for row, many in enumerate(count):
            total += many
            count[row] = total
        children = array("q", bytes(8 * total))
        filled = count[:]
        for row, above in enumerate(self.parent):
            if above >= 0:
                children[filled[above]] = row
                filled[above] += 1
        self._first_child, self._children = count, children

    def _read_again(self, row: int) -> Span | None:
        if self._line[row] == NONE:
            return None
        described = self._lines.span(self._line[row], self._place[row])
        if described is None:
            return None
        try:
            span = reading.span_of(described, self.resources[self.resource[row]], self.scopes[self.scope[row]])
        except reading.MALFORMED:
            return None
        is_same = (span.trace_id, span.span_id) == (self.trace_id_of(row), self.span_id_of(row))
        return span if is_same else None

    def _from_columns(self, row: int) -> Span:
        attributes = dict(self.sites[self.site[row]])
        for key in (names.RAY_TASK_ID, names.RAY_PARENT_TASK_ID, names.RAY_SUBMIT_TIME, *OBJECT_KEYS):
            if (found := self.attribute(row, key)) is not None:
                attributes[key] = found
        parent = self.parent[row]
        return Span(
            trace_id=self.trace_id_of(row),
            span_id=self.span_id_of(row),
            parent_id=self.span_id_of(parent) if parent >= 0 else "",
            name=self.name_of(row),
            kind=self.kind[row],
            start_ns=self.start[row],
            end_ns=self.end[row],
            status_code=self.status[row],
            status_message="",
            attributes=attributes,
            events=[],
            links=[],
            resource=self.resources[self.resource[row]],
            scope=self.scopes[self.scope[row]],
            state=STATES[self.state[row]],
        )


def load(paths: Sequence[str], on_bytes: Callable[[int], None] = lambda _count: None) -> Table:
    """The spans of the files, as :func:`~ray_tracing_hooks._insight.read.files` gives them.

    Damage is counted in ``table.quality`` and never raised. Much is read by several processes. ``on_bytes`` is called
    with the size of what was read since its last call, in this process.
    """
    with reading.collector_paused():
        quality = reading.Quality()
        read: list[tuple[str, Columns]] = []
        read += read_segments([path for path in paths if path.endswith(SUFFIX)], quality, on_bytes)
        jobs = parts_of([path for path in paths if not path.endswith(SUFFIX)], quality)
        read += ((part.path, columns) for part, columns in read_parts(jobs, quality, on_bytes))
        return Table(read, quality)


_COLUMNS = (
    *("start", "end", "span_id", "trace", "name", "resource", "scope", "site", "task", "caller"),
    *("submitted", "kind", "status", "state", "_line", "_place"),
)


def _taken(column: Sequence[int], order: Sequence[int]) -> Iterable[int]:
    if isinstance(order, range):
        return column
    return map(column.__getitem__, order)


class _Whole:
    """The parts one after the other, with indexes that are common to all."""

    def __init__(self, parts: Sequence[tuple[str, Columns]]) -> None:
        self.start, self.end, self.submitted = array("q"), array("q"), array("q")
        self.span_id, self.parent_id = array("Q"), array("Q")
        self.trace, self.name, self.resource, self.scope = array("I"), array("I"), array("I"), array("I")
        self.site, self.task, self.caller = array("I"), array("I"), array("I")
        self.line, self.place = array("I"), array("I")
        self.kind, self.status, self.state = bytearray(), bytearray(), bytearray()
        self.objects: dict[int, tuple[str, ...]] = {}
        self.ready: dict[int, tuple[str, ...]] = {}
        self.kept: dict[int, Span] = {}
        self.openings: set[int] = set()
        self.traces: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.scopes: dict[str, int] = {}
        self.ids: dict[str, int] = {}
        self.resources: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        self.files: list[tuple[str, array[int]]] = []
        """For each part its file and where its lines begin."""
        self.duplicates = 0
        self._resource_of: dict[str, int] = {}
        self._site_of: dict[str, int] = {}
        lines = 0
        for path, columns in parts:
            self._add(path, columns, lines)
            lines += len(columns.lines)

    def _add(self, path: str, columns: Columns, lines: int) -> None:
        base = len(self.start)
        for name in ("start", "end", "submitted", "span_id", "parent_id", "kind", "status", "state", "place"):
            getattr(self, name).extend(getattr(columns, name))
        for name, known in (
            ("trace", _joined(self.traces, columns.traces)),
            ("name", _joined(self.names, columns.names)),
            ("scope", _joined(self.scopes, columns.scopes)),
            ("resource", _joined_dicts(self.resources, self._resource_of, columns.resources)),
            ("site", _joined_dicts(self.sites, self._site_of, columns.sites)),
        ):
            getattr(self, name).extend(map(known.__getitem__, getattr(columns, name)))
        ids = [*_joined(self.ids, columns.ids)]
        for name in ("task", "caller"):
            getattr(self, name).extend([NONE if index == NONE else ids[index] for index in getattr(columns, name)])
        self.line.extend([NONE if index == NONE else index + lines for index in columns.line])
        self.objects.update({row + base: ids for row, ids in columns.objects.items()})
        self.ready.update({row + base: ids for row, ids in columns.ready.items()})
        self.kept.update({row + base: span for row, span in columns.kept.items()})
        self.openings.update([row + base for row in columns.openings])
        self.files.append((path, columns.lines))

    def order(self) -> Sequence[int]:
        """The rows as the table has them: each span once, by start."""
        rows: Sequence[int] = range(len(self.start))
        if len(set(self.span_id)) < len(rows):
            rows = self._without_duplicates()
        start = self.start
        ordered = sorted(rows, key=start.__getitem__)
        if len(ordered) == len(start) and all(row == place for place, row in enumerate(ordered)):
            return range(len(start))
        return ordered

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
