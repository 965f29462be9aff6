"""Encoded OTLP messages taken apart into plain values, for formats that need other shapes.

The messages are those of ``opentelemetry/proto/trace/v1/trace.proto``. Text that is not UTF-8 has its wrong bytes
replaced.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ray_tracing_hooks._formats.wire import MAX_DEPTH, FormatError, fields

UNSET, OK, ERROR = 0, 1, 2
"""Codes of a status."""

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
    """A span. Ids are as long as they were encoded; ``kind`` and the status have OTLP's numbers."""

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
    """An encoded ``Span``. Raises FormatError if it is none."""
    trace_id = span_id = parent_id = b""
    start = end = flags = kind = dropped_attributes = dropped_events = dropped_links = 0
    name = state = ""
    attributes: dict[str, Any] = {}
    events: list[Event] = []
    links: list[Link] = []
    status: list[bytes] = []
    for tag, value in fields(encoded):
        if tag == 0x0A:
            trace_id = value
        elif tag == 0x12:
            span_id = value
        elif tag == 0x1A:
            state = _text(value)
        elif tag == 0x22:
            parent_id = value
        elif tag == 0x2A:
            name = _text(value)
        elif tag == 0x30:
            kind = value
        elif tag == 0x39:
            start = _fixed(value)
        elif tag == 0x41:
            end = _fixed(value)
        elif tag == 0x4A:
            _key_value(value, attributes)
        elif tag == 0x50:
            dropped_attributes = value
        elif tag == 0x5A:
            events.append(_event(value))
        elif tag == 0x60:
            dropped_events = value
        elif tag == 0x6A:
            links.append(_link(value))
        elif tag == 0x70:
            dropped_links = value
        elif tag == 0x7A:
            status.append(value)  # parts of a sub-message are merged
        elif tag == 0x85:
            flags = _fixed(value)
    code, message = _status(b"".join(status))
    return Span(
        trace_id,
        span_id,
        state,
        parent_id,
        name,
        kind,
        start,
        end,
        attributes,
        dropped_attributes,
        events,
        dropped_events,
        links,
        dropped_links,
        code,
        message,
        flags,
    )


def decode_resource(encoded: bytes) -> dict[str, Any]:
    """The attributes of an encoded ``Resource``. Raises FormatError if it is none."""
    attributes: dict[str, Any] = {}
    for tag, value in fields(encoded):
        if tag == 0x0A:
            _key_value(value, attributes)
    return attributes


def decode_attribute(encoded: bytes) -> tuple[str, Any]:
    """The key and the value of an encoded ``KeyValue``. Raises FormatError if it is none."""
    found: dict[str, Any] = {}
    _key_value(encoded, found)
    return found.popitem()


def decode_scope(encoded: bytes) -> Scope:
    """An encoded ``InstrumentationScope``. Raises FormatError if it is none."""
    name = version = ""
    attributes: dict[str, Any] = {}
    for tag, value in fields(encoded):
        if tag == 0x0A:
            name = _text(value)
        elif tag == 0x12:
            version = _text(value)
        elif tag == 0x1A:
            _key_value(value, attributes)
    return Scope(name, version, attributes)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _fixed(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _key_value(encoded: bytes, into: dict[str, Any], depth: int = 0) -> None:
    key, value = "", None
    for tag, part in fields(encoded):
        if tag == 0x0A:
            key = _text(part)
        elif tag == 0x12:
            value = _any_value(part, depth)
    into[key] = value


def _any_value(encoded: bytes, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise FormatError(f"an attribute's value nests more than {MAX_DEPTH} deep")
    value: Any = None
    for tag, part in fields(encoded):
        if tag == 0x0A:
            value = _text(part)
        elif tag == 0x10:
            value = bool(part)
        elif tag == 0x18:
            value = part - (1 << 64) if part >> 63 else part
        elif tag == 0x21:
            value = _double(part)[0]
        elif tag == 0x2A:
            value = tuple(_any_value(item, depth + 1) for item_tag, item in fields(part) if item_tag == 0x0A)
        elif tag == 0x32:
            value = {}
            for item_tag, item in fields(part):
                if item_tag == 0x0A:
                    _key_value(item, value, depth + 1)
        elif tag == 0x3A:
            value = part
    return value


def _event(encoded: bytes) -> Event:
    name, time, dropped = "", 0, 0
    attributes: dict[str, Any] = {}
    for tag, part in fields(encoded):
        if tag == 0x09:
            time = _fixed(part)
        elif tag == 0x12:
            name = _text(part)
        elif tag == 0x1A:
            _key_value(part, attributes)
        elif tag == 0x20:
            dropped = part
    return Event(time, name, attributes, dropped)


def _link(encoded: bytes) -> Link:
    trace_id = span_id = b""
    state, flags, dropped = "", 0, 0
    attributes: dict[str, Any] = {}
    for tag, part in fields(encoded):
        if tag == 0x0A:
            trace_id = part
        elif tag == 0x12:
            span_id = part
        elif tag == 0x1A:
            state = _text(part)
        elif tag == 0x22:
            _key_value(part, attributes)
        elif tag == 0x28:
            dropped = part
        elif tag == 0x35:
            flags = _fixed(part)
    return Link(trace_id, span_id, state, attributes, dropped, flags)


def _status(encoded: bytes) -> tuple[int, str]:
    code, message = UNSET, ""
    for tag, part in fields(encoded):
        if tag == 0x12:
            message = _text(part)
        elif tag == 0x18:
            code = part
    return code, message
