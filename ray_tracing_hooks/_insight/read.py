"""Reading spans: OTLP-JSON files, also while they grow, and the spool of a node.

Files may come from us, from the OpenTelemetry Collector or from another SDK, may be cut anywhere, and may hold a span
more than once, since delivery repeats what was not acknowledged. Whatever cannot be read is counted and told with its
place, never raised: the rest is worth seeing.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import intern
from typing import Any, BinaryIO, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp_json import resource_json, scope_json, span_json
from ray_tracing_hooks._formats.packed import unpacked
from ray_tracing_hooks._insight.model import Event, Link, Span, State
from ray_tracing_hooks._private import read_file
from ray_tracing_hooks._spool import reader as spool
from ray_tracing_hooks._spool.layout import (
    DROPPED,
    MAX_SEGMENT,
    RESOURCE,
    SCOPE,
    SPAN,
    START,
    SUFFIX,
    TWO_U16,
    U16,
    U64,
    UNDECIDED,
    parse_segment_name,
)

JSON_SUFFIXES = (".jsonl", ".jsonl.gz")

MAX_LINE = 64 * 1024 * 1024
"""A longer line is taken for damage. What we write stays below 1 MiB."""

_SEGMENT_CHUNK = 4 * 1024 * 1024

_SHOWN_PROBLEMS = 20


class Problem(NamedTuple):
    """Something that could not be read: where (``line`` 0 means the file as a whole) and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.reason}"


@dataclass
class Quality:
    """What was read and what is wrong with it."""

    files: int = 0
    lines: int = 0
    spans: int = 0
    """Different spans, after duplicates were merged."""
    duplicates: int = 0
    bad_lines: int = 0
    """Lines, or parts of a spool, that could not be read in full."""
    problems: list[Problem] = field(default_factory=list)
    """The first of them."""
    running: int = 0
    lost: int = 0
    dropped: int = 0
    """Spans that processes say they could not record."""
    orphans: int = 0
    """Spans whose parent is not among the spans. This and what follows is counted for a table only."""
    circles: int = 0
    """Parents that would be their own ancestors. They count as missing."""
    clocks: dict[str, int] = field(default_factory=dict)
    """For machines whose clocks were found to be wrong, the nanoseconds that were added to all times of theirs."""
    last_line: int = 0
    """The number of the last line of a part of a file."""
    negative: int = 0
    """Spans that say that they ended before they began. They count as ended when they began."""

    def bad(self, file: str, line: int, reason: str) -> None:
        self.bad_lines += 1
        if len(self.problems) < _SHOWN_PROBLEMS:
            self.problems.append(Problem(file, line, reason))


def files(paths: Iterable[str]) -> list[str]:
    """The files with spans among ``paths``: a file stands for itself, a folder for what it holds.

    A folder that holds none itself stands for its subfolders: a session of Ray has a spool folder for each node in one.
    What waits in a spool to be decided on is left out, since most of it will be dropped.
    Raises OSError for a path that does not exist or a folder that may not be read.
    """
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
            found += _with_spans(inside) or [
                file
                for folder in inside
                if os.path.isdir(folder) and not os.path.islink(folder) and os.path.basename(folder) != UNDECIDED
                for file in _with_spans(sorted(os.path.join(folder, name) for name in os.listdir(folder)))
            ]
        else:
            os.stat(path)
            found.append(path)
    return list(dict.fromkeys(found))


def _with_spans(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.endswith((*JSON_SUFFIXES, SUFFIX)) and os.path.isfile(path)]


def read(paths: Sequence[str], on_bytes: Callable[[int], None] = lambda _count: None) -> tuple[list[Span], Quality]:
    """All spans of the files, and what is wrong with them.

    ``paths`` are files as :func:`files` gives them. A span found more than once is taken once: a record with an end
    wins over one without, an end that was recorded over one that was estimated, then the later end. ``on_bytes`` is
    called with the size of what was read since its last call.
    """
    gathered = Gathered()
    quality = gathered.quality
    with collector_paused():
        for path in paths:
            quality.files += 1
            try:
                if path.endswith(SUFFIX):
                    read_segment(path, gathered)
                    on_bytes(os.path.getsize(path))
                else:
                    _read_json(path, gathered, on_bytes)
            except FileNotFoundError:
                # The shipper delivered a segment, or an old file made room, since the folder was listed.
                quality.files -= 1
            except UNREADABLE as error:
                quality.bad(path, 0, str(getattr(error, "strerror", None) or error))
    spans = list(gathered.spans.values())
    quality.spans = len(spans)
    quality.running = sum(span.state == "running" for span in spans)
    quality.lost = sum(span.state == "lost" for span in spans)
    return spans, quality


class Gathered:
    """The spans so far, what is wrong, and what is shared between spans or asked for again."""

    def __init__(self) -> None:
        self.spans: dict[tuple[str, str], Span] = {}
        self.quality = Quality()
        self._resources: dict[str, dict[str, Any]] = {}
        self._processes: dict[str, dict[str, bool]] = {}

    def resource(self, described: dict[str, Any]) -> dict[str, Any]:
        key = json.dumps(described)
        known = self._resources.get(key)
        if known is None:
            known = self._resources[key] = plain_attributes(described.get("attributes"))
        return known

    def is_alive(self, segment: str) -> bool:
        """Whether the process that wrote this segment lived when its folder was first asked about."""
        folder, name = os.path.split(segment)
        if folder not in self._processes:
            alive = {process: alive for process, _, alive in spool.iterate(folder or ".")}
            self._processes[folder] = alive
            _read_openings(folder or ".", alive, self)
        parsed = parse_segment_name(name)
        return parsed is not None and self._processes[folder].get(parsed[0], False)

    def add(self, span: Span, offset: int = -1) -> None:
        """Take in a span. ``offset`` is where its record stands in the segment that is read, -1 for another place."""
        key = (span.trace_id, span.span_id)
        other = self.spans.get(key)
        if other is None:
            self.spans[key] = span
            return
        # An opening in a spool is no duplicate of the span that it opens.
        self.quality.duplicates += bool(span.end_ns and other.end_ns)
        if _rank(span) > _rank(other):
            self.spans[key] = span


def _rank(span: Span) -> tuple[bool, bool, int]:
    return bool(span.end_ns), span.state == "ended", span.end_ns


def _read_json(path: str, gathered: Gathered, on_bytes: Callable[[int], None]) -> None:
    quality = gathered.quality
    with open(path, "rb") as raw:
        position = 0
        for number, line in lines_of(unpacked(path, raw)):
            quality.lines += 1
            if line is None:
                quality.bad(path, number, f"the line is longer than {MAX_LINE >> 20} MiB")
            else:
                try:
                    document = json.loads(line)
                except (ValueError, RecursionError) as error:
                    if line.endswith(b"\n"):
                        quality.bad(path, number, f"not JSON: {explain(error)}")
                    else:
                        quality.lines -= 1  # still being written
                else:
                    _add_traces_data(document, path, number, gathered)
            here = raw.tell()
            on_bytes(here - position)
            position = here


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines with their numbers, without empty ones; None for a line that is too long."""
    number = 0
    try:
        while line := file.readline(MAX_LINE):
            number += 1
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                yield number, None
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
            elif not line.isspace():
                yield number, line
    except EOFError:
        return  # a compressed file that is still being written


def _add_traces_data(document: Any, path: str, number: int, gathered: Gathered) -> None:
    """Add the spans of one line. A span that is none costs itself, not the others of the line."""
    problem = ""
    try:
        if "resourceSpans" not in document and not any(signal in document for signal in OTHER_SIGNALS):
            raise ValueError("expected an object with resourceSpans")
        for resource_spans in document.get("resourceSpans") or ():
            resource = gathered.resource(resource_spans.get("resource") or {})
            for scope_spans in resource_spans.get("scopeSpans") or ():
                scope = (scope_spans.get("scope") or {}).get("name", "")
                for described in scope_spans.get("spans") or ():
                    try:
                        gathered.add(span_of(described, resource, scope))
                    except MALFORMED as error:
                        problem = problem or f"a span that is not OTLP: {explain(error)}"
    except MALFORMED as error:
        problem = f"not OTLP traces: {explain(error)}"
    if problem:
        gathered.quality.bad(path, number, problem)


UNREADABLE = (OSError, EOFError, ValueError, zlib.error)
OTHER_SIGNALS = ("resourceMetrics", "resourceLogs", "resourceProfiles")
UNREADABLE = (OSError, EOFError, ValueError, zlib.error)
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def explain(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"  # its own text counts lines within this line
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def read_segment(path: str, gathered: Gathered) -> None:
    # Asked before reading: what a dead process wrote is all there, while a living one may end a span meanwhile.
    alive = gathered.is_alive(path)
    if os.path.getsize(path) > MAX_SEGMENT:
        raise ValueError(f"larger than {MAX_SEGMENT >> 20} MiB, which no segment is")
    segment = spool.SegmentReader(path)
    records = _segment_records(segment, final=not alive)
    resources: dict[int, dict[str, Any]] = {}
    scopes: dict[int, tuple[dict[str, Any], str]] = {}
    for kind, payload, offset in records:
        try:
            if kind in (SPAN, START):
                described = json.loads(span_json(payload[U16.size :]))
                span = span_of(described, *scopes[U16.unpack_from(payload)[0]])
                if kind == START and alive:
                    span.state = "running"
                gathered.add(span, offset)
            elif kind == RESOURCE:
                described = json.loads(resource_json(payload[U16.size :]))
                resources[U16.unpack_from(payload)[0]] = gathered.resource(described)
            elif kind == SCOPE:
                scope_id, resource_id = TWO_U16.unpack_from(payload)
                described = json.loads(scope_json(payload[TWO_U16.size :]))
                scopes[scope_id] = (resources[resource_id], described.get("name", ""))
            elif kind == DROPPED:
                gathered.quality.dropped += U64.unpack_from(payload)[0]
        except (*MALFORMED, struct.error) as error:
            gathered.quality.bad(path, 0, f"a bad record at byte {offset}: {explain(error)}")
    if segment.refusal:
        gathered.quality.bad(path, 0, segment.refusal)
    if segment.damaged:
        gathered.quality.bad(path, 0, f"{segment.damaged} damaged bytes")


def _segment_records(segment: spool.SegmentReader, *, final: bool) -> Iterator[spool.Record]:
    before = -1
    while segment.offset > before:
        before = segment.offset
        yield from segment.read(final=final, limit=_SEGMENT_CHUNK)


def _read_openings(folder: str, alive: dict[str, bool], gathered: Gathered) -> None:
    """Add the spans that run on although what tells of their beginning has been delivered: the shipper keeps them."""
    for name in sorted(os.listdir(folder)):
        if not (name.startswith("progress-") and name.endswith(".json")):
            continue
        path = os.path.join(folder, name)
        try:
            with contextlib.suppress(FileNotFoundError):
                for process, entry in json.loads(read_file(path))["processes"].items():
                    for resource, scope, encoded in entry["openings"]:
                        where = json.loads(resource_json(base64.b64decode(resource)))
                        what = json.loads(scope_json(base64.b64decode(scope)))
                        described = json.loads(span_json(base64.b64decode(encoded)))
                        span = span_of(described, gathered.resource(where), what.get("name", ""))
                        if alive.get(process, False):
                            span.state = "running"
                        gathered.add(span)
        except (OSError, *MALFORMED) as error:
            gathered.quality.bad(path, 0, f"not what a shipper has written: {explain(error)}")


def span_of(described: dict[str, Any], resource: dict[str, Any], scope: str) -> Span:
    attributes = plain_attributes(described.get("attributes"))
    status = described.get("status") or {}
    trace_id, span_id = span_ids(described)
    end_ns = _time(described.get("endTimeUnixNano"))
    # In a file nobody will end a span that has no end, so it is lost as well.
    state: State = "ended" if end_ns and not attributes.get(names.RAY_END_ESTIMATED) else "lost"
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=id_text(described.get("parentSpanId") or "", 8),
        name=intern(described.get("name") or ""),
        kind=int(described.get("kind") or 0),
        start_ns=_time(described.get("startTimeUnixNano")),
        end_ns=end_ns,
        status_code=int(status.get("code") or 0),
        status_message=str(status.get("message") or ""),
        attributes=attributes,
        events=[
            Event(event.get("name") or "", _time(event.get("timeUnixNano")), plain_attributes(event.get("attributes")))
            for event in described.get("events") or ()
        ],
        links=[
            Link(id_text(link["traceId"], 16), id_text(link["spanId"], 8), plain_attributes(link.get("attributes")))
            for link in described.get("links") or ()
        ],
        resource=resource,
        scope=scope,
        state=state,
    )


def span_ids(described: dict[str, Any]) -> tuple[str, str]:
    """Its trace id and span id. Raises one of ``MALFORMED`` where one is missing or none."""
    trace_id, span_id = id_text(described["traceId"], 16), id_text(described["spanId"], 8)
    if not trace_id or not span_id:
        raise ValueError("its ids are zero")
    return trace_id, span_id


def _time(described: Any) -> int:
    number = int(described or 0)
    if not 0 <= number < 1 << 64:
        raise ValueError("a time that is none")
    return number


def id_text(text: str, size: int) -> str:
    """An id in lower case. An empty one, or only zeros, is none."""
    number = bytes.fromhex(text)
    if number and len(number) != size:
        raise ValueError(f"the id {text!r} is not {size} bytes in hex")
    return intern(number.hex()) if any(number) else ""


def plain_attributes(described: list[dict[str, Any]] | None) -> dict[str, Any]:
    # Most values are text: those need no call each.
    return {
        intern(item["key"]): intern(value["stringValue"])
        if len(value := item.get("value") or {}) == 1 and "stringValue" in value
        else plain_value(value)
        for item in described or ()
    }


def plain_value(described: dict[str, Any]) -> Any:
    """The plain value; bytes stay base64 text."""
    for kind, value in described.items():
        if kind == "stringValue":
            return intern(value)
        if kind == "intValue":
            return int(value)
        if kind == "doubleValue":
            return float(value)
        if kind in ("boolValue", "bytesValue"):
            return value
        if kind == "arrayValue":
            return [plain_value(item) for item in value.get("values") or ()]
        if kind == "kvlistValue":
            return plain_attributes(value.get("values"))
    return None


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the garbage collector, which would go over all spans read so far again and again: three times as fast."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
