"""SkyWalking's protocol 3, of 8.0 and newer: ``language-agent/Tracing.proto`` and ``management/Management.proto``.

A collection of segments is one message, as JSON an array. JSON is that of protobuf: enums by name, 64-bit integers as
texts, zeros left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ray_tracing_hooks._formats.protobuf import field, utf8, varint
from ray_tracing_hooks._formats.skywalking.headers import Identity
from ray_tracing_hooks._formats.skywalking.segments import Log, Pair, Segment, SegmentReference, SegmentSpan

_TYPES = ("Entry", "Exit", "Local")
_LAYERS = ("Unknown", "Database", "RPCFramework", "Http", "MQ", "Cache", "FAAS")
_ENUMS = {"spanType": _TYPES, "spanLayer": _LAYERS, "refType": ("CrossProcess", "CrossThread")}
_INT64 = frozenset({"startTime", "endTime", "time"})

Members = Sequence[tuple[int, str, Any]]
"""A message: of each field the tag, the name in JSON, and the value: a number, a text or a list of messages."""


def segment(found: Segment) -> Members:
    """A ``SegmentObject``."""
    return (
        (0x0A, "traceId", found.trace_id),
        (0x12, "traceSegmentId", found.segment_id),
        (0x1A, "spans", [_span(span) for span in found.spans]),
        (0x22, "service", found.identity.service),
        (0x2A, "serviceInstance", found.identity.instance),
    )


def instance_properties(identity: Identity, properties: Sequence[Pair]) -> Members:
    """An ``InstanceProperties``."""
    return (*ping(identity), (0x1A, "properties", [pair(*each) for each in properties]))


def ping(identity: Identity) -> Members:
    """An ``InstancePingPkg``."""
    return (0x0A, "service", identity.service), (0x12, "serviceInstance", identity.instance)


def _span(span: SegmentSpan) -> Members:
    return (
        (0x08, "spanId", span.number),
        (0x10, "parentSpanId", span.parent),
        (0x18, "startTime", span.start_ms),
        (0x20, "endTime", span.end_ms),
        (0x2A, "refs", [_reference(reference) for reference in span.references]),
        (0x32, "operationName", span.name),
        (0x3A, "peer", span.peer),
        (0x40, "spanType", span.type),
        (0x48, "spanLayer", span.layer),
        (0x50, "componentId", span.component),
        (0x58, "isError", span.is_error),
        (0x62, "tags", [pair(*tag) for tag in span.tags]),
        (0x6A, "logs", [log(each) for each in span.logs]),
        (0x70, "skipAnalysis", span.skips_analysis),
    )


def _reference(reference: SegmentReference) -> Members:
    to = reference.to
    return (
        (0x08, "refType", reference.type),
        (0x12, "traceId", to.trace_id),
        (0x1A, "parentTraceSegmentId", to.segment_id),
        (0x20, "parentSpanId", to.span),
        (0x2A, "parentService", to.service),
        (0x32, "parentServiceInstance", to.instance),
        (0x3A, "parentEndpoint", to.endpoint),
        (0x42, "networkAddressUsedAtPeer", to.address),
    )


def log(found: Log) -> Members:
    """A ``Log``, the same in protocol 2."""
    return (0x08, "time", found.time_ms), (0x12, "data", [pair(*each) for each in found.pairs])


def pair(key: str, value: str) -> Members:
    """A ``KeyStringValuePair``, the same in protocol 2."""
    return (0x0A, "key", key), (0x12, "value", value)


def encoded(message: Members) -> bytes:
    """A message in protobuf. Fields that are 0 or empty are not in it."""
    found = []
    for tag, _, value in message:
        if not value:
            continue
        if isinstance(value, str):
            found.append(field(tag, utf8(value)))
        elif isinstance(value, list):
            found += [field(tag, encoded(each)) for each in value]
        else:
            found.append(number(tag, value))
    return b"".join(found)


def text(tag: int, value: str) -> bytes:
    """A text field; nothing for an empty text."""
    return field(tag, utf8(value)) if value else b""


def number(tag: int, value: int) -> bytes:
    """An integer field; nothing for 0."""
    return bytes((tag,)) + varint(value & 0xFFFF_FFFF_FFFF_FFFF) if value else b""


def collection(segments: Iterable[bytes]) -> bytes:
    """A ``SegmentCollection`` of encoded segments."""
    return b"".join([field(0x0A, each) for each in segments])


def as_json(message: Members) -> bytes:
    """A message in JSON."""
    return json.dumps(_described(message), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _described(message: Members) -> dict[str, Any]:
    return {name: _value(name, value) for _, name, value in message if value}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_described(each) for each in value]
    if name in _ENUMS:
        return _ENUMS[name][value]
    return str(value) if name in _INT64 else value


def collection_json(segments: Iterable[bytes]) -> bytes:
    """The segments as the array that ``/v3/segments`` takes."""
    return b"[" + b",".join(segments) + b"]"
