"""Packs what the page holds: columns of integers, and the details of spans in chunks that a browser unpacks one by one.

A column is split into byte planes: first the lowest byte of every number, then the next one, as many as the greatest
number needs. The numbers of a column are similar, so the upper planes are nearly constant and cost little after gzip,
and neither side needs a loop over each number.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import sub
from typing import Any

from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.redaction import Redaction

_LEVEL = 6
_LENGTH = struct.Struct("<I")
_MOST = (1 << 64) - 1


def packed(columns: Mapping[str, Iterable[int]]) -> bytes:
    """The columns in one block: a JSON header with the position of each, and their planes. Numbers must be >= 0."""
    header = []
    planes: list[bytes] = []
    for name, numbers in columns.items():
        # An array would take eight bytes for each byte.
        given = list(numbers) if isinstance(numbers, (bytearray, Iterator)) else numbers
        try:
            column = array("Q", given)
        except OverflowError:  # a sum of times of damaged spans
            column = array("Q", [min(each, _MOST) for each in given])
        width = (max(column, default=0).bit_length() + 7) // 8
        header.append([name, len(column), width])
        raw = column.tobytes()
        planes += [raw[place::8] for place in range(width)]
    head = json.dumps(header).encode()
    return _LENGTH.pack(len(head)) + head + b"".join(planes)


def differences(ascending: array[int]) -> array[int]:
    """The difference of each number to the previous one; 0 for the first."""
    found = array("q", map(sub, ascending[1:], ascending))
    found.insert(0, 0)
    return found if ascending else array("q")


def zigzag(number: int) -> int:
    """The number as a non-negative one: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def text(block: bytes) -> bytes:
    """The block as written to the page: compressed, and in characters that cannot end a script element."""
    return base64.b64encode(gzip.compress(block, _LEVEL, mtime=0))


def json_text(described: Any) -> bytes:
    """The same for a JSON value. A browser rounds durations above a hundred days, by up to a microsecond."""
    return plain_json_text(plain(described, is_exact=False))


def plain_json_text(described: Any) -> bytes:
    """The same for a value that :func:`plain` has converted."""
    return text(json.dumps(described, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode())


def plain(value: Any, *, is_exact: bool = True) -> Any:
    """The value as JSON can represent it. With ``is_exact``, numbers that JavaScript cannot hold become text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if not is_exact or -(1 << 53) < value < 1 << 53 else str(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, is_exact=is_exact) for key, item in value.items()}
    if isinstance(value, (list, tuple, array)):
        return [plain(item, is_exact=is_exact) for item in value]
    return str(value)


CHUNK = 256
"""Spans per chunk: few enough to unpack in a few milliseconds, and enough to compress well."""

LONGEST_NAME = 500
"""The most characters of a name in the page."""

_LONGEST = 16 * 1024
"""The most characters of a text. Longer texts are truncated, with a note of their length."""


class Links:
    """The targets of links; the lookup is built when the first link is seen."""

    def __init__(self, table: Table, rows: Sequence[int]) -> None:
        self._table, self._rows = table, rows
        self._numbers: dict[int, int] | None = None

    def row(self, trace_id: str, span_id: str) -> int:
        """The number of a span in the page, -1 if the page does not show it."""
        if self._numbers is None:
            self._numbers = {self._table.span_id[row]: number for number, row in enumerate(self._rows)}
        number = self._numbers.get(int(span_id, 16), -1) if span_id else -1
        return number if number >= 0 and self._table.trace_id_of(self._rows[number]) == trace_id else -1


def chunks(
    table: Table,
    rows: Sequence[int],
    row_of: Callable[[str, str], int],
    redaction: Redaction,
    on_spans: Callable[[int], None],
) -> Iterator[bytes]:
    """The spans of these rows as lines of the page. ``row_of`` works like :meth:`Links.row`."""
    for begin in range(0, len(rows), CHUNK):
        part = rows[begin : begin + CHUNK]
        shapes: dict[tuple[str, ...], int] = {}
        spans = [described(table, row, shapes, row_of, redaction) for row in part]
        yield plain_json_text({"shapes": list(shapes), "spans": spans})
        on_spans(len(part))


def described(
    table: Table, row: int, shapes: dict[tuple[str, ...], int], row_of: Callable[[str, str], int], redaction: Redaction
) -> list[Any]:
    """A span as stored in a chunk. The keys of its attributes are added to ``shapes``."""
    span: Span = table.span(row)
    # Every value is converted here to one that JSON can represent.
    attributes = _shown(redaction, span.attributes)
    found: list[Any] = [
        span.span_id,
        shapes.setdefault(tuple(attributes), len(shapes)),
        list(attributes.values()),
        truncated(redaction.message(span.status_message)),
        span.scope,
        [
            [truncated(event.name), plain(event.time_ns - table.start[0]), _shown(redaction, event.attributes)]
            for event in span.events
        ]
        if redaction.attributes
        else [],
        [
            [link.trace_id, link.span_id, row_of(link.trace_id, link.span_id), _shown(redaction, link.attributes)]
            for link in span.links
        ],
        span.parent_id if table.parent[row] < 0 else "",
    ]
    while not found[-1] and len(found) > 3:
        found.pop()
    return found


def truncated(text: str, most: int = _LONGEST) -> str:
    """The text, or its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _shown(redaction: Redaction, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes, redacted, converted for JSON, and truncated to what a page can hold."""
    # Nearly all values are short strings, which need no function call each.
    return {
        key if len(key) <= _LONGEST else truncated(key): value
        if type(value) is str and len(value) <= _LONGEST
        else _cut(value)
        for key, value in redaction.shown(attributes).items()
    }


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return truncated(value)
    if isinstance(value, dict):
        return {truncated(key): _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value[:1000]] if isinstance(value, list) else plain(value)
