"""The rest of what is known of spans, for the page: in chunks that a browser unpacks one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ray_tracing_hooks._insight.model import Span
from ray_tracing_hooks._insight.page.pack import json_text
from ray_tracing_hooks._insight.table import Table

CHUNK = 256
"""Spans in a chunk: unpacked in a few milliseconds, and enough alike to compress well."""

_LONGEST = 16 * 1024
"""Characters of a text. What is longer is cut, and says so."""

HIDDEN = "***"
"""What stands for a value that is redacted."""


class Redaction:
    """What of the attributes may stand in a page that is passed on."""

    def __init__(self, *, attributes: bool = True, redact: Sequence[str] = ()) -> None:
        """No attribute at all without ``attributes``, no value of those whose key fits a pattern of ``redact``."""
        self.attributes = attributes
        self._patterns = [pattern.lower() for pattern in redact]
        self._known: dict[str, bool] = {}

    def hides(self, key: str) -> bool:
        """Whether the value is not to be shown. Patterns hold for keys without regard to case."""
        if not self._patterns:
            return False
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = any(fnmatchcase(key.lower(), pattern) for pattern in self._patterns)
        return found

    def shown(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes as they may be shown."""
        if not self.attributes:
            return {}
        return {shortened(key): HIDDEN if self.hides(key) else _shown(value, self) for key, value in attributes.items()}

    def message(self, text: str) -> str:
        """The text of an error, which says what ``exception.message`` does."""
        if not self.attributes or not text:
            return ""
        return HIDDEN if self.hides("exception.message") else shortened(text)


class Links:
    """What links point to, looked for when the first link is seen."""

    def __init__(self, table: Table, rows: Sequence[int]) -> None:
        self._table, self._rows = table, rows
        self._numbers: dict[int, int] | None = None

    def row(self, trace_id: str, span_id: str) -> int:
        """The number in the page of a span, -1 where it does not show it."""
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
    """The spans of these rows as lines of the page. ``row_of`` is as :meth:`Links.row`."""
    for begin in range(0, len(rows), CHUNK):
        part = rows[begin : begin + CHUNK]
        shapes: dict[tuple[str, ...], int] = {}
        described = [_described(table, row, shapes, row_of, redaction) for row in part]
        yield json_text({"shapes": list(shapes), "spans": described})
        on_spans(len(part))


def _described(
    table: Table, row: int, shapes: dict[tuple[str, ...], int], row_of: Callable[[str, str], int], redaction: Redaction
) -> list[Any]:
    span: Span = table.span(row)
    attributes = redaction.shown(span.attributes)
    described: list[Any] = [
        span.span_id,
        shapes.setdefault(tuple(attributes), len(shapes)),
        list(attributes.values()),
        redaction.message(span.status_message),
        span.scope,
        [
            [shortened(event.name), event.time_ns - table.start[0], redaction.shown(event.attributes)]
            for event in span.events
        ]
        if redaction.attributes
        else [],
        [
            [link.trace_id, link.span_id, row_of(link.trace_id, link.span_id), redaction.shown(link.attributes)]
            for link in span.links
        ],
        span.parent_id if table.parent[row] < 0 else "",
    ]
    while not described[-1] and len(described) > 3:
        described.pop()
    return described


def shortened(text: str, most: int = _LONGEST) -> str:
    """The text, or its beginning and how long it is."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _shown(value: Any, redaction: Redaction) -> Any:
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, dict):
        return redaction.shown(value)
    if isinstance(value, list):
        return [_shown(item, redaction) for item in value[:1000]]
    return value
