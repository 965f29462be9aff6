"""Jaeger's protobuf messages: ``model.proto`` and ``collector.proto`` of ``proto/api_v2`` in its IDL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ray_tracing_hooks._formats.jaeger import CHILD_OF, SAMPLED, Encoder, JaegerSpan, Process, Reference, Tag
from ray_tracing_hooks._formats.protobuf import field, pack_double, utf8, varint


def _request(process: bytes, spans: Sequence[bytes]) -> bytes:
    # PostSpansRequest: batch = 1. Batch: spans = 1, process = 2.
    return field(0x0A, b"".join([*(field(0x0A, span) for span in spans), field(0x12, process)]))


def _process(process: Process) -> bytes:
    return field(0x0A, utf8(process.service)) + _tags(0x12, process.tags)


def _span(span: JaegerSpan) -> bytes:
    references = span.links
    if any(span.parent_span_id):
        # The specification asks for the parent first.
        references = [Reference(CHILD_OF, span.trace_id, span.parent_span_id), *references]
    return b"".join(
        (
            field(0x0A, span.trace_id),
            field(0x12, span.span_id),
            field(0x1A, utf8(span.name)),
            *(field(0x22, _reference(reference)) for reference in references),
            b"\x28" + varint(SAMPLED),
            field(0x32, _time(span.start_ns)),
            field(0x3A, _time(span.duration_ns)),
            _tags(0x42, span.tags),
            *(field(0x4A, field(0x0A, _time(log.time_ns)) + _tags(0x12, log.fields)) for log in span.logs),
        )
    )


def _reference(reference: Reference) -> bytes:
    kind = b"\x18" + varint(reference.kind) if reference.kind else b""
    return field(0x0A, reference.trace_id) + field(0x12, reference.span_id) + kind


def _tags(tag: int, tags: Iterable[Tag]) -> bytes:
    return b"".join([field(tag, _key_value(key, value)) for key, value in tags])


def _key_value(key: str, value: object) -> bytes:
    # KeyValue: key = 1, v_type = 2 (STRING, BOOL, INT64, FLOAT64, BINARY), and a field from 3 on for each type.
    head = field(0x0A, utf8(key))
    if isinstance(value, str):
        return head + field(0x1A, utf8(value))
    if isinstance(value, bool):
        return head + b"\x10\x01" + (b"\x20\x01" if value else b"")
    if isinstance(value, int):
        return head + b"\x10\x02\x28" + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    if isinstance(value, float):
        return head + b"\x10\x03\x31" + pack_double(value)
    assert isinstance(value, bytes)
    return head + b"\x10\x04" + field(0x3A, value)


def _time(nanoseconds: int) -> bytes:
    """A ``Timestamp`` or a ``Duration``: seconds = 1, nanos = 2."""
    seconds, nanos = divmod(nanoseconds, 1_000_000_000)
    return b"\x08" + varint(seconds) + b"\x10" + varint(nanos)


API_V2 = Encoder(_process, _span, _request)
"""``PostSpansRequest``, the request of ``jaeger.api_v2.CollectorService/PostSpans``."""
