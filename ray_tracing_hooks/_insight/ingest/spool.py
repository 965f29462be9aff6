"""Reads a node's spool: the segments that processes write, and the other open spans that their shipper noted."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from ray_tracing_hooks._formats.otlp_json import resource_json, scope_json, span_json
from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._insight.ingest.files import UNREADABLE, FilePart, reason
from ray_tracing_hooks._insight.ingest.otlp_json import (
    explain,
    plain_attributes,
    scope_name,
    span_of,
    span_of_text,
)
from ray_tracing_hooks._insight.model.columns import Columns
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._safety.private import read_file
from ray_tracing_hooks._spool import progress
from ray_tracing_hooks._spool import reader as spool
from ray_tracing_hooks._spool.layout import (
    DROPPED,
    FRAME,
    MAX_PAYLOAD,
    MAX_SEGMENT,
    RESOURCE,
    SCOPE,
    SPAN,
    START,
    TWO_U16,
    U16,
    U64,
    parse_segment_name,
)

_CHUNK = 4 * 1024 * 1024

Add = Callable[[Span, int], None]
"""Takes a span and the offset of its record in the segment: -1 if no segment holds it any more."""


class Segments:
    """Reads spool segments and passes on their spans."""

    def __init__(self, quality: Quality, add: Add) -> None:
        self._quality, self._add = quality, add
        self._resources: dict[str, dict[str, Any]] = {}
        self._processes: dict[str, dict[str, bool]] = {}

    def is_alive(self, segment: str) -> bool:
        """Whether the process that wrote this segment was alive when its folder was first checked.

        That first check also passes on the open spans that the folder's progress files list.
        """
        folder, name = os.path.split(segment)
        if folder not in self._processes:
            alive = {process: alive for process, _, alive in spool.iterate(folder or ".")}
            self._processes[folder] = alive
            self._read_openings(folder or ".", alive)
        parsed = parse_segment_name(name)
        return parsed is not None and self._processes[folder].get(parsed[0], False)

    def read(self, path: str, *, alive: bool) -> None:
        """Pass on the spans of a segment. Raises one of ``UNREADABLE`` if it cannot be read at all."""
        if os.path.getsize(path) > MAX_SEGMENT:
            raise ValueError(f"larger than {MAX_SEGMENT >> 20} MiB, the most that a segment can have")
        segment = spool.SegmentReader(path)
        resources: dict[int, dict[str, Any]] = {}
        scopes: dict[int, tuple[dict[str, Any], str]] = {}
        for kind, payload, offset in _records(segment, final=not alive):
            try:
                if kind in (SPAN, START):
                    span = span_of(span_of_text(span_json(payload[U16.size :])), *scopes[U16.unpack_from(payload)[0]])
                    if kind == START and alive:
                        span.state = "running"
                    self._add(span, offset)
                elif kind == RESOURCE:
                    resources[U16.unpack_from(payload)[0]] = self._resource(payload[U16.size :])
                elif kind == SCOPE:
                    scope_id, resource_id = TWO_U16.unpack_from(payload)
                    name = scope_name(json.loads(scope_json(payload[TWO_U16.size :])))
                    scopes[scope_id] = (resources[resource_id], name)
                elif kind == DROPPED:
                    self._quality.dropped += U64.unpack_from(payload)[0]
            except (*MALFORMED, struct.error) as error:
                self._quality.bad(path, 0, f"a bad record at byte {offset}: {explain(error)}")
        if segment.refusal:
            self._quality.bad(path, 0, segment.refusal)
        if segment.damaged:
            self._quality.bad(path, 0, f"{segment.damaged} damaged bytes")

    def _resource(self, encoded: bytes) -> dict[str, Any]:
        described = json.loads(resource_json(encoded))
        return self._resources.setdefault(json.dumps(described), plain_attributes(described.get("attributes")))

    def _read_openings(self, folder: str, alive: dict[str, bool]) -> None:
        """Pass on the spans that are open although their start records have been delivered."""
        for name in sorted(filter(progress.is_progress_file, os.listdir(folder))):
            path = os.path.join(folder, name)
            try:
                with contextlib.suppress(FileNotFoundError):
                    for process, stored in progress.decode(read_file(path)).processes.items():
                        for opening in progress.open_spans(stored):
                            resource = self._resource(opening.resource)
                            scope = scope_name(json.loads(scope_json(opening.scope)))
                            span = span_of(span_of_text(span_json(opening.span)), resource, scope)
                            if alive.get(process, False):
                                span.state = "running"
                            self._add(span, -1)
            except (OSError, *MALFORMED) as error:
                self._quality.bad(path, 0, f"not a valid progress file: {explain(error)}")


def _records(segment: spool.SegmentReader, *, final: bool) -> Iterator[spool.Record]:
    before = -1
    while segment.offset > before:
        before = segment.offset
        yield from segment.read(final=final, limit=_CHUNK)


def segments_of(paths: Sequence[str], quality: Quality) -> tuple[Columns, list[FilePart]]:
    """The segments, each with whether its process is alive, and the open spans that their progress files list.

    Processes are checked here, before any segment is read, because a dead process has written everything.
    """
    columns = Columns(quality)
    segments = Segments(quality, _adding(columns))
    parts = []
    for path in paths:
        try:
            parts.append(FilePart(path, alive=segments.is_alive(path)))
        except FileNotFoundError:
            continue  # delivered since the folder was listed
        except UNREADABLE as error:
            quality.incomplete(path, 0, reason(error))
        quality.files += 1
    return columns, parts


def read_segment(part: FilePart) -> Columns:
    """The spans of a segment. Raises one of ``UNREADABLE``."""
    columns = Columns()
    Segments(columns.quality, _adding(columns)).read(part.path, alive=part.alive)
    return columns


def _adding(columns: Columns) -> Add:
    return lambda span, offset: columns.add_span(span, opening=not span.end_ns, offset=offset)


def span_at(file: BinaryIO, offset: int) -> str:
    """The span whose record is at this offset of a segment, as OTLP-JSON."""
    file.seek(offset)
    length, _, _ = FRAME.unpack(file.read(FRAME.size))
    return span_json(file.read(min(length, MAX_PAYLOAD))[U16.size :])
