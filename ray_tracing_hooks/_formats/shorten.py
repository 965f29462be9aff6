"""Shortens an encoded span: its largest parts are left out and counted as dropped."""

from __future__ import annotations

from collections.abc import Callable

from ray_tracing_hooks._formats.encoded_span.tags import SpanTag, StatusTag
from ray_tracing_hooks._formats.protobuf import FormatError, encoded_field, field, fields, varint

_COUNTS = {
    SpanTag.ATTRIBUTES: SpanTag.DROPPED_ATTRIBUTES_COUNT,
    SpanTag.EVENTS: SpanTag.DROPPED_EVENTS_COUNT,
    SpanTag.LINKS: SpanTag.DROPPED_LINKS_COUNT,
}
"""Attributes, events and links, and the fields with the counts of dropped ones."""

_MOST_TEXT = 1024


def shorten(span: bytes, most: int) -> bytes:
    """The encoded span in at most ``most`` bytes, which must be more than a few thousand.

    Its ids, times and kind are kept; a long name or status message is truncated.
    """
    found = fields(span)
    excess = len(span) - most
    dropped = dict.fromkeys(_COUNTS.values(), 0)
    removed = set()
    # Leave room for the counts and for longer length fields.
    excess += 64
    for index in sorted(range(len(found)), key=lambda index: _size(found[index][1]), reverse=True):
        tag, value = found[index]
        if excess <= 0:
            break
        if tag in _COUNTS:
            removed.add(index)
            dropped[_COUNTS[tag]] += 1
            excess -= _size(value)
        elif tag in _SHORTER:
            shorter = _SHORTER[tag](value)
            found[index] = (tag, shorter)
            excess -= _size(value) - len(shorter)
    parts = []
    for index, (tag, value) in enumerate(found):
        if tag in dropped:
            dropped[tag] += value
        elif index not in removed:
            parts.append(encoded_field(tag, value))
    parts += [bytes((tag,)) + varint(count) for tag, count in dropped.items() if count]
    return b"".join(parts)


def _size(value: int | bytes) -> int:
    return 0 if isinstance(value, int) else len(value)


def _text(value: bytes) -> bytes:
    return value[:_MOST_TEXT].decode("utf-8", "ignore").encode()


def _status(value: bytes) -> bytes:
    try:
        parts = fields(value)
    except FormatError:
        return b""
    return b"".join(
        field(tag, _text(part)) if tag == StatusTag.MESSAGE else encoded_field(tag, part) for tag, part in parts
    )


_SHORTER: dict[int, Callable[[bytes], bytes]] = {
    SpanTag.NAME: _text,
    SpanTag.STATUS: _status,
    SpanTag.TRACE_STATE: lambda _: b"",
}
