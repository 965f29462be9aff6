"""Reads a part of an OTLP-JSON file into columns."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from msgspec import Raw

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp_json_read import MALFORMED, MAX_LINE, unpacked, whole
from ray_tracing_hooks._insight.ingest.files import UNREADABLE, FilePart, reason
from ray_tracing_hooks._insight.ingest.otlp_json import (
    SpanJson,
    TracesJson,
    attributes_in,
    document_of,
    explain,
    groups_of,
    id_text,
    is_truncated,
    kind_of,
    pairs_in,
    plain_attributes,
    plain_text,
    scope_name,
    span_ids,
    start_of,
    status_code_of,
)
from ray_tracing_hooks._insight.model.columns import (
    CALL_KEYS,
    ENDED,
    LOST,
    MOST_TIME,
    Columns,
    Row,
    as_byte,
    site_pairs,
    time_of,
)

_BLOCK = 1 << 18
"""Bytes. Lines are long, and with the usual buffer of 8 kB finding their ends takes twice as long."""

_PAIR, _TASK = b'{"key":"', b'task_id","value"'
"""This package writes the attributes that many calls share first. The task id is the first one that differs."""

_NO_ID = "0" * 16


def read_part(part: FilePart) -> Columns:
    """The spans of the lines that begin in this part of an OTLP-JSON file, up to where it can be read.

    Raises OSError if the file cannot be opened.
    """
    columns = Columns()
    with open(part.path, "rb", buffering=_BLOCK) as raw:
        try:
            _add_lines(columns, part, raw)
        except UNREADABLE as error:
            columns.quality.incomplete(part.path, columns.quality.last_line, reason(error))
    return columns


def _add_lines(columns: Columns, part: FilePart, raw: BinaryIO) -> None:
    """Add the spans of the lines. Raises one of ``UNREADABLE`` at the first that cannot be read from the file."""
    quality = columns.quality
    adder = _Adder(columns)
    for number, offset, line in lines_in(part, raw):
        quality.lines += 1
        quality.last_line = number
        if line is None:
            quality.bad(part.path, number, f"the line is longer than {MAX_LINE >> 20} MiB")
            continue
        try:
            document = document_of(line)
        except TypeError as error:
            quality.bad(part.path, number, f"not OTLP traces: {error}")
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                quality.bad(part.path, number, f"not JSON: {explain(error)}")
            else:
                quality.lines -= 1  # still being written
        else:
            problem, spans = adder.add(document, offset)
            if problem:
                quality.bad(part.path, number, problem, spans)


class _Adder:
    """Adds the spans of lines to columns.

    Calls of the same function in the same process share most attributes, and so most of their text. That text is
    parsed once, and looked up from then on.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._resources: dict[bytes, int] = {}
        self._scopes: dict[bytes, int] = {}
        self._shared: dict[bytes, _Shared] = {}
        """By the text of the attributes."""

    def add(self, document: TracesJson, offset: int) -> tuple[str, int]:
        """Add the spans of the line at ``offset``.

        Returns the first problem found in it, or an empty string, and how many spans of the line were left out; 0 also
        if it cannot be read to its end.
        """
        columns, first = self._columns, len(self._columns)
        columns.origins.begin(offset, first)
        rows: list[Row] = []
        problem = ""
        place = left_out = 0
        try:
            for group in groups_of(document):
                scope = self._scope(group.scope)
                resource = -1
                heads = _heads(group.spans)
                for number, span in enumerate(group.spans):
                    place += 1
                    if resource < 0:
                        resource = self._resource(group.resource)
                    try:
                        head = heads[number] if heads else _head(span)
                        rows.append(self._row(head, span.attributes, first + len(rows), resource, scope))
                        if is_truncated(span):
                            columns.truncated.add(first + len(rows) - 1)
                    except MALFORMED as error:
                        problem = problem or f"a span that is not OTLP: {explain(error)}"
                        left_out += 1
                        columns.origins.begin(offset, first + len(rows), place)
        except MALFORMED as error:
            problem, left_out = f"not OTLP traces: {explain(error)}", 0
        columns.add(rows)
        return problem, left_out

    def _row(self, head: _Head, attributes: Raw, row: int, resource: int, scope: int) -> Row:
        """The columns of a span. Raises one of ``MALFORMED`` if its attributes are malformed."""
        columns = self._columns
        trace_id, span_id, parent_id, start, end, name, kind, status = head
        site, task, caller, submitted = self._values(attributes, row)
        trace = columns.traces.setdefault(trace_id, len(columns.traces))
        named = columns.names.setdefault(name, len(columns.names))
        # No process will end a span that a file holds without an end, so it is lost as well.
        state = LOST if not end or columns.sites[site].get(names.RAY_END_ESTIMATED) else ENDED
        where = trace, named, resource, scope, site, task, caller
        return start, end, span_id, parent_id, *where, submitted, kind, status, state

    def _values(self, attributes: Raw, row: int) -> tuple[int, int, int, int]:
        """Site, task, caller and submission time, taken from the attributes."""
        columns = self._columns
        text = bytes(attributes)
        at = text.rfind(_PAIR, 0, text.find(_TASK) + 1)
        if at > 0:
            beginning = text[:at]
            shared = self._shared.get(beginning)
            if shared is None:
                shared = self._shared[beginning] = _Shared(beginning)
            if shared.site:
                site, task, caller, submitted = columns.values_of(row, pairs_in(b"[" + text[at:]))
                index = shared.sites.get(site)
                if index is None:
                    index = shared.sites[site] = columns.site_index(shared.site + site)
                return index, task, caller, submitted
        site, task, caller, submitted = columns.values_of(row, pairs_in(text))
        return columns.site_index(site), task, caller, submitted

    def _scope(self, scope: Raw) -> int:
        columns, text = self._columns, bytes(scope)
        known = self._scopes.get(text)
        if known is None:
            name = scope_name(plain_text(scope))
            known = self._scopes[text] = columns.scopes.setdefault(name, len(columns.scopes))
        return known

    def _resource(self, resource: Raw) -> int:
        text = bytes(resource)
        known = self._resources.get(text)
        if known is None:
            attributes = plain_attributes(plain_text(resource).get("attributes"))
            known = self._resources[text] = self._columns.resource_index(attributes)
        return known


class _Shared:
    """The leading part of an attribute list that many spans have in common."""

    def __init__(self, text: bytes) -> None:
        self.site: tuple[Any, ...] = ()
        """Alternating keys and values that begin a site; empty if this text must not be shared."""
        self.sites: dict[tuple[Any, ...], int] = {}
        """The index of a site, by the rest of its keys and values."""
        try:
            # If the text parses as a list, it was split between two attributes and not within a value.
            attributes = attributes_in(text.rstrip().removesuffix(b",") + b"]")
        except MALFORMED:
            return
        if CALL_KEYS.isdisjoint(attributes):
            self.site = site_pairs(attributes.items())


_Head = tuple[str, int, int, int, int, str, int, int]
"""A span's trace id, span id, parent, start, end, name, kind and status code."""


def _head(span: SpanJson) -> _Head:
    """The head of one span. Raises one of ``MALFORMED`` if it is not a valid span."""
    trace_id, _ = span_ids(span)
    name = span.name or ""
    if not isinstance(name, str):
        raise TypeError(f"its name is {name!r:.100}")
    return (
        trace_id,
        _number(span.span_id),
        _number(span.parent_span_id or ""),
        start_of(span),
        time_of(span.end_time_unix_nano),
        name,
        as_byte(kind_of(span)),
        as_byte(status_code_of(span)),
    )


def _heads(spans: Sequence[Any]) -> Sequence[_Head]:
    """The heads of many spans at once, which is faster; empty if any of them has to be checked on its own."""
    try:
        trace_ids = [span.trace_id for span in spans]
        for trace_id in set(trace_ids):
            if id_text(trace_id, 16) != trace_id:
                return ()
        ids = _numbers([span.span_id for span in spans])
        parents = _numbers([span.parent_span_id or _NO_ID for span in spans])
        starts = list(map(int, [span.start_time_unix_nano for span in spans]))
        ends = list(map(int, [span.end_time_unix_nano for span in spans]))
        named = [span.name for span in spans]
        kinds = bytes([span.kind for span in spans])
        statuses = bytes([int(span.status.get("code") or 0) if span.status else 0 for span in spans])
    except (*MALFORMED, struct.error):
        return ()
    is_plain = min(ids) > 0 < min(starts) and min(ends) >= 0 and max(*starts, *ends) <= MOST_TIME
    if not is_plain or set(map(type, named)) != {str}:
        return ()
    return list(zip(trace_ids, ids, parents, starts, ends, named, kinds, statuses, strict=True))


def _numbers(ids: list[str]) -> tuple[int, ...]:
    """Ids as numbers. Raises one of ``MALFORMED``, or struct.error, if one is invalid."""
    if set(map(len, ids)) != {16}:
        raise ValueError("an id has the wrong length")
    return struct.unpack(f">{len(ids)}Q", bytes.fromhex("".join(ids)))


def _number(text: str) -> int:
    """An 8-byte id as a number, 0 if it is empty. Raises one of ``MALFORMED`` if it is invalid."""
    return int(id_text(text, 8) or "0", 16)


def lines_in(part: FilePart, raw: BinaryIO) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and text of the lines that begin in the part, without empty ones; None if a line is too long.

    Lines are numbered from the beginning of the part. Raises EOFError where a compressed file ends in the middle.
    """
    file = unpacked(part.path, raw)
    most = MAX_LINE
    offset = number = 0
    if part.begin:
        # A line that begins before this part and ends in it belongs to the previous part.
        file.seek(part.begin - 1)
        offset = part.begin - 1
        while line := file.readline(most):
            offset += len(line)
            if line.endswith(b"\n"):
                break
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
            text = whole(line, file.readline)
            yield number, begin, text
            if text is not line:
                offset += len(text) - len(line)
                number += text.count(b"\n", len(line))
