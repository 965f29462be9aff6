"""Encoded spans as spans of the SDK, for other span processors and exporters."""

from __future__ import annotations

import contextlib

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.span import TraceState

from ray_tracing_hooks._formats.encoded_span import decode as plain
from ray_tracing_hooks._formats.protobuf import FormatError


def decode(encoded: bytes, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    """Decode an ended span. Raises FormatError if it is malformed."""
    span = plain.decode_span(encoded)
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    state = _trace_state(span.trace_state)
    trace_id = int.from_bytes(span.trace_id, "big")
    parent = None
    if any(span.parent_span_id):
        parent_id = int.from_bytes(span.parent_span_id, "big")
        parent = trace.SpanContext(trace_id, parent_id, bool(span.flags & 0x200), sampled, state)
    return ReadableSpan(
        name=span.name,
        context=trace.SpanContext(
            trace_id, int.from_bytes(span.span_id, "big"), is_remote=False, trace_flags=sampled, trace_state=state
        ),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        events=[Event(event.name, event.attributes, event.time_ns) for event in span.events],
        links=[_link(link) for link in span.links],
        kind=trace.SpanKind(max(span.kind - 1, 0)) if span.kind <= 5 else trace.SpanKind.INTERNAL,
        status=_status(span),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )


def resource(encoded: bytes) -> Resource:
    """Decode a Resource; a malformed one counts as empty."""
    with contextlib.suppress(FormatError):
        return Resource(plain.decode_resource(encoded))
    return Resource({})


def scope(encoded: bytes) -> InstrumentationScope:
    """Decode a scope; a malformed one counts as empty."""
    found = plain.Scope("", "", {})
    with contextlib.suppress(FormatError):
        found = plain.decode_scope(encoded)
    return InstrumentationScope(found.name, found.version or None, None, found.attributes or None)


def _link(link: plain.Link) -> trace.Link:
    context = trace.SpanContext(
        int.from_bytes(link.trace_id, "big"),
        int.from_bytes(link.span_id, "big"),
        is_remote=bool(link.flags & 0x200),
        trace_flags=trace.TraceFlags(link.flags & 0xFF),
        trace_state=_trace_state(link.trace_state),
    )
    return trace.Link(context, link.attributes)


def _status(span: plain.Span) -> trace.Status:
    code = trace.StatusCode(span.status_code) if span.status_code in {0, 1, 2} else trace.StatusCode.UNSET
    return trace.Status(code, (span.status_message or None) if code is trace.StatusCode.ERROR else None)


def _trace_state(header: str) -> TraceState | None:
    return TraceState.from_header([header]) if header else None
