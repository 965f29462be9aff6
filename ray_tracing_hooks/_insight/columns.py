"""Spans of a part of a file as columns: what is read in one go, by one process, and handed to the table as a whole."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.packed import unpacked
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

    def add_span(self, span: Span, *, opening: bool = False) -> None:
        """Add a span that is kept as it is. ``opening`` says that it only tells of a beginning."""
        row = len(self)
        ids = span.trace_id, span.span_id, span.parent_id
        times = _time(span.start_ns), _time(span.end_ns)
        self._attributes(span.attributes)
        self._append(ids, times, span.name, span.kind, span.status_code, STATES.index(span.state))
        self.resource.append(self.shared_resource_index(span.resource))
        self.scope.append(self.scopes.setdefault(span.scope, len(self.scopes)))
        self.line.append(NONE)
        self.place.append(0)
        self.kept[row] = span
        if opening:
            self.openings.add(row)

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


def read_part(part: Part) -> Columns:
    """The spans of lines that begin in a part of a file of OTLP-JSON. Raises as reading a file does."""
    columns = Columns()
    quality = columns.quality
    with open(part.path, "rb") as raw:
        for number, offset, line in _lines(part, raw):
            quality.lines += 1
            quality.last_line = number
            if line is None:
                quality.bad(part.path, number, f"the line is longer than {reading.MAX_LINE >> 20} MiB")
                continue
            try:
                document = json.loads(line)
            except (ValueError, RecursionError) as error:
                if line.endswith(b"\n"):
                    quality.bad(part.path, number, f"not JSON: {reading.explain(error)}")
                else:
                    quality.lines -= 1  # still being written
            else:
                columns.lines.append(offset)
                _add_document(columns, document, part.path, number)
    return columns


def _add_document(columns: Columns, document: Any, path: str, number: int) -> None:
    line, place = len(columns.lines) - 1, 0
    problem = ""
    try:
        for described, resource, scope in spans_of(document):
            try:
                columns.add(
                    described,
                    columns.resource_index(resource),
                    columns.scopes.setdefault(scope, len(columns.scopes)),
                    line,
                    place,
                )
            except reading.MALFORMED as error:
                problem = problem or f"a span that is not OTLP: {reading.explain(error)}"
            place += 1
    except reading.MALFORMED as error:
        problem = f"not OTLP traces: {reading.explain(error)}"
    if problem:
        columns.quality.bad(path, number, problem)


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


def _lines(part: Part, raw: Any) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and text of the lines that begin in the part, without empty ones; None for one that is too long.

    The number counts from the beginning of the part.
    """
    file = unpacked(part.path, raw)
    most = reading.MAX_LINE
    offset = number = 0
    if part.begin:
        # A line that begins before the part, and ends in it, belongs to the part before.
        file.seek(part.begin - 1)
        offset = part.begin - 1
        while line := file.readline(most):
            offset += len(line)
            if line.endswith(b"\n"):
                break
    try:
        while (not part.end or offset < part.end) and (line := file.readline(most)):
            begin = offset
            offset += len(line)
            number += 1
            if len(line) == most and not line.endswith(b"\n"):
                yield number, begin, None
                while line and not line.endswith(b"\n"):
                    line = file.readline(most)
                    offset += len(line)
            elif not line.isspace():
                yield number, begin, line
    except EOFError:
        return  # a compressed file that is still being written


def _hashable(found: Any) -> Any:
    if isinstance(found, (list, tuple)):
        return tuple(map(str, found))
    return str(found) if isinstance(found, dict) else found


def _time(described: Any) -> int:
    number = int(described or 0)
    if not 0 <= number <= _MOST_TIME:
        raise ValueError("a time that is none")
    return number
