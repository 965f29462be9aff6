"""The details of spans for the page, in chunks that the browser unpacks one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.page.pack import plain, plain_json_text
from ray_tracing_hooks._insight.views.redaction import Redaction

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
