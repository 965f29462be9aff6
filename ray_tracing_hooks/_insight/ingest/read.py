"""Reads complete spans as objects, for views such as ``tree`` of runs that fit into memory that way.

The files may come from this package, the OpenTelemetry Collector or another SDK, may be truncated anywhere, and may
hold a span more than once, since deliveries without an acknowledgement are retried. Whatever cannot be read is counted
and reported with its file and line, and never raised: the rest is worth seeing.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp_json_read import MALFORMED, MAX_LINE
from ray_tracing_hooks._formats.packed import unpacked
from ray_tracing_hooks._insight.ingest.files import UNREADABLE, is_segment, lines_of, reason
from ray_tracing_hooks._insight.ingest.otlp_json import (
    as_span,
    document_of,
    explain,
    groups_of,
    plain_attributes,
    plain_text,
    scope_name,
    span_of,
)
from ray_tracing_hooks._insight.ingest.spool import Segments
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import Span


def read(paths: Sequence[str], on_bytes: Callable[[int], None] = lambda _count: None) -> tuple[list[Span], Quality]:
    """All spans of the files, and the problems found in them.

    ``paths`` are files that :func:`~ray_tracing_hooks._insight.ingest.files.span_files` found. Of several records of
    one span, one is kept: a record with an end wins over one without, a recorded end over an estimated one, then the
    later end. ``on_bytes`` is called with the number of bytes read since the previous call.
    """
    reader = _Reader(on_bytes)
    with collector_paused():
        for path in paths:
            reader.read(path)
    spans, quality = list(reader.spans.values()), reader.quality
    _place_unknown_starts(spans)
    quality.spans = len(spans)
    quality.running = sum(span.state == "running" for span in spans)
    lost = [span for span in spans if span.state == "lost"]
    quality.lost = len(lost)
    quality.unended = sum(not span.attributes.get(names.RAY_END_ESTIMATED) for span in lost)
    return spans, quality


def _place_unknown_starts(spans: Sequence[Span]) -> None:
    """Spans with neither start nor end, which other programs write, begin with their trace."""
    if unknown := [span for span in spans if not span.start_ns]:
        first: dict[str, int] = {}
        for span in spans:
            if span.start_ns:
                first[span.trace_id] = min(span.start_ns, first.get(span.trace_id, span.start_ns))
        for span in unknown:
            span.start_ns = first.get(span.trace_id, 0)


class _Reader:
    """The spans so far, the problems, and the resources that spans share."""

    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self.spans: dict[tuple[str, str], Span] = {}
        self.quality = Quality()
        self._on_bytes = on_bytes
        self._segments = Segments(self.quality, lambda span, _offset: self._add(span))
        self._resources: dict[str, dict[str, Any]] = {}
        self._lines_read = 0
        """How many lines of the file have been read."""

    def read(self, path: str) -> None:
        self.quality.files += 1
        self._lines_read = 0
        try:
            if is_segment(path):
                # Checked before reading: a dead process has written everything, while a live one may end a span
                # during the read.
                self._segments.read(path, alive=self._segments.is_alive(path))
                self._on_bytes(os.path.getsize(path))
            else:
                self._read_lines(path)
        except FileNotFoundError:
            # Since the folder was listed, a segment was delivered, or an old file was removed to make room.
            self.quality.files -= 1
        except UNREADABLE as error:
            self.quality.incomplete(path, self._lines_read, reason(error))

    def _read_lines(self, path: str) -> None:
        quality = self.quality
        with open(path, "rb") as raw:
            position = 0
            for number, line in lines_of(unpacked(path, raw)):
                quality.lines += 1
                self._lines_read = number
                if line is None:
                    quality.bad(path, number, f"the line is longer than {MAX_LINE >> 20} MiB")
                else:
                    try:
                        document = document_of(line)
                    except (ValueError, RecursionError) as error:
                        if line.endswith(b"\n"):
                            quality.bad(path, number, f"not JSON: {explain(error)}")
                        else:
                            quality.lines -= 1  # still being written
                    else:
                        self._add_document(document, path, number)
                here = raw.tell()
                self._on_bytes(here - position)
                position = here

    def _add_document(self, document: Any, path: str, number: int) -> None:
        """Add the spans of one line. A malformed span is skipped; the others of the line are kept."""
        problem, left_out = "", 0
        try:
            for group in groups_of(document):
                resource, scope = self._resource(plain_text(group.resource)), scope_name(group.scope)
                for found in group.spans:
                    try:
                        self._add(span_of(as_span(found), resource, scope))
                    except MALFORMED as error:
                        problem = problem or f"a span that is not OTLP: {explain(error)}"
                        left_out += 1
        except MALFORMED as error:
            problem, left_out = f"not OTLP traces: {explain(error)}", 0
        if problem:
            self.quality.bad(path, number, problem, left_out)

    def _resource(self, described: dict[str, Any]) -> dict[str, Any]:
        key = json.dumps(described)
        known = self._resources.get(key)
        if known is None:
            known = self._resources[key] = plain_attributes(described.get("attributes"))
        return known

    def _add(self, span: Span) -> None:
        key = (span.trace_id, span.span_id)
        other = self.spans.get(key)
        if other is None:
            self.spans[key] = span
            return
        # A start record in a spool is not a duplicate of the ended span.
        self.quality.duplicates += bool(span.end_ns and other.end_ns)
        if _rank(span) > _rank(other):
            self.spans[key] = span


def _rank(span: Span) -> tuple[bool, bool, int]:
    return bool(span.end_ns), span.state == "ended", span.end_ns


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would scan all spans read so far again and again. Three times as fast."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
