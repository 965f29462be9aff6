"""Shortens an encoded span, scope or Resource: its largest parts are left out and counted as dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ray_tracing_hooks._formats.encoded_span.tags import ResourceTag, ScopeTag, SpanTag, StatusTag
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
    return _shorten(span, most, _COUNTS, _SHORTER)


def shorten_scope(scope: bytes, most: int) -> bytes:
    """The same for an encoded scope, of which a long name or version is truncated."""
    counts = {ScopeTag.ATTRIBUTES: ScopeTag.DROPPED_ATTRIBUTES_COUNT}
    return _shorten(scope, most, counts, {ScopeTag.NAME: _text, ScopeTag.VERSION: _text})


def shorten_resource(resource: bytes, most: int) -> bytes:
    """The same for an encoded Resource."""
    return _shorten(resource, most, {ResourceTag.ATTRIBUTES: ResourceTag.DROPPED_ATTRIBUTES_COUNT}, {})


def _shorten(
    message: bytes, most: int, counts: Mapping[int, int], shorter_of: Mapping[int, Callable[[bytes], bytes]]
) -> bytes:
    found = fields(message)
    excess = len(message) - most
    dropped = dict.fromkeys(counts.values(), 0)
    removed = set()
    # Leave room for the counts and for longer length fields.
    excess += 64
    for index in sorted(range(len(found)), key=lambda index: _size(found[index][1]), reverse=True):
        tag, value = found[index]
        if excess <= 0:
            break
        if tag in counts:
            removed.add(index)
            dropped[counts[tag]] += 1
            excess -= _size(value)
        elif tag in shorter_of:
            shorter = shorter_of[tag](value)
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
