"""Spans of Ray as the SDK has them, for span processors of others."""

from __future__ import annotations

import struct
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.span import TraceState

from ray_tracing_hooks._formats.wire import fields

_double = struct.Struct("<d").unpack


def decode(encoded: bytes, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    """The ended span of these bytes. Raises FormatError if they are none."""
    trace_id = span_id = parent_id = start = end = flags = kind = 0
    name = state = ""
    attributes: dict[str, Any] = {}
    events: list[Event] = []
    links: list[trace.Link] = []
    status = trace.Status()
    for tag, value in fields(encoded):
        if tag == 0x0A:
            trace_id = int.from_bytes(value, "big")
        elif tag == 0x12:
            span_id = int.from_bytes(value, "big")
        elif tag == 0x1A:
            state = value.decode("utf-8", "replace")
        elif tag == 0x22:
            parent_id = int.from_bytes(value, "big")
        elif tag == 0x2A:
            name = value.decode("utf-8", "replace")
        elif tag == 0x30:
            kind = value
        elif tag == 0x39:
            start = int.from_bytes(value, "little")
        elif tag == 0x41:
            end = int.from_bytes(value, "little")
        elif tag == 0x4A:
            _key_value(value, attributes)
        elif tag == 0x5A:
            events.append(_event(value))
        elif tag == 0x6A:
            links.append(_link(value))
        elif tag == 0x7A:
            status = _status(value)
        elif tag == 0x85:
            flags = int.from_bytes(value, "little")
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    trace_state = TraceState.from_header([state]) if state else None
    parent = None
    if parent_id:
        parent = trace.SpanContext(trace_id, parent_id, bool(flags & 0x200), sampled, trace_state)
    return ReadableSpan(
        name=name,
        context=trace.SpanContext(trace_id, span_id, is_remote=False, trace_flags=sampled, trace_state=trace_state),
        parent=parent,
        resource=resource,
        attributes=attributes,
        events=events,
        links=links,
        kind=trace.SpanKind(max(kind - 1, 0)),
        status=status,
        start_time=start,
        end_time=end,
        instrumentation_scope=scope,
    )


def _key_value(encoded: bytes, into: dict[str, Any]) -> None:
    key, value = "", None
    for tag, part in fields(encoded):
        if tag == 0x0A:
            key = part.decode("utf-8", "replace")
        elif tag == 0x12:
            value = _any_value(part)
    into[key] = value


def _any_value(encoded: bytes) -> Any:
    value: Any = None
    for tag, part in fields(encoded):
        if tag == 0x0A:
            value = part.decode("utf-8", "replace")
        elif tag == 0x10:
            value = bool(part)
        elif tag == 0x18:
            value = part - (1 << 64) if part >> 63 else part
        elif tag == 0x21:
            value = _double(part)[0]
        elif tag == 0x2A:
            value = tuple(_any_value(item) for item_tag, item in fields(part) if item_tag == 0x0A)
        elif tag == 0x32:
            value = {}
            for item_tag, item in fields(part):
                if item_tag == 0x0A:
                    _key_value(item, value)
        elif tag == 0x3A:
            value = part
    return value


def _event(encoded: bytes) -> Event:
    name, time, attributes = "", 0, dict[str, Any]()
    for tag, part in fields(encoded):
        if tag == 0x09:
            time = int.from_bytes(part, "little")
        elif tag == 0x12:
            name = part.decode("utf-8", "replace")
        elif tag == 0x1A:
            _key_value(part, attributes)
    return Event(name, attributes, time)


def _link(encoded: bytes) -> trace.Link:
    trace_id = span_id = flags = 0
    state, attributes = "", dict[str, Any]()
    for tag, part in fields(encoded):
        if tag == 0x0A:
            trace_id = int.from_bytes(part, "big")
        elif tag == 0x12:
            span_id = int.from_bytes(part, "big")
        elif tag == 0x1A:
            state = part.decode("utf-8", "replace")
        elif tag == 0x22:
            _key_value(part, attributes)
        elif tag == 0x35:
            flags = int.from_bytes(part, "little")
    context = trace.SpanContext(
        trace_id,
        span_id,
        is_remote=bool(flags & 0x200),
        trace_flags=trace.TraceFlags(flags & 0xFF),
        trace_state=TraceState.from_header([state]) if state else None,
    )
    return trace.Link(context, attributes)


def _status(encoded: bytes) -> trace.Status:
    code, message = 0, None
    for tag, part in fields(encoded):
        if tag == 0x12:
            message = part.decode("utf-8", "replace")
        elif tag == 0x18:
            code = part
    status = trace.StatusCode(code) if code in {0, 1, 2} else trace.StatusCode.UNSET
    return trace.Status(status, message if status is trace.StatusCode.ERROR else None)
