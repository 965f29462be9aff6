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


class Lines:
    """The lines that a table was read from. Their spans are numbered through all files, as they were read."""

    def __init__(self) -> None:
        self._files: list[tuple[str, Origins]] = []
        self._first: list[int] = []
        self._read: OrderedDict[tuple[int, int], list[dict[str, Any]]] = OrderedDict()
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def add(self, path: str, origins: Origins, first: int) -> None:
        """Add a part of a file, whose spans are numbered from ``first`` on."""
        self._files.append((path, origins))
        self._first.append(first)

    def span(self, number: int) -> dict[str, Any] | None:
        """The span of this number, in OTLP-JSON; None where there is none any more."""
        part = bisect_right(self._first, number) - 1
        offset, place = self._files[part][1].of(number - self._first[part])
        if offset < 0:
            return None
        line = part, offset
        spans = self._read.get(line)
        if spans is None:
            spans = self._read[line] = self._parsed(self._files[part][0], offset)
            if len(self._read) > _MOST_LINES:
                self._read.popitem(last=False)
        else:
            self._read.move_to_end(line)
        return spans[place] if place < len(spans) else None

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def __del__(self) -> None:
        self.close()

    def _parsed(self, path: str, offset: int) -> list[dict[str, Any]]:
        spans: list[dict[str, Any]] = []
        try:
            file = self._opened(path)
            file.seek(offset)
            if path.endswith(SUFFIX):
                spans.append(_record(file))
            else:
                for described, _, _ in spans_of(json.loads(file.readline(reading.MAX_LINE))):
                    spans.append(described)
        except (OSError, EOFError, struct.error, *reading.MALFORMED):
            pass  # removed or changed since it was read
        return spans

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
