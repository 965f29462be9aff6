"""Encodes spans of the SDK, which users and libraries make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record.span import message_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


def begun(span: ReadableSpan) -> bytes:
    """A span that has begun: everything known so far, without an end."""
    return _begun(span, encode.attributes(span.attributes))


def _begun(span: ReadableSpan, attributes: bytes) -> bytes:
    context = span.get_span_context()
    name: object = span.name  # of any type that the user's program passes
    assert context is not None
    out = encode.before_id(context.trace_id.to_bytes(16, "big")) + context.span_id.to_bytes(8, "big")
    state = context.trace_state.to_header() if context.trace_state else ""
    if state:
        out += encode.trace_state(state)
    parent = span.parent
    flags = encode.FLAGS_LOCAL_PARENT
    if parent is not None:
        out += encode.BEFORE_PARENT_ID + parent.span_id.to_bytes(8, "big")
        if parent.is_remote:
            flags = encode.FLAGS_REMOTE_PARENT
    return (
        out
        + encode.name_and_kind(name if isinstance(name, str) else message_of(name), span.kind.value + 1)
        + encode.start_time(_moment(span.start_time))
        + attributes
        + flags
    )


def bare(span: ReadableSpan) -> bytes:
    """A span that has ended, without attributes, events and links: these take no lock of the SDK."""
    return b"".join((_begun(span, b""), _end(span), _status(span)))


def ended(span: ReadableSpan) -> bytes:
    """A span that has ended."""
    return b"".join(
        (
            begun(span),
            _end(span),
            encode.dropped_attributes(span.dropped_attributes),
            *map(_event, span.events),
            encode.dropped_events(span.dropped_events),
            *map(_link, span.links),
            encode.dropped_links(span.dropped_links),
            _status(span),
        )
    )


def _end(span: ReadableSpan) -> bytes:
    return encode.end_time(_moment(span.end_time or span.start_time))


def _status(span: ReadableSpan) -> bytes:
    return encode.status(span.status.status_code.value, span.status.description)


def _moment(moment: Any) -> int:
    moment = moment or 0
    return moment if type(moment) is int and 0 <= moment < 1 << 64 else encode.nanoseconds(moment)


def _event(event: Any) -> bytes:
    return encode.event(event.name, encode.nanoseconds(event.timestamp), event.attributes, _dropped(event.attributes))


def _link(link: Any) -> bytes:
    context = link.context
    return encode.link(
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        context.trace_state.to_header() if context.trace_state else "",
        link.attributes,
        remote=context.is_remote,
        dropped=_dropped(link.attributes),
    )


def _dropped(attributes: Any) -> int:
    # BoundedAttributes of the SDK counts what it dropped; a plain mapping drops nothing.
    return getattr(attributes, "dropped", 0) or 0
