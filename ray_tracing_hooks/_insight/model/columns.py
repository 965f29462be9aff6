"""The spans of one part of a file as columns: one process reads them in one go and passes them to the table."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.id_lists import IdLists, Strings
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import HIDDEN, Span, State
from ray_tracing_hooks._libraries import LIBRARIES

ENDED, RUNNING, LOST = 0, 1, 2
STATES: tuple[State, ...] = ("ended", "running", "lost")
"""The names of the states, as :class:`~ray_tracing_hooks._insight.model.span.Span` has them."""

NONE = 0xFFFFFFFF
"""Stands for no value in a column of indexes."""

SITE_KEYS = frozenset(
    {
        *(names.RAY_REMOTE, names.RAY_FUNCTION, names.RAY_FUNCTION_SIZE, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD),
        *(names.RAY_PID, names.RAY_JOB_ID, names.RAY_NODE_ID, names.RAY_WORKER_ID, names.RAY_ACTOR_ID),
        *(names.RAY_ATTEMPT, names.RAY_ARGUMENT_COUNT, names.RAY_GENERATOR_ITEMS, names.RAY_OBJECT_COUNT),
        *(names.RAY_NUM_RETURNS, names.RAY_READY_OBJECT_COUNT, names.RAY_TIMEOUT, names.RAY_CANCELLED),
        *(names.RAY_DRIVER_WAITED, names.RAY_LIBRARIES, names.RAY_ACTOR_NAME, names.RAY_ASYNCIO),
        *(names.RAY_MAX_CONCURRENCY, names.RAY_CONCURRENCY_GROUP, names.RAY_PLACEMENT_GROUP_ID),
        *(names.RAY_ASSIGNED_RESOURCES, names.RAY_ACCELERATOR_IDS, names.RAY_ENTRYPOINT, names.RAY_NAMESPACE),
        *(names.RAY_SUBMISSION_ID, names.RAY_JOB_STATUS, names.RAY_END_ESTIMATED, names.RAY_NEVER_ENDED),
        *(names.RAY_LEFT_OUT, names.RAY_SAMPLING_REASON, names.EXIT_CODE, names.ERROR_TYPE),
        *(names.THREAD_ID, names.THREAD_NAME),
        *(key for library in LIBRARIES for key in library.site_keys),
    }
)
"""Attributes whose values many spans share. Each set of values that occurs is stored once, as a site."""

OBJECT_KEYS = frozenset({names.RAY_ARGUMENT_IDS, names.RAY_OBJECT_IDS})

_OF_SITE, _TASK, _CALLER, _SUBMITTED, _CHOICE, _LOOP, _OBJECTS, _GIVEN, _READY = range(9)

_OF_CALL = {
    names.RAY_TASK_ID: _TASK,
    names.RAY_PARENT_TASK_ID: _CALLER,
    names.RAY_SUBMIT_TIME: _SUBMITTED,
    names.RAY_SERVE_CHOICE_TIME: _CHOICE,
    names.RAY_SERVE_LOOP_WAIT: _LOOP,
    names.RAY_READY_OBJECT_IDS: _READY,
    names.RAY_NAME: _GIVEN,
    **dict.fromkeys(OBJECT_KEYS, _OBJECTS),
}

CALL_KEYS = frozenset(_OF_CALL)
"""Attributes that differ for each call. They have their own columns."""

_KINDS = dict.fromkeys(SITE_KEYS, _OF_SITE) | _OF_CALL

_OF_READING = ("_resource_index", "_site_index")
MOST_TIME = (1 << 63) - 1

COLUMNS = (
    *("start", "end", "span_id", "parent_id", "trace", "name", "resource", "scope", "site", "task", "caller"),
    *("submitted", "kind", "status", "state"),
)
"""The names of all columns, in the order of a ``Row``."""

Row = tuple[int, ...]
"""A span: one number for each column."""

NO_ID = -1
"""Stands for no task id in the columns of a part. A table has ``NONE`` instead."""


class Origins:
    """The positions in a file of spans that were read one after the other, from where they can be read again.

    Spans of the same line share one entry.
    """

    def __init__(self) -> None:
        self._rows = array("I")
        self._offsets = array("q")
        self._skipped = array("I")

    def begin(self, offset: int, row: int, skipped: int = 0) -> None:
        """Note that spans from ``row`` onwards are in the line or record at ``offset``; -1 if they are in none.

        ``skipped``: how many spans of the line precede the span of this row.
        """
        self._rows.append(row)
        self._offsets.append(offset)
        self._skipped.append(skipped)

    def of(self, row: int) -> tuple[int, int]:
        """The offset of a row's line, -1 for none, and the index of the span in that line."""
        which = bisect_right(self._rows, row) - 1
        return (self._offsets[which], row - self._rows[which] + self._skipped[which]) if which >= 0 else (-1, 0)


class Columns:
    """Spans as columns, in the order in which they were read."""

    def __init__(self, quality: Quality | None = None) -> None:
        """Problems with the spans are counted in ``quality``."""
        self.start = array("q")
        self.end = array("q")
        self.span_id = array("Q")
        self.parent_id = array("Q")
        self.trace = array("I")
        self.name = array("I")
        self.resource = array("I")
        self.scope = array("I")
        self.site = array("I")
        self.task = array("i")
        self.caller = array("i")
        self.submitted = array("q")
        self.kind = bytearray()
        self.status = bytearray()
        self.state = bytearray()
        self.objects = IdLists()
        """The ids of objects that a submission has as arguments, that a wait waits for, or that ``ray.put`` stored."""
        self.ready = IdLists()
        self.named = IdLists()
        """The name from ``.options(name=...)``, as a list of one. It may differ for each call, so no site holds it."""
        self.kept: dict[int, Span] = {}
        """Complete spans that are in no line or record that could be read again."""
        self.openings: set[int] = set()
        """Rows that come from a start record, which is not a duplicate of the ended span."""
        self.truncated: set[int] = set()
        """Rows of which their recorder dropped attributes, events or links beyond its limits."""

        self.origins = Origins()
        self.traces: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.scopes: dict[str, int] = {}
        self.ids: dict[str, int] = defaultdict(count().__next__)
        """Task ids, each with its index; looking up a new id adds it. ``Strings`` after pickling."""
        self.resources: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        self.quality = quality or Quality()
        self._resource_index: dict[int, int] = {}
        self._site_index: dict[tuple[Any, ...], int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What a table needs, without what only reading needs."""
        return self.__dict__ | dict.fromkeys(_OF_READING) | {"ids": Strings(self.ids)}

    def resource_index(self, attributes: dict[str, Any]) -> int:
        """The index of a resource's attributes, which are recognised by the identity of their dictionary."""
        known = self._resource_index.get(id(attributes))
        if known is None:
            known = self._resource_index[id(attributes)] = len(self.resources)
            self.resources.append(attributes)
        return known

    def site_index(self, pairs: tuple[Any, ...]) -> int:
        """The index of the site with these alternating keys and values."""
        known = self._site_index.get(pairs)
        if known is None:
            known = self._site_index[pairs] = len(self.sites)
            values = [list(value) if isinstance(value, tuple) else value for value in pairs[1::2]]
            self.sites.append(dict(zip(pairs[::2], values, strict=True)))
        return known

    def add(self, rows: Sequence[Row]) -> None:
        """Add spans, apart from the values that :meth:`values_of` has added."""
        for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=False):
            getattr(self, name).extend(values)

    def add_span(self, span: Span, *, opening: bool = False, offset: int = -1) -> None:
        """Add a span. It is kept as it is if no record of a segment holds it, so that ``offset`` is -1.

        ``opening``: it comes from a start record. ``offset``: where its record begins.
        """
        row = len(self)
        ids = int(span.span_id, 16), int(span.parent_id, 16) if span.parent_id else 0
        times = time_of(span.start_ns), time_of(span.end_ns)
        self.origins.begin(offset, row)
        pairs, task, caller, submitted = self.values_of(row, span.attributes.items())
        site = self.site_index(pairs)
        trace = self.traces.setdefault(span.trace_id, len(self.traces))
        name = self.names.setdefault(span.name, len(self.names))
        resource, scope = self.resource_index(span.resource), self.scopes.setdefault(span.scope, len(self.scopes))
        kind, status, state = as_byte(span.kind), as_byte(span.status_code), STATES.index(span.state)
        where = trace, name, resource, scope, site, task, caller
        self.add([(*times, *ids, *where, submitted, kind, status, state)])
        if offset < 0:
            self.kept[row] = span
        if opening:
            self.openings.add(row)
        elif any(span.dropped):
            self.truncated.add(row)

    def values_of(self, row: int, attributes: Iterable[tuple[str, Any]]) -> tuple[tuple[Any, ...], int, int, int]:
        """The site of a row, as :meth:`site_index` takes it, and its values for ``task``, ``caller`` and ``submitted``.

        The row must be the next one to be added. Raises ValueError, TypeError or OverflowError for an invalid time.
        """
        site: list[Any] = []
        objects = ready = given = None
        task = caller = NO_ID
        submitted = choice = loop = 0
        for key, value in attributes:
            kind = _KINDS.get(key)
            if kind is None or (kind != _OF_SITE and value == HIDDEN):
                continue  # an id that is hidden is not the same id as others that are
            if kind == _OF_SITE:
                site += (key, value if type(value) is str else _hashable(value))
            elif kind == _TASK:
                task = self.ids[value if type(value) is str else str(value)]
            elif kind == _CALLER:
                caller = self.ids[value if type(value) is str else str(value)]
            elif kind == _SUBMITTED:
                submitted = time_of(value)
            elif kind == _CHOICE:
                choice = _nanoseconds(value)
            elif kind == _LOOP:
                loop = -_nanoseconds(value)
            elif kind == _OBJECTS:
                objects = value
            elif kind == _GIVEN:
                given = value
            else:
                ready = value
        if objects and isinstance(objects, (list, tuple)):
            self.objects.add(row, map(str, objects))
        if ready and isinstance(ready, (list, tuple)):
            self.ready.add(row, map(str, ready))
        if given:
            self.named.add(row, [str(given)])
        return tuple(site), task, caller, choice or loop or submitted

    def __len__(self) -> int:
        return len(self.start)


def site_pairs(attributes: Iterable[tuple[str, Any]]) -> tuple[Any, ...]:
    """Alternating keys and values of the attributes that belong to a site."""
    return tuple([each for key, value in attributes if key in SITE_KEYS for each in (key, _hashable(value))])


def _hashable(found: Any) -> Any:
    if isinstance(found, (list, tuple)):
        return tuple(map(str, found))
    return str(found) if isinstance(found, dict) else found


def _nanoseconds(seconds: Any) -> int:
    """A duration that a column can hold; an impossible one becomes 0."""
    is_possible = isinstance(seconds, (int, float)) and 0 <= seconds < MOST_TIME / 1e9
    return round(seconds * 1e9) if is_possible else 0


def as_byte(number: int) -> int:
    """An OTLP enum value that fits into its column; any other becomes 0, the unspecified value."""
    return number if 0 <= number < 256 else 0


def time_of(described: Any) -> int:
    """A time that a column can hold. Raises ValueError, TypeError or OverflowError if it is invalid."""
    number = int(described or 0)
    if not 0 <= number <= MOST_TIME:
        raise ValueError("an invalid time")
    return number
