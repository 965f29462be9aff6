"""Going back to the files for what the columns do not hold of a span."""

from __future__ import annotations

import itertools
import json
import struct
import tempfile
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from ray_tracing_hooks._formats.otlp_json import span_json
from ray_tracing_hooks._formats.packed import unpacked
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.columns import spans_of
from ray_tracing_hooks._spool.layout import FRAME, MAX_PAYLOAD, SUFFIX, U16

_MOST_LINES = 64
"""Spans that are asked for one after the other by their time are in a few lines at once, one of each writer."""

_MOST_FILES = 64


class Lines:
    """The lines that a table was read from, numbered through all files."""

    def __init__(self, files: Sequence[tuple[str, array[int]]]) -> None:
        """``files`` are paths with where their lines begin."""
        self._files = [(path, offsets) for path, offsets in files if len(offsets)]
        self._first = list(itertools.accumulate((len(offsets) for _, offsets in self._files), initial=0))
        self._read: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def span(self, line: int, place: int) -> dict[str, Any] | None:
        """The span that stands there, in OTLP-JSON; None where there is none any more."""
        spans = self._read.get(line)
        if spans is None:
            spans = self._read[line] = self._parsed(line)
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

    def _parsed(self, line: int) -> list[dict[str, Any]]:
        which = bisect_right(self._first, line) - 1
        path, offsets = self._files[which]
        spans: list[dict[str, Any]] = []
        try:
            file = self._opened(path)
            file.seek(offsets[line - self._first[which]])
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
