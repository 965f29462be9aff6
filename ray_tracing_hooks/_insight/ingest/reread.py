"""Reads a span again from its file, to get what the columns do not hold."""

from __future__ import annotations

import struct
import tempfile
from bisect import bisect_right
from collections import OrderedDict
from typing import Any, BinaryIO, cast

from msgspec import MsgspecError

from ray_tracing_hooks._formats.otlp_json_read import MALFORMED, MAX_LINE, unpacked, whole
from ray_tracing_hooks._insight.ingest.files import PARQUET, is_segment
from ray_tracing_hooks._insight.ingest.otlp_json import (
    document_of,
    groups_of,
    plain_attributes,
    plain_text,
    span_of,
    span_of_text,
)
from ray_tracing_hooks._insight.ingest.parquet import Groups
from ray_tracing_hooks._insight.ingest.spool import span_at
from ray_tracing_hooks._insight.model.columns import Origins
from ray_tracing_hooks._insight.model.span import Span

_MOST_LINES = 64
"""Spans requested in order of time come from a few lines at a time, one per writer."""

_MOST_FILES = 64


class Lines:
    """The lines that a table was read from. Spans are numbered across all files, in the order they were read."""

    def __init__(self) -> None:
        self._files: list[tuple[str, Origins]] = []
        self._first: list[int] = []
        self._read: OrderedDict[tuple[int, int], list[Any]] = OrderedDict()
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()
        self._groups = Groups()

    def add(self, path: str, origins: Origins, first: int) -> None:
        """Add a part of a file. Its spans are numbered from ``first``."""
        self._files.append((path, origins))
        self._first.append(first)

    def place(self, number: int) -> tuple[str, int, int]:
        """The file of the span with this number, the offset of its line there, -1 for none, and its index in that."""
        part = bisect_right(self._first, number) - 1
        path, origins = self._files[part]
        return path, *origins.of(number - self._first[part])

    def span(self, number: int, resource: dict[str, Any], scope: str) -> Span | None:
        """The span with this number, given its resource and scope; None if it no longer exists.

        If the file has changed, this may be a different span.
        """
        part = bisect_right(self._first, number) - 1
        path, offset, place = self.place(number)
        if offset < 0:
            return None
        try:
            if is_segment(path):
                return span_of(span_of_text(span_at(self._opened(path), offset)), resource, scope)
            if path.endswith(PARQUET):
                return self._groups.span(path, offset, place, resource, scope)
            spans = self._line(part, offset)
            return _with_scope(spans[place], resource, scope) if place < len(spans) else None
        except (OSError, EOFError, struct.error, MsgspecError, *MALFORMED):
            return None  # removed or changed since it was read

    def close(self) -> None:
        """Close all files and drop the cached lines. Files are opened again when they are needed."""
        self._read.clear()
        self._groups.close()
        while self._open:
            self._open.popitem()[1].close()

    def __del__(self) -> None:
        self.close()

    def _line(self, part: int, offset: int) -> list[Any]:
        """The spans of a line, each with its scope."""
        spans = self._read.get((part, offset))
        if spans is None:
            file = self._opened(self._files[part][0])
            file.seek(offset)
            line = whole(file.readline(MAX_LINE), file.readline)
            spans = [(span, group.scope) for group in groups_of(document_of(line)) for span in group.spans]
            self._read[part, offset] = spans
            if len(self._read) > _MOST_LINES:
                self._read.popitem(last=False)
        else:
            self._read.move_to_end((part, offset))
        return spans

    def _opened(self, path: str) -> BinaryIO:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = _seekable(path)
            if len(self._open) > _MOST_FILES:
                self._open.popitem(last=False)[1].close()
        return file


def _with_scope(written_in: tuple[Any, Any], resource: dict[str, Any], scope: str) -> Span:
    """The span of a line, with all of its scope. Raises one of ``MALFORMED``."""
    written, its_scope = written_in
    span, described = span_of(written, resource, scope), plain_text(its_scope)
    span.scope_version = str(described.get("version") or "")
    span.scope_attributes = plain_attributes(described.get("attributes"))
    return span


def _seekable(path: str) -> BinaryIO:
    file = open(path, "rb")  # noqa: SIM115  kept open
    if not path.endswith(".gz"):
        return file
    # Seeking backwards in a compressed file would decompress it again from its beginning.
    plain = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115
    with file:
        try:
            lines = unpacked(path, file)
            while line := lines.readline(MAX_LINE):
                plain.write(line)
        except (EOFError, ValueError):
            pass  # it is still being written, or damaged: nothing behind that place was read before
    return plain
