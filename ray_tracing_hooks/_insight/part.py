"""Reading a part of a file of OTLP-JSON lines into columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from ray_tracing_hooks._formats.packed import unpacked
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.columns import Columns, Part
from ray_tracing_hooks._insight.own_lines import add_line
from ray_tracing_hooks._insight.source import spans_of

_BLOCK = 1 << 20


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
            problem = add_line(columns, line, offset)
            if problem is not None:
                if problem:
                    quality.bad(part.path, number, problem)
                continue
            try:
                document = json.loads(line)
            except (ValueError, RecursionError) as error:
                if line.endswith(b"\n"):
                    quality.bad(part.path, number, f"not JSON: {reading.explain(error)}")
                else:
                    quality.lines -= 1  # still being written
            else:
                _add_document(columns, document, offset, part.path, number)
    return columns


def _add_document(columns: Columns, document: Any, offset: int, path: str, number: int) -> None:
    columns.origins.begin(offset, len(columns))
    problem = ""
    try:
        seen: dict[str, Any] | None = None
        index = 0
        for place, (described, resource, scope) in enumerate(spans_of(document)):
            if resource is not seen:
                seen, index = resource, columns.resource_index(resource)
            try:
                columns.add(described, index, columns.scopes.setdefault(scope, len(columns.scopes)))
            except reading.MALFORMED as error:
                problem = problem or f"a span that is not OTLP: {reading.explain(error)}"
                columns.origins.begin(offset, len(columns), place + 1)
    except reading.MALFORMED as error:
        problem = f"not OTLP traces: {reading.explain(error)}"
    if problem:
        columns.quality.bad(path, number, problem)


def _lines(part: Part, raw: BinaryIO) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and text of the lines that begin in the part, without empty ones; None for one that is too long.

    The number counts from the beginning of the part.
    """
    file = unpacked(part.path, raw) if part.path.endswith(".gz") else _Plain(raw)
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


class _Plain:
    """The lines of a file that is not packed. Python's own files look at each byte for their ends, which takes long."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._held = b""
        self._at = 0

    def seek(self, offset: int) -> None:
        self._raw.seek(offset)
        self._held, self._at = b"", 0

    def readline(self, most: int) -> bytes:
        """The next line, or so many bytes of it; what there is of it at the end of the file."""
        end = self._held.find(b"\n", self._at) + 1
        while not end and len(self._held) - self._at < most and (more := self._raw.read(_BLOCK)):
            looked_at = len(self._held) - self._at
            self._held, self._at = self._held[self._at :] + more, 0
            end = self._held.find(b"\n", looked_at) + 1
        line = self._held[self._at : min(end or len(self._held), self._at + most)]
        self._at += len(line)
        return line
