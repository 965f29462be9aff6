"""All spans of a run as columns, which hold, sort, join and scan a million spans quickly.

A row is a span; rows are sorted by start. The columns have what the analysis needs of every span. The rest (users'
attributes, events, links) is read again from the files, for the spans that a user wants to see.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.columns import (
    COLUMNS,
    ENDED,
    LOST,
    NONE,
    OBJECT_KEYS,
    RUNNING,
    SITE_KEYS,
    STATES,
    Columns,
    Origins,
)
from ray_tracing_hooks._insight.model.grouped import distinct, places_of
from ray_tracing_hooks._insight.model.id_lists import IdLists
from ray_tracing_hooks._insight.model.merge import Details, Merged, as_array, as_numpy
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import PRODUCER, SERVER, STATUS_ERROR, Span, is_driver

__all__ = ["ENDED", "LOST", "RUNNING", "STATES", "Table"]


class Table:
    """Spans as columns; rows are numbered from 0, by start.

    ``start``, ``end``   ``array('q')``: nanoseconds since the epoch; an end of 0 is unknown, and no
                         other end is before its start.
    ``parent``           ``array('i')``: the row of the parent, -1 if there is none or it is not in the table.
    ``span_id``          ``array('Q')``: the id as a number; :meth:`span_id_of` gives it in hex.
    ``name``             ``array('I')``: index into ``names``; likewise ``trace`` and ``traces`` (ids in hex),
                         ``resource`` and ``resources`` (attributes of the Resource), ``scope`` and ``scopes`` (names).
    ``kind, status``     ``bytearray``: the enum values of OTLP.
    ``state``            ``bytearray``: ``ENDED`` (0), ``RUNNING`` (1), ``LOST`` (2: its process died before it ended).
    ``site``             ``array('I')``: index into ``sites``, dictionaries of the attributes that many spans share
                         (``columns.SITE_KEYS``: function, actor, node, worker, error type, ...).
    ``task, caller``     ``array('I')``: index into ``ids`` of ``ray.task_id`` and ``ray.parent_task_id``, or ``NONE``.
    ``submitted``        ``array('q')``: ``ray.submit_time_unix_nano`` of an execution; of a call of a deployment of Ray
                         Serve, ``ray.serve.choice_time`` in nanoseconds; of a request in a replica that waited for
                         its event loop, minus ``ray.serve.event_loop.wait_time`` in nanoseconds. 0 if missing.
    ``objects, ready``   mappings from a row to object ids: ``objects`` has those passed as arguments, waited for
                         or stored, ``ready`` those that a wait returned as ready.
    ``named``            mapping from a row to a list of one: the name that ``.options(name=...)`` gave the call.
    ``now_ns``           the time of reading, which stands in for the end of running spans.
    ``quality``          what is wrong with the data.
    """

    start: array[int]
    end: array[int]
    span_id: array[int]
    trace: array[int]
    name: array[int]
    resource: array[int]
    scope: array[int]
    site: array[int]
    task: array[int]
    caller: array[int]
    submitted: array[int]
    kind: bytearray
    status: bytearray
    state: bytearray
    objects: IdLists
    ready: IdLists
    named: IdLists

    def __init__(
        self,
        parts: Iterable[tuple[str, Columns]],
        quality: Quality,
        now_ns: int | None = None,
        details: Details | None = None,
    ) -> None:
        """The spans of ``parts``, pairs of a file's path and the columns read from it, without duplicates.

        ``details`` reads the rest of a span again; by default it finds nothing.
        """
        self.quality = quality
        merged = Merged(parts, details or _NoDetails())
        self._details = merged.details
        self._origin = as_array(merged.rows, "I")
        # One at a time, so that the columns are never in memory twice.
        for name in _TAKEN:
            setattr(self, name, _column(merged.column(name), _TYPES[name]))
        parent_id = merged.column("parent_id")
        self.objects, self.ready, self.named = merged.objects, merged.ready, merged.named
        self._kept = merged.kept
        self.traces, self.names, self.scopes = list(merged.traces), list(merged.names), list(merged.scopes)
        self.ids = merged.ids
        self.resources, self.sites = merged.resources, merged.sites
        quality.spans = len(self)
        quality.duplicates += merged.duplicates
        quality.truncated += merged.truncated
        del merged
        quality.running, quality.lost = self.state.count(RUNNING), self.state.count(LOST)
        quality.unended = quality.lost - int(np.count_nonzero(self.is_dead())) if quality.lost else 0
        self._mend_times()
        self.parent = self._parents(parent_id)
        quality.orphans = self.parent.count(-1) - int(np.count_nonzero(parent_id == 0))
        if quality.orphans:
            self._look_at_orphans(parent_id)
        self.now_ns = self._now(now_ns)
        self.shifts: Sequence[int] = ()
        """What was added to all times of a span, by the index of its resource; empty if nothing was added."""
        self.gone = 0
        """How often a span could not be read again."""
        self._hidden: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self._first_child: array[int] | None = None
        self._children: array[int] = array("i")
        self._ends: array[int] | None = None

    def part(self, rows: Iterable[int], shifts: Sequence[int] | None = None) -> Table:
        """A table of some of the rows. ``shifts`` are added to all times of a span, by the index of its resource.

        The lists that rows index (``names``, ``traces``, ...), the quality and the files are shared. If a parent is
        left out, its children have the parent -1.
        """
        found = Table.__new__(Table)
        found.__dict__.update(self.__dict__)
        found._cut(rows, shifts)  # noqa: SLF001
        return found

    def _cut(self, rows: Iterable[int], shifts: Sequence[int] | None) -> None:
        chosen = np.sort(np.fromiter(rows, np.int64))
        if shifts is not None:
            added = np.array(shifts, np.int64)[as_numpy(self.resource)]
            start, end = as_numpy(self.start) + added, as_numpy(self.end)
            self.start, self.end = as_array(start, "q"), as_array(np.where(end != 0, end + added, 0), "q")
            self.shifts = [sum(each) for each in zip_longest(self.shifts, shifts, fillvalue=0)]
            chosen = chosen[np.argsort(start[chosen], kind="stable")]
        # The last item stays -1: a parent of -1 selects it.
        row_of = np.full(len(self) + 1, -1)
        row_of[chosen] = np.arange(len(chosen))
        self.parent = as_array(row_of[as_numpy(self.parent)[chosen]], "i")
        for name in _TAKEN:
            setattr(self, name, _column(as_numpy(getattr(self, name))[chosen], _TYPES[name]))
        self._origin = as_array(as_numpy(self._origin)[chosen], "I")
        self.objects, self.ready = self.objects.taken(chosen), self.ready.taken(chosen)
        self.named = self.named.taken(chosen)
        self._kept = {int(row_of[old]): span for old, span in self._kept.items() if row_of[old] >= 0}
        self._first_child = self._ends = None

    @classmethod
    def of(cls, spans: Iterable[Span], now_ns: int | None = None) -> Table:
        """A table of these spans, which it keeps. ``now_ns`` is by default the latest time in the spans."""
        columns = Columns()
        for span in spans:
            columns.add_span(span)
        quality = Quality()
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

    def is_named(self, fits: Callable[[str], bool]) -> Any:
        """For each row, as a NumPy column, whether its name fits."""
        return np.array(list(map(fits, self.names)), bool)[as_numpy(self.name)]

    def is_at(self, fits: Callable[[dict[str, Any]], bool]) -> Any:
        """The same for its site."""
        return np.array(list(map(fits, self.sites)), bool)[as_numpy(self.site)]

    def is_ours(self) -> Any:
        """For each row, as a NumPy column, whether this package made the span."""
        return np.array([each == names.SCOPE for each in self.scopes], bool)[as_numpy(self.scope)]

    def is_failed(self) -> Any:
        """:meth:`failed` of every row, as a NumPy column."""
        return (as_numpy(self.status) == STATUS_ERROR) | (as_numpy(self.state) == LOST)

    def is_dead(self) -> Any:
        """For each row, as a NumPy column, whether its process is known to have died before it ended.

        Other tools may write a span without an end, but only this package estimates one.
        """
        return (as_numpy(self.state) == LOST) & self.is_at(lambda site: bool(site.get(names.RAY_END_ESTIMATED)))

    def attribute(self, row: int, key: str) -> Any:
        """One attribute, None if missing. This package's keys are fast; others are read from the file."""
        if key in SITE_KEYS:
            return self.sites[self.site[row]].get(key)
        if key == names.RAY_TASK_ID:
            return self.ids[self.task[row]] if self.task[row] != NONE else None
        if key == names.RAY_PARENT_TASK_ID:
            return self.ids[self.caller[row]] if self.caller[row] != NONE else None
        if key == names.RAY_SUBMIT_TIME and self.kind[row] != PRODUCER:
            return max(self.submitted[row], 0) or None
        if key == names.RAY_NAME:
            return self.named[row][0] if row in self.named else None
        if key in OBJECT_KEYS or key == names.RAY_READY_OBJECT_IDS:
            # Which key applies depends on the kind of span; no span has both.
            found = (self.ready if key == names.RAY_READY_OBJECT_IDS else self.objects).get(row)
            is_submission = self.name_of(row) not in ("ray.get", names.AWAIT, "ray.wait", "ray.put")
            if found is None or (
                key != names.RAY_READY_OBJECT_IDS and (key == names.RAY_ARGUMENT_IDS) != is_submission
            ):
                return None
            return list(found)
        return self.span(row).attributes.get(key)

    def span(self, row: int) -> Span:
        """The complete span, read from its file on demand.

        If the file is gone or has changed, the span has only what the columns hold. Its times and its parent are those
        of the table.
        """
        span = self.recorded(row)
        if self._hidden is not None:
            attributes, resource = self._hidden(span.attributes), self.resources[self.resource[row]]
            span = _with(span, attributes=attributes, resource=resource)
        parent = self.parent[row]
        if (span.start_ns, span.end_ns) != (self.start[row], self.end[row]) or span.state != STATES[self.state[row]]:
            shift = self.start[row] - span.start_ns
            span = _with(
                span,
                start_ns=self.start[row],
                end_ns=self.end[row],
                state=STATES[self.state[row]],
                parent_id=span.parent_id if parent < 0 else self.span_id_of(parent),
                events=[event._replace(time_ns=event.time_ns + shift) for event in span.events],
            )
        return span

    def recorded(self, row: int) -> Span:
        """The same with the times and the parent that its file has."""
        return self._kept.get(row) or self._read_again(row) or self._from_columns(row)

    def line_of(self, row: int) -> tuple[str, int]:
        """The file of a span, and the offset of its line there; -1 for none."""
        return self._details.place(self._origin[row])[:2]

    def forget_names(self) -> None:
        """Discard the names that ``.options(name=...)`` gave to calls."""
        self.named = IdLists()

    def hide(self, shown: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Replace attributes of Resources and spans by what ``shown`` returns for them."""
        self._hidden = shown
        self.resources, self.sites = list(map(shown, self.resources)), list(map(shown, self.sites))

    def shown(self, key: str, text: str) -> str:
        """The value of a key that is not from a span as the table has it: another one if it is hidden."""
        hidden = self._hidden
        return text if hidden is None else str(hidden({key: text})[key])

    def as_recorded(self, rows: Iterable[int]) -> list[int]:
        """The rows in file order, in which :meth:`span` reads each line only once."""
        return sorted(rows, key=self._origin.__getitem__)

    def end_or_now(self, row: int) -> int:
        """When it ended; for a running span when it was read, for a lost one the last time its process recorded."""
        return self.end[row] or self.ends[row]

    @property
    def ends(self) -> array[int]:
        """:meth:`end_or_now` of every row."""
        if self._ends is None:
            self._ends = self._known_ends()
        return self._ends

    def time(self, row: int) -> tuple[int, int]:
        """Its start and :meth:`end_or_now`."""
        return self.start[row], self.end_or_now(row)

    def duration(self, row: int) -> int:
        """From its start to :meth:`end_or_now`, in nanoseconds."""
        return self.end_or_now(row) - self.start[row]

    def children(self, row: int) -> Sequence[int]:
        """The rows of the span's children, by start."""
        if self._first_child is None:
            self._index_children()
        first = self._first_child
        assert first is not None
        return self._children[first[row] : first[row + 1]]

    def around(self, row: int, rows: Collection[int]) -> int:
        """The nearest of these rows that a row is, or is below; -1 if there is none, as for a row beyond the table."""
        row = row if row < len(self) else -1
        while row >= 0 and row not in rows:
            row = self.parent[row]
        return row

    def roots(self) -> list[int]:
        """The rows without a parent in the table, by start."""
        return [row for row, parent in enumerate(self.parent) if parent < 0]

    # --- making ---------------------------------------------------------------------------------------------------

    def _mend_times(self) -> None:
        start, end = as_numpy(self.start), as_numpy(self.end)
        for row in np.nonzero((end < start) & (end != 0))[0].tolist():
            self.end[row] = self.start[row]
            self.quality.negative += 1

    def _parents(self, parent_id: Any) -> array[int]:
        parent = np.full(len(self), -1, np.int32)
        if len(self):
            # Span ids may repeat across traces, so the key holds both ids; as one number it is fast to search.
            ids = distinct(as_numpy(self.span_id))
            wanted = as_numpy(self.trace).astype(np.uint64) * np.uint64(len(ids))
            keys = wanted + places_of(as_numpy(self.span_id), ids).astype(np.uint32)
            wanted_id = places_of(parent_id, ids)
            is_known = ids[wanted_id] == parent_id
            del ids
            wanted += wanted_id.astype(np.uint32)
            order = np.argsort(keys).astype(np.int32)
            keys = keys[order]
            place = places_of(wanted, keys)
            parent = np.where(is_known & (keys[place] == wanted), order[place], np.int32(-1))
            del keys, wanted
        made = as_array(parent, "i")
        self._cut_circles(made)
        return made

    def _look_at_orphans(self, parent_id: Any) -> None:
        rows = np.nonzero((as_numpy(self.parent) < 0) & (parent_id != 0))[0]
        kind, caller, named = as_numpy(self.kind)[rows], as_numpy(self.caller)[rows], parent_id[rows]
        drivers = [each for each in np.unique(caller).tolist() if each != NONE and is_driver(self.ids[each])]
        of_drivers = named[(kind == PRODUCER) & np.isin(caller, drivers)]
        self.quality.continuing = int(np.count_nonzero(kind == SERVER))
        self.quality.of_open_drivers = int(np.count_nonzero(np.isin(named, of_drivers) & (kind != SERVER)))

    def _cut_circles(self, parent: array[int]) -> None:
        """Break cycles of parents. Each cycle has a row that is not after its parent; only such rows are followed."""
        checked: set[int] = set()
        for suspect in np.nonzero(as_numpy(parent) >= np.arange(len(parent)))[0].tolist():
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
        return int(max(as_numpy(self.start).max(initial=0), as_numpy(self.end).max(initial=0)))

    def _known_ends(self) -> array[int]:
        if 0 not in self.end:
            return self.end
        start, end, resource = as_numpy(self.start), as_numpy(self.end), as_numpy(self.resource)
        last = np.zeros(len(self.resources), np.int64)
        np.maximum.at(last, resource, np.maximum(start, end))
        is_running = as_numpy(self.state) == RUNNING
        return as_array(
            np.where(end != 0, end, np.where(is_running, np.maximum(self.now_ns, start), last[resource])), "q"
        )

    def _index_children(self) -> None:
        parent = as_numpy(self.parent)
        rows = np.nonzero(parent >= 0)[0]
        many = np.bincount(parent[rows], minlength=len(self) + 1)
        # One item more than rows: the last one is where the children of the last row end.
        self._first_child = as_array(np.cumsum(many) - many, "i")
        self._children = as_array(rows[np.argsort(parent[rows], kind="stable")], "i")

    def _read_again(self, row: int) -> Span | None:
        resource, scope = self.resources[self.resource[row]], self.scopes[self.scope[row]]
        span = self._details.span(self._origin[row], resource, scope)
        if span is None or (span.trace_id, span.span_id) != (self.trace_id_of(row), self.span_id_of(row)):
            return None
        return span

    def _from_columns(self, row: int) -> Span:
        self.gone += 1
        attributes = dict(self.sites[self.site[row]])
        for key in (names.RAY_TASK_ID, names.RAY_PARENT_TASK_ID, names.RAY_SUBMIT_TIME, names.RAY_NAME, *OBJECT_KEYS):
            if key == names.RAY_SUBMIT_TIME and self.kind[row] == PRODUCER:
                continue  # no column has it
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


def _with(span: Span, **changed: Any) -> Span:
    """The span with other values for some fields."""
    return Span(**{field: getattr(span, field) for field in Span.__slots__} | changed)


class _NoDetails:
    def add(self, path: str, origins: Origins, first: int) -> None:
        """Ignore the part."""

    def span(self, number: int, resource: dict[str, Any], scope: str) -> Span | None:
        return None

    def place(self, number: int) -> tuple[str, int, int]:
        return "", -1, 0


_TAKEN = tuple(name for name in COLUMNS if name != "parent_id")
_TYPES = {name: column.typecode if isinstance(column, array) else "" for name, column in vars(Columns()).items()} | {
    "task": "I",
    "caller": "I",
}
"""The type code of each column; empty for columns of bytes."""


def _column(found: Any, typecode: str) -> array[int] | bytearray:
    return as_array(found, typecode) if typecode else bytearray(found)
