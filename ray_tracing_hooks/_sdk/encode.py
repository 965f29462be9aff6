"""Encoding of the SDK's spans, for those that users and libraries make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray_tracing_hooks._record import wire

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


def span_start(span: ReadableSpan) -> bytes:
    """A span that has begun: everything known so far, without end."""
    context = span.get_span_context()
    name: object = span.name  # of whatever type the user's program has given
    assert context is not None
    out = b"\x0a\x10" + context.trace_id.to_bytes(16, "big") + b"\x12\x08" + context.span_id.to_bytes(8, "big")
    state = context.trace_state.to_header() if context.trace_state else ""
    if state:
        out += wire.field(0x1A, wire.utf8(state))
    parent = span.parent
    flags = wire.FLAGS_LOCAL_PARENT
    if parent is not None:
        out += b"\x22\x08" + parent.span_id.to_bytes(8, "big")
        if parent.is_remote:
            flags = wire.FLAGS_REMOTE_PARENT
    return (
        out
        + wire.name_and_kind(name if isinstance(name, str) else str(name), span.kind.value + 1)
        + _time(0x39, span.start_time or 0)
        + wire.attributes(span.attributes)
        + flags
    )


def span(ended: ReadableSpan) -> bytes:
    """A span that has ended."""
    parts = [span_start(ended), _time(0x41, ended.end_time or ended.start_time or 0)]
    if ended.dropped_attributes:
        parts.append(b"\x50" + wire.varint(ended.dropped_attributes))
    parts.extend(_event(event) for event in ended.events)
    if ended.dropped_events:
        parts.append(b"\x60" + wire.varint(ended.dropped_events))
    parts.extend(_link(link) for link in ended.links)
    if ended.dropped_links:
        parts.append(b"\x70" + wire.varint(ended.dropped_links))
    parts.append(wire.status(ended.status.status_code.value, ended.status.description))
    return b"".join(parts)


def _time(tag: int, moment: Any) -> bytes:
    return wire.fixed64(tag, moment if type(moment) is int and 0 <= moment < 1 << 64 else wire.nanoseconds(moment))


def _event(event: Any) -> bytes:
    return wire.event(event.name, wire.nanoseconds(event.timestamp), event.attributes, _dropped(event.attributes))


def _link(link: Any) -> bytes:
    context = link.context
    return wire.link(
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        context.trace_state.to_header() if context.trace_state else "",
        link.attributes,
        0x300 if context.is_remote else 0x100,
        _dropped(link.attributes),
    )


def _dropped(attributes: Any) -> int:
    # BoundedAttributes of the SDK counts what it did not take; a plain mapping took everything.
    return getattr(attributes, "dropped", 0) or 0
