"""Spans of a part of a file as columns: what is read in one go, by one process, and handed to the table as a whole."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.model import Span, State

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

_MOST_TIME = (1 << 63) - 1


COLUMNS = (
    *("start", "end", "span_id", "parent_id", "trace", "name", "resource", "scope", "site", "task", "caller"),
    *("line", "place", "submitted", "kind", "status", "state"),
)
"""The names of all columns."""


class Part(NamedTuple):
    """Some bytes of a file. An ``end`` of 0 means all of it, which a packed file and a segment are read as."""

    path: str
    begin: int = 0
    end: int = 0


class Columns:
    """Spans, a column for each thing that is known of them, in the order in which they were read."""

    def __init__(self) -> None:
        self.start = array("q")
        self.end = array("q")
        self.span_id = array("Q")
        self.parent_id = array("Q")
        self.trace = array("I")
        self.name = array("I")
        self.resource = array("I")
        self.scope = array("I")
        self.site = array("I")
        self.task = array("I")
        self.caller = array("I")
        self.line = array("I")
        self.place = array("I")
        """The how-manieth span of its line it is."""
        self.submitted = array("q")
        self.kind = bytearray()
        self.status = bytearray()
        self.state = bytearray()
        self.objects: dict[int, tuple[str, ...]] = {}
        """The objects that a submission has among its arguments, that a wait waits for, or that are stored."""
        self.ready: dict[int, tuple[str, ...]] = {}
        self.kept: dict[int, Span] = {}
        """Spans as a whole, of which there is no line to be read again."""
        self.openings: set[int] = set()
        """Those among them that only tell of a beginning: such a one is no duplicate of what it opens."""

        self.lines = array("q")
        """Where in the file each line, or record of a segment, begins."""
        self.traces: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.scopes: dict[str, int] = {}
        self.ids: dict[str, int] = {}
        """Ids of tasks."""
        self.resources: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        self.quality = reading.Quality()
        self.resource_of_text: dict[str, int] = {}
        self.scope_of_text: dict[str, int] = {}
        self.site_of_text: dict[tuple[str, str | None, str | None], tuple[int, int, int, int]] = {}
        """What :mod:`~ray_tracing_hooks._insight.own_lines` has seen before."""
        self._resource_index: dict[str, int] = {}
        self._site_index: dict[tuple[Any, ...], int] = {}

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

    def add(self, described: dict[str, Any], resource: int, scope: int, line: int, place: int) -> None:
        """Add a span in OTLP-JSON. Raises one of ``reading.MALFORMED``, and adds nothing, if it is none."""
        trace_id, span_id = reading.span_ids(described)
        parent_id = reading.id_text(described.get("parentSpanId") or "", 8)
        times = _time(described.get("startTimeUnixNano")), _time(described.get("endTimeUnixNano"))
        kind, status = int(described.get("kind") or 0), int((described.get("status") or {}).get("code") or 0)
        name = described.get("name") or ""
        if not isinstance(name, str):
            raise TypeError(f"its name is {name!r:.100}")
        attributes = reading.plain_attributes(described.get("attributes"))
        # In a file nobody will end a span that has no end, so it is lost as well.
        state = ENDED if times[1] and not attributes.get(names.RAY_END_ESTIMATED) else LOST
        self._attributes(attributes)
        self._append((trace_id, span_id, parent_id), times, name, kind, status, state)
        self.resource.append(resource)
        self.scope.append(scope)
        self.line.append(line)
        self.place.append(place)

    def add_span(self, span: Span, *, opening: bool = False, line: int = NONE) -> None:
        """Add a span, which is kept as it is if it stands in no ``line``. ``opening``: it only tells of a beginning."""
        row = len(self)
        ids = span.trace_id, span.span_id, span.parent_id
        times = _time(span.start_ns), _time(span.end_ns)
        self._attributes(span.attributes)
        self._append(ids, times, span.name, span.kind, span.status_code, STATES.index(span.state))
        self.resource.append(self.shared_resource_index(span.resource))
        self.scope.append(self.scopes.setdefault(span.scope, len(self.scopes)))
        self.line.append(line)
        self.place.append(0)
        if line == NONE:
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

    def extend(self, values: Iterable[Sequence[int]]) -> None:
        """Add spans that are columns already, in the order of :data:`COLUMNS`."""
        for name, column in zip(COLUMNS, values, strict=True):
            getattr(self, name).extend(column)

    def truncate(self, rows: int) -> None:
        """Forget all spans but the first ``rows``."""
        for name in COLUMNS:
            del getattr(self, name)[rows:]
        for sparse in (self.objects, self.ready):
            for row in [row for row in sparse if row >= rows]:
                del sparse[row]

    def _attributes(self, attributes: dict[str, Any]) -> None:
        """The columns that attributes make, for the span that is added next."""
        site: list[Any] = []
        objects = ready = None
        task = caller = NONE
        submitted = 0
        for key, value in attributes.items():
            if key == names.RAY_TASK_ID:
                task = self.ids.setdefault(str(value), len(self.ids))
            elif key == names.RAY_PARENT_TASK_ID:
                caller = self.ids.setdefault(str(value), len(self.ids))
            elif key == names.RAY_SUBMIT_TIME:
                submitted = _time(value)
            elif key in OBJECT_KEYS:
                objects = value
            elif key == names.RAY_READY_OBJECT_IDS:
                ready = value
            elif key in SITE_KEYS:
                site += (key, _hashable(value))
        row = len(self)
        if objects and isinstance(objects, (list, tuple)):
            self.objects[row] = tuple(map(str, objects))
        if ready and isinstance(ready, (list, tuple)):
            self.ready[row] = tuple(map(str, ready))
        self.site.append(self.site_index(tuple(site)))
        self.task.append(task)
        self.caller.append(caller)
        self.submitted.append(submitted)

    def _append(
        self, ids: tuple[str, str, str], times: tuple[int, int], name: str, kind: int, status: int, state: int
    ) -> None:
        trace_id, span_id, parent_id = ids
        self.start.append(times[0])
        self.end.append(times[1])
        self.span_id.append(int(span_id, 16))
        self.parent_id.append(int(parent_id, 16) if parent_id else 0)
        self.trace.append(self.traces.setdefault(trace_id, len(self.traces)))
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.kind.append(kind if 0 <= kind < 256 else 0)
        self.status.append(status if 0 <= status < 256 else 0)
        self.state.append(state)

    def __len__(self) -> int:
        return len(self.start)


def spans_of(document: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """The spans of a line, with the Resource and the name of the scope. Raises one of ``reading.MALFORMED``."""
    if "resourceSpans" not in document and not any(signal in document for signal in reading.OTHER_SIGNALS):
        raise ValueError("expected an object with resourceSpans")
    for resource_spans in document.get("resourceSpans") or ():
        resource = resource_spans.get("resource") or {}
        for scope_spans in resource_spans.get("scopeSpans") or ():
            scope = str((scope_spans.get("scope") or {}).get("name", ""))
            for described in scope_spans.get("spans") or ():
                yield described, resource, scope


def _hashable(found: Any) -> Any:
    if isinstance(found, (list, tuple)):
        return tuple(map(str, found))
    return str(found) if isinstance(found, dict) else found


def _time(described: Any) -> int:
    number = int(described or 0)
    if not 0 <= number <= _MOST_TIME:
        raise ValueError("a time that is none")
    return number
