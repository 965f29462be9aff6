"""All spans of a run as columns: what a million of them can be held in, sorted, joined and gone over quickly.

A row is a span; rows are sorted by start. What the analysis needs of every span is in columns. The rest (attributes of
users, events, links) is read again from its file for the spans that somebody wants to see.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import lt
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
from ray_tracing_hooks._insight.order import Order
from ray_tracing_hooks._insight.parts import parts_of, read_parts
from ray_tracing_hooks._insight.segments import segments_of
from ray_tracing_hooks._insight.texts import IdLists
from ray_tracing_hooks._insight.whole import Whole
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
    ``objects, ready``   mappings from a row to ids of objects: those among the arguments, waited for or
                         stored; those that were ready.
    ``now_ns``           when a running span is taken to end: the time of reading.
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

    def __init__(
        self, parts: Iterable[tuple[str, Columns]], quality: reading.Quality, now_ns: int | None = None
    ) -> None:
        """The spans of ``parts``, each with the file that it was read from; what is there twice is taken once."""
        self.quality = quality
        whole = Whole(parts)
        order = Order(whole.order(), len(whole.start))
        rows = len(order.rows)
        self._origin = array("I", order.rows)
        # One at a time, so that the columns are not in memory twice.
        for name in _TAKEN:
            setattr(self, name, order.taken(whole.__dict__.pop(name)))
        self._parent_id = order.taken(whole.parent_id)
        self.objects, self.ready = whole.objects.in_order(order), whole.ready.in_order(order)
        self._kept = _in_order(whole.kept, order)
        self.traces, self.names, self.scopes = list(whole.traces), list(whole.names), list(whole.scopes)
        self.ids: Sequence[str] = whole.ids
        self.resources, self.sites = whole.resources, whole.sites
        self._lines = whole.lines
        self._lines.has_duplicates = whole.duplicates > 0
        quality.spans = rows
        is_unique = whole.different == rows
        quality.duplicates += whole.duplicates
        del whole, order
        quality.running, quality.lost = self.state.count(RUNNING), self.state.count(LOST)
        self._mend_times()
        self.parent = self._parents(is_unique=is_unique)
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

    def _cut(self, rows: list[int], shifts: Sequence[int] | None) -> None:
        if shifts is None:
            rows.sort()
        else:
            added = list(map(shifts.__getitem__, self.resource))
            self.end = array("q", [end and end + shift for end, shift in zip(self.end, added, strict=True)])
            self.start = array("q", [start + shift for start, shift in zip(self.start, added, strict=True)])
            rows.sort(key=self.start.__getitem__)
        order = Order(rows, len(self))
        row_of = array("q", b"\xff" * 8 * (len(self) + 1))
        for row, old in enumerate(rows):
            row_of[old] = row
        # The last item stays -1: what stands for the parent of a span without one.
        self.parent = array("q", list(map(row_of.__getitem__, order.taken(self.parent))))
        for name in (*_TAKEN, "_origin"):
            setattr(self, name, order.taken(getattr(self, name)))
        self.objects, self.ready = self.objects.in_order(order), self.ready.in_order(order)
        self._kept = _in_order(self._kept, order)
        self._first_child = self._last_known = None

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
        return sorted(rows, key=self._origin.__getitem__)

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
        for row in compress(range(len(self)), map(lt, end, start)):
            if end[row]:
                end[row] = start[row]
                self.quality.negative += 1

    def _parents(self, *, is_unique: bool) -> array[int]:
        """``is_unique``: no two traces have a span id in common."""
        rows = len(self)
        if is_unique:
            parent = array("q", [-1]) * rows
            # Some rows at a time: a dictionary of all would be larger than the table.
            step = max(_AT_ONCE, rows // 4 + 1)
            for begin in range(0, rows, step):
                row_of = dict(zip(self.span_id[begin : begin + step], range(begin, rows), strict=False))
                parent = array("q", list(map(row_of.get, self._parent_id, parent)))
            trace = self.trace
            for row, above in enumerate(parent if len(self.traces) > 1 else ()):
                if above >= 0 and trace[above] != trace[row]:
                    parent[row] = -1
        else:
            of_both = {key: row for row, key in enumerate(zip(self.trace, self.span_id, strict=True))}
            parent = array("q", [of_both.get(key, -1) for key in zip(self.trace, self._parent_id, strict=True)])
        self._cut_circles(parent)
        self.quality.orphans = parent.count(-1) - self._parent_id.count(0)
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
        described = self._lines.span(self._origin[row], self.trace_id_of(row), self.span_id_of(row))
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
        return Table(_read(paths, quality, on_bytes), quality)


def _read(
    paths: Sequence[str], quality: reading.Quality, on_bytes: Callable[[int], None]
) -> Iterator[tuple[str, Columns]]:
    opened, parts = segments_of([path for path in paths if path.endswith(SUFFIX)], quality)
    yield "", opened
    parts += parts_of([path for path in paths if not path.endswith(SUFFIX)], quality)
    for part, columns in read_parts(parts, quality, on_bytes):
        yield part.path, columns


_TAKEN = (
    *("start", "end", "span_id", "trace", "name", "resource", "scope", "site", "task", "caller"),
    *("submitted", "kind", "status", "state"),
)

_AT_ONCE = 1 << 18


def _in_order(kept: Mapping[int, Span], order: Order) -> dict[int, Span]:
    return {row: kept[order.rows[row]] for row in order.new_rows_of(kept)} if kept else {}
