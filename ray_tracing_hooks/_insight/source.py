"""Going back to the files for what the columns do not hold of a span."""

from __future__ import annotations

import json
import struct
import tempfile
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from ray_tracing_hooks._formats.otlp_json import span_json
from ray_tracing_hooks._formats.packed import unpacked
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._spool.layout import FRAME, MAX_PAYLOAD, SUFFIX, U16

_MOST_LINES = 64
"""Spans that are asked for one after the other by their time are in a few lines at once, one of each writer."""

_MOST_FILES = 64


class Origins:
    """Where in a file spans stand that were read one after the other: those of a line are told once."""

    def __init__(self) -> None:
        self._rows = array("I")
        self._offsets = array("q")
        self._skipped = array("I")

    def begin(self, offset: int, row: int, skipped: int = 0) -> None:
        """Tell that from ``row`` on spans are of the line, or record, at ``offset``; -1 for spans that are in none.

        ``skipped``: how many spans of the line stand before that of this row.
        """
        self._rows.append(row)
        self._offsets.append(offset)
        self._skipped.append(skipped)

    def of(self, row: int) -> tuple[int, int]:
        """Where the line of a row begins, -1 for none, and the how-manieth span of the line it is."""
        which = bisect_right(self._rows, row) - 1
        return (self._offsets[which], row - self._rows[which] + self._skipped[which]) if which >= 0 else (-1, 0)


class _Line:
    """A line that has been read: its text, or all its spans, and where the last span that was found in it ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans: list[dict[str, Any]] | None = None
        self.end = 0

    def span(self, beginning: str, place: int) -> dict[str, Any] | None:
        """The span that begins so; where none does, or with no beginning, the one at this place."""
        if self.spans is None:
            at = self.text.find(beginning, self.end) if beginning else -1
            if at < 0 and beginning:
                at = self.text.find(beginning)
            if at >= 0:
                found: dict[str, Any]
                found, self.end = _decode(self.text, at)
                return found
            self.spans = [described for described, _, _ in spans_of(json.loads(self.text))]
            self.text = ""
        return self.spans[place] if place < len(self.spans) else None


_decode = json.JSONDecoder().raw_decode


class Lines:
    """The lines that a table was read from. Their spans are numbered through all files, as they were read."""

    def __init__(self) -> None:
        self.has_duplicates = False
        """Whether a line may hold a span more than once, so that its place must tell which of them is meant."""
        self._files: list[tuple[str, Origins]] = []
        self._first: list[int] = []
        self._read: OrderedDict[tuple[int, int], _Line] = OrderedDict()
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def add(self, path: str, origins: Origins, first: int) -> None:
        """Add a part of a file, whose spans are numbered from ``first`` on."""
        self._files.append((path, origins))
        self._first.append(first)

    def span(self, number: int, trace_id: str, span_id: str) -> dict[str, Any] | None:
        """The span of this number, in OTLP-JSON; None where there is none any more.

        It may be another one where the file has changed. Most writers begin a span with its ids: where this one does,
        the others of its line are not parsed.
        """
        part = bisect_right(self._first, number) - 1
        path, origins = self._files[part]
        offset, place = origins.of(number - self._first[part])
        if offset < 0:
            return None
        try:
            if path.endswith(SUFFIX):
                file = self._opened(path)
                file.seek(offset)
                return _record(file)
            beginning = "" if self.has_duplicates else f'{{"traceId":"{trace_id}","spanId":"{span_id}",'
            return self._line(part, offset).span(beginning, place)
        except (OSError, EOFError, struct.error, *reading.MALFORMED):
            return None  # removed or changed since it was read

    def _line(self, part: int, offset: int) -> _Line:
        line = self._read.get((part, offset))
        if line is None:
            file = self._opened(self._files[part][0])
            file.seek(offset)
            line = _Line(file.readline(reading.MAX_LINE).decode("utf-8", "surrogatepass"))
            self._read[part, offset] = line
            if len(self._read) > _MOST_LINES:
                self._read.popitem(last=False)
        else:
            self._read.move_to_end((part, offset))
        return line

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def __del__(self) -> None:
        self.close()

    def _opened(self, path: str) -> BinaryIO:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = _seekable(path)
            if len(self._open) > _MOST_FILES:
                self._open.popitem(last=False)[1].close()
        return file


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


def _record(file: BinaryIO) -> dict[str, Any]:
    """The span of a segment's record."""
    length, _, _ = FRAME.unpack(file.read(FRAME.size))
    described: dict[str, Any] = json.loads(span_json(file.read(min(length, MAX_PAYLOAD))[U16.size :]))
    return described


def _seekable(path: str) -> BinaryIO:
    file = open(path, "rb")  # noqa: SIM115  kept open
    if not path.endswith(".gz"):
        return file
    # To go back in a packed file is to unpack it again from its beginning.
    plain = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115
    with file:
        try:
            lines = unpacked(path, file)
            while line := lines.readline(reading.MAX_LINE):
                plain.write(line)
        except EOFError:
            pass  # a file that is still being written
    return plain
