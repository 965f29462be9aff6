"""Jaeger's protobuf messages, ``jaeger/api_v2/model.proto`` and ``collector.proto``."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ray_tracing_hooks._formats.jaeger import CHILD_OF, SAMPLED, JaegerSpan, Process, Reference, Tag
from ray_tracing_hooks._formats.wire import field, utf8, varint

_pack_double = struct.Struct("<d").pack


def post_spans_request(process: Process, spans: Sequence[JaegerSpan]) -> bytes:
    """A ``PostSpansRequest`` with these spans of one process."""
    # PostSpansRequest: batch = 1. Batch: spans = 1, process = 2. Process: service_name = 1, tags = 2.
    service = field(0x0A, utf8(process.service)) + _tags(0x12, process.tags)
    return field(0x0A, b"".join([*(field(0x0A, _span(span)) for span in spans), field(0x12, service)]))


def _span(span: JaegerSpan) -> bytes:
    references = list(span.links)
    if any(span.parent_span_id):
        # The parent is the first reference, as the mapping asks.
        references.insert(0, Reference(CHILD_OF, span.trace_id, span.parent_span_id))
    return (
        field(0x0A, span.trace_id)
        + field(0x12, span.span_id)
        + field(0x1A, utf8(span.name))
        + b"".join(field(0x22, _reference(reference)) for reference in references)
        + b"\x28"
        + varint(SAMPLED)
        + field(0x32, _time(span.start_ns))
        + field(0x3A, _time(span.duration_ns))
        + _tags(0x42, span.tags)
        + b"".join(field(0x4A, field(0x0A, _time(log.time_ns)) + _tags(0x12, log.fields)) for log in span.logs)
    )


def _reference(reference: Reference) -> bytes:
    kind = b"\x18" + varint(reference.kind) if reference.kind else b""
    return field(0x0A, reference.trace_id) + field(0x12, reference.span_id) + kind


def _tags(tag: int, tags: Sequence[Tag]) -> bytes:
    return b"".join(field(tag, _key_value(key, value)) for key, value in tags)


def _key_value(key: str, value: object) -> bytes:
    head = field(0x0A, utf8(key))
    if isinstance(value, bool):
        return head + b"\x10\x01" + (b"\x20\x01" if value else b"")
    if isinstance(value, int):
        return head + b"\x10\x02\x28" + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    if isinstance(value, float):
        return head + b"\x10\x03\x31" + _pack_double(value)
    if isinstance(value, bytes):
        return head + b"\x10\x04" + field(0x3A, value)
    return head + field(0x1A, utf8(str(value)))


def _time(nanoseconds: int) -> bytes:
    """A ``Timestamp`` or ``Duration``: seconds = 1, nanos = 2."""
    seconds, nanos = divmod(nanoseconds, 1_000_000_000)
    return (b"\x08" + varint(seconds) if seconds else b"") + (b"\x10" + varint(nanos) if nanos else b"")
