"""Decodes OTLP messages into plain values, for conversion to other formats.

Bytes of a text that are not UTF-8 are replaced.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ray_tracing_hooks._formats.encoded_span.tags import (
    AnyValueTag,
    EventTag,
    KeyValueTag,
    LinkTag,
    ListTag,
    ResourceTag,
    ScopeTag,
    SpanTag,
    StatusTag,
)
from ray_tracing_hooks._formats.protobuf import MAX_DEPTH, FormatError, fields

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
"""Kinds of a span."""

UNSET, OK, ERROR = 0, 1, 2
"""Codes of a status."""

_ATTRIBUTES, _KEY, _VALUE, _STRING = SpanTag.ATTRIBUTES, KeyValueTag.KEY, KeyValueTag.VALUE, AnyValueTag.STRING
_double = struct.Struct("<d").unpack


class Event(NamedTuple):
    time_ns: int
    name: str
    attributes: dict[str, Any]
    dropped_attributes: int


class Link(NamedTuple):
    trace_id: bytes
    span_id: bytes
    trace_state: str
    attributes: dict[str, Any]
    dropped_attributes: int
    flags: int


class Span(NamedTuple):
    """A span. Ids have the length that was encoded; ``kind`` and the status are OTLP's numbers."""

    trace_id: bytes
    span_id: bytes
    trace_state: str
    parent_span_id: bytes
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    dropped_attributes: int
    events: list[Event]
    dropped_events: int
    links: list[Link]
    dropped_links: int
    status_code: int
    status_message: str
    flags: int


class Scope(NamedTuple):
    """An instrumentation scope."""

    name: str
    version: str
    attributes: dict[str, Any]


def decode_span(encoded: bytes) -> Span:
    """An encoded ``Span``. Raises FormatError if it is malformed."""
    attributes: dict[str, Any] = {}
    events: list[Event] = []
    links: list[Link] = []
    status: list[bytes] = []
    plain: dict[int, Any] = {}
    for tag, value in fields(encoded):
        if tag == _ATTRIBUTES:
            _key_value(value, attributes)
        elif tag == SpanTag.EVENTS:
            events.append(_event(value))
        elif tag == SpanTag.LINKS:
            links.append(_link(value))
        elif tag == SpanTag.STATUS:
            status.append(value)  # parts of a sub-message are merged
        else:
            plain[tag] = value  # the last one counts
    found = plain.get
    code, message = _status(b"".join(status))
    return Span(
        found(SpanTag.TRACE_ID, b""),
        found(SpanTag.SPAN_ID, b""),
        _text(found(SpanTag.TRACE_STATE, b"")),
        found(SpanTag.PARENT_SPAN_ID, b""),
        _text(found(SpanTag.NAME, b"")),
        found(SpanTag.KIND, 0),
        _fixed(found(SpanTag.START_TIME, b"")),
        _fixed(found(SpanTag.END_TIME, b"")),
        attributes,
        found(SpanTag.DROPPED_ATTRIBUTES_COUNT, 0),
        events,
        found(SpanTag.DROPPED_EVENTS_COUNT, 0),
        links,
        found(SpanTag.DROPPED_LINKS_COUNT, 0),
        code,
        message,
        _fixed(found(SpanTag.FLAGS, b"")),
    )


def decode_resource(encoded: bytes) -> dict[str, Any]:
    """The attributes of an encoded ``Resource``. Raises FormatError if it is malformed."""
    return _message(encoded, ResourceTag.ATTRIBUTES)[0]


def decode_attribute(encoded: bytes) -> tuple[str, Any]:
    """The key and the value of an encoded ``KeyValue``. Raises FormatError if it is malformed."""
    found: dict[str, Any] = {}
    _key_value(encoded, found)
    return found.popitem()


def decode_scope(encoded: bytes) -> Scope:
    """An encoded ``InstrumentationScope``. Raises FormatError if it is malformed."""
    attributes, found = _message(encoded, ScopeTag.ATTRIBUTES)
    return Scope(_text(found.get(ScopeTag.NAME, b"")), _text(found.get(ScopeTag.VERSION, b"")), attributes)


def _message(encoded: bytes, attributes_tag: int) -> tuple[dict[str, Any], dict[int, Any]]:
    """The attributes of a message, and the last value of each other field by its tag."""
    attributes: dict[str, Any] = {}
    plain: dict[int, Any] = {}
    for tag, value in fields(encoded):
        if tag == attributes_tag:
            _key_value(value, attributes)
        else:
            plain[tag] = value
    return attributes, plain


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _fixed(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _key_value(encoded: bytes, into: dict[str, Any], depth: int = 0) -> None:
    key, value = "", None
    for tag, part in fields(encoded):
        if tag == _KEY:
            key = _text(part)
        elif tag == _VALUE:
            value = _any_value(part, depth)
    into[key] = value


def _any_value(encoded: bytes, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise FormatError(f"an attribute's value is nested more than {MAX_DEPTH} levels deep")
    value: Any = None
    for tag, part in fields(encoded):
        if tag == _STRING:
            value = _text(part)
        elif tag == AnyValueTag.BOOL:
            value = bool(part)
        elif tag == AnyValueTag.INT:
            value = part - (1 << 64) if part >> 63 else part
        elif tag == AnyValueTag.DOUBLE:
            value = _double(part)[0]
        elif tag == AnyValueTag.ARRAY:
            value = tuple(_any_value(item, depth + 1) for item_tag, item in fields(part) if item_tag == ListTag.ITEMS)
        elif tag == AnyValueTag.KVLIST:
            value = {}
            for item_tag, item in fields(part):
                if item_tag == ListTag.ITEMS:
                    _key_value(item, value, depth + 1)
        elif tag == AnyValueTag.BYTES:
            value = part
    return value


def _event(encoded: bytes) -> Event:
    attributes, found = _message(encoded, EventTag.ATTRIBUTES)
    time, name = _fixed(found.get(EventTag.TIME, b"")), _text(found.get(EventTag.NAME, b""))
    return Event(time, name, attributes, found.get(EventTag.DROPPED_ATTRIBUTES_COUNT, 0))


def _link(encoded: bytes) -> Link:
    attributes, found = _message(encoded, LinkTag.ATTRIBUTES)
    return Link(
        found.get(LinkTag.TRACE_ID, b""),
        found.get(LinkTag.SPAN_ID, b""),
        _text(found.get(LinkTag.TRACE_STATE, b"")),
        attributes,
        found.get(LinkTag.DROPPED_ATTRIBUTES_COUNT, 0),
        _fixed(found.get(LinkTag.FLAGS, b"")),
    )


def _status(encoded: bytes) -> tuple[int, str]:
    found = dict(fields(encoded))
    return found.get(StatusTag.CODE, UNSET), _text(found.get(StatusTag.MESSAGE, b""))
