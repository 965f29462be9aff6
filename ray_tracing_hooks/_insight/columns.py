"""Spans of a part of a file as columns: what is read in one go, by one process, and handed to the table as a whole."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from itertools import count
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.model import Span, State
from ray_tracing_hooks._insight.source import Origins
from ray_tracing_hooks._insight.texts import IdLists

ENDED, RUNNING, LOST = 0, 1, 2
STATES: tuple[State, ...] = ("ended", "running", "lost")
"""The names of the states, as :class:`~ray_tracing_hooks._insight.model.Span` has them."""

NONE = 0xFFFFFFFF
"""In a column of indexes: there is none."""

SITE_KEYS = frozenset(
    {
        names.RAY_REMOTE,
        names.RAY_FUNCTION,
        names.RAY_ACTOR_CLASS,
        names.RAY_ACTOR_METHOD,
        names.RAY_PID,
        names.RAY_JOB_ID,
        names.RAY_NODE_ID,
        names.RAY_WORKER_ID,
        names.RAY_ACTOR_ID,
        names.RAY_ATTEMPT,
        names.RAY_ARGUMENT_COUNT,
        names.RAY_GENERATOR_ITEMS,
        names.RAY_OBJECT_COUNT,
        names.RAY_NUM_RETURNS,
        names.RAY_TIMEOUT,
        names.RAY_ACTOR_NAME,
        names.RAY_MAX_CONCURRENCY,
        names.RAY_CONCURRENCY_GROUP,
        names.RAY_PLACEMENT_GROUP_ID,
        names.RAY_ASSIGNED_RESOURCES,
        names.RAY_ACCELERATOR_IDS,
        names.RAY_ENTRYPOINT,
        names.RAY_NAMESPACE,
        names.RAY_SUBMISSION_ID,
        names.RAY_JOB_STATUS,
        names.RAY_END_ESTIMATED,
        names.RAY_LEFT_OUT,
        names.RAY_KEPT,
        names.EXIT_CODE,
        names.ERROR_TYPE,
        names.THREAD_ID,
        names.THREAD_NAME,
    }
)
"""Attributes that many spans share with all their values. They are kept once for each set of values that occurs."""

OBJECT_KEYS = frozenset({names.RAY_ARGUMENT_IDS, names.RAY_OBJECT_IDS})

_OF_COLUMNS = (
    SITE_KEYS
    | OBJECT_KEYS
    | {names.RAY_TASK_ID, names.RAY_PARENT_TASK_ID, names.RAY_SUBMIT_TIME, names.RAY_READY_OBJECT_IDS}
)

_OF_READING = ("resource_of_text", "scope_of_text", "site_of_text", "_resource_index", "_site_index")
_MOST_TIME = (1 << 63) - 1
_ZERO = "its ids are zero"

COLUMNS = (
    *("start", "end", "span_id", "parent_id", "trace", "name", "resource", "scope", "site", "task", "caller"),
    *("submitted", "kind", "status", "state"),
)
"""The names of all columns."""

NO_ID = -1
"""In the columns of tasks, while a part is read: there is none. In a table it is ``NONE``."""


class Part(NamedTuple):
    """Some bytes of a file. An ``end`` of 0 means all of it, which a packed file and a segment are read as."""

    path: str
    begin: int = 0
    end: int = 0
    alive: bool = False
    """Of a segment of a spool: whether the process that writes it lived when that was asked, before it is read."""


class Columns:
    """Spans, a column for each thing that is known of them, in the order in which they were read."""

    def __init__(self, quality: reading.Quality | None = None) -> None:
        """What is wrong with the spans is told to ``quality``."""
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
        """The objects that a submission has among its arguments, that a wait waits for, or that are stored."""
        self.ready = IdLists()
        self.kept: dict[int, Span] = {}
        """Spans as a whole, of which there is no line to be read again."""
        self.openings: set[int] = set()
        """Those among them that only tell of a beginning: such a one is no duplicate of what it opens."""

        self.origins = Origins()
        self.traces: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.scopes: dict[str, int] = {}
        self.ids: dict[str, int] = defaultdict(count().__next__)
        """Ids of tasks, each with how many are before it: asking for one adds it."""
        self.resources: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        self.quality = quality or reading.Quality()
        self.resource_of_text: dict[str, int] = {}
        self.scope_of_text: dict[str, int] = {}
        self.site_of_text: dict[tuple[str, str | None, str | None], tuple[int, int, int, int]] = {}
        """What :mod:`~ray_tracing_hooks._insight.own_lines` has seen before."""
        self._resource_index: dict[str, int] = {}
        self._site_index: dict[tuple[Any, ...], int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What a table is made of, without what only reading needs."""
        return self.__dict__ | dict.fromkeys(_OF_READING) | {"ids": dict(self.ids)}

    def resource_index(self, described: dict[str, Any]) -> int:
        key = json.dumps(described)
        known = self._resource_index.get(key)
        if known is None:
            attributes = reading.plain_attributes(described.get("attributes"))
            known = self._resource_index[key] = len(self.resources)
            self.resources.append(attributes)
        return known

    def shared_resource_index(self, resource: dict[str, Any]) -> int:
        """The same for attributes that were read already."""
        key = repr(id(resource))
        known = self._resource_index.get(key)
        if known is None:
            known = self._resource_index[key] = len(self.resources)
            self.resources.append(resource)
        return known

    def site_index(self, pairs: tuple[Any, ...]) -> int:
        """Where the attributes are that these alternating keys and values say."""
        known = self._site_index.get(pairs)
        if known is None:
            known = self._site_index[pairs] = len(self.sites)
            values = [list(value) if isinstance(value, tuple) else value for value in pairs[1::2]]
            self.sites.append(dict(zip(pairs[::2], values, strict=True)))
        return known

    def add(self, described: dict[str, Any], resource: int, scope: int) -> None:
        """Add a span in OTLP-JSON. Raises one of ``reading.MALFORMED``, and adds nothing, if it is none."""
        trace_id = described["traceId"]
        trace = self.traces.get(trace_id)
        if trace is None and not (trace_id := reading.id_text(trace_id, 16)):
            raise ValueError(_ZERO)
        span_id, parent_id = _number(described["spanId"]), _number(described.get("parentSpanId") or "")
        if not span_id:
            raise ValueError(_ZERO)
        times = _time(described.get("startTimeUnixNano")), _time(described.get("endTimeUnixNano"))
        kind, status = int(described.get("kind") or 0), int((described.get("status") or {}).get("code") or 0)
        name = described.get("name") or ""
        if not isinstance(name, str):
            raise TypeError(f"its name is {name!r:.100}")
        attributes = reading.plain_attributes(described.get("attributes"))
        # In a file nobody will end a span that has no end, so it is lost as well.
        state = ENDED if times[1] and not attributes.get(names.RAY_END_ESTIMATED) else LOST
        self._attributes(attributes)
        self._append(trace_id, (span_id, parent_id), times, name, kind, status, state)
        self.resource.append(resource)
        self.scope.append(scope)

    def add_span(self, span: Span, *, opening: bool = False, offset: int = -1) -> None:
        """Add a span, which is kept as it is if it stands in no record of a segment.

        ``opening``: it only tells of a beginning. ``offset`` is where its record begins.
        """
        row = len(self)
        ids = int(span.span_id, 16), int(span.parent_id, 16) if span.parent_id else 0
        times = _time(span.start_ns), _time(span.end_ns)
        self.origins.begin(offset, row)
        self._attributes(span.attributes)
        self._append(span.trace_id, ids, times, span.name, span.kind, span.status_code, STATES.index(span.state))
        self.resource.append(self.shared_resource_index(span.resource))
        self.scope.append(self.scopes.setdefault(span.scope, len(self.scopes)))
        if offset < 0:
            self.kept[row] = span
        if opening:
            self.openings.add(row)

    def site_of(self, attributes: dict[str, Any]) -> int:
        """Where those attributes are that many spans share."""
        site: list[Any] = []
        for key, value in attributes.items():
            if key in SITE_KEYS:
                site += (key, _hashable(value))
        return self.site_index(tuple(site))

    def truncate(self, rows: int) -> None:
        """Forget all spans but the first ``rows``."""
        for name in COLUMNS:
            del getattr(self, name)[rows:]
        self.objects.truncate(rows)
        self.ready.truncate(rows)

    def _attributes(self, attributes: dict[str, Any]) -> None:
        """The columns that attributes make, for the span that is added next."""
        site: list[Any] = []
        objects = ready = None
        task = caller = NO_ID
        submitted = 0
        for key, value in attributes.items():
            if key not in _OF_COLUMNS:
                continue
            if key in SITE_KEYS:
                site += (key, _hashable(value))
            elif key == names.RAY_TASK_ID:
                task = self.ids[str(value)]
            elif key == names.RAY_PARENT_TASK_ID:
                caller = self.ids[str(value)]
            elif key == names.RAY_SUBMIT_TIME:
                submitted = _time(value)
            elif key in OBJECT_KEYS:
                objects = value
            else:
                ready = value
        site_index = self.site_index(tuple(site))
        row = len(self)
        if objects and isinstance(objects, (list, tuple)):
            self.objects.add(row, map(str, objects))
        if ready and isinstance(ready, (list, tuple)):
            self.ready.add(row, map(str, ready))
        self.site.append(site_index)
        self.task.append(task)
        self.caller.append(caller)
        self.submitted.append(submitted)

    def _append(
        self,
        trace_id: str,
        ids: tuple[int, int],
        times: tuple[int, int],
        name: str,
        kind: int,
        status: int,
        state: int,
    ) -> None:
        self.start.append(times[0])
        self.end.append(times[1])
        self.span_id.append(ids[0])
        self.parent_id.append(ids[1])
        self.trace.append(self.traces.setdefault(trace_id, len(self.traces)))
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.kind.append(kind if 0 <= kind < 256 else 0)
        self.status.append(status if 0 <= status < 256 else 0)
        self.state.append(state)

    def __len__(self) -> int:
        return len(self.start)


def _hashable(found: Any) -> Any:
    if isinstance(found, (list, tuple)):
        return tuple(map(str, found))
    return str(found) if isinstance(found, dict) else found


def _number(text: str) -> int:
    """An id of 8 bytes; 0 is none."""
    number = bytes.fromhex(text)
    if number and len(number) != 8:
        raise ValueError(f"the id {text!r} is not 8 bytes in hex")
    return int.from_bytes(number, "big")


def _time(described: Any) -> int:
    number = int(described or 0)
    if not 0 <= number <= _MOST_TIME:
        raise ValueError("a time that is none")
    return number
