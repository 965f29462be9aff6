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
_REFERENCES = ("CrossProcess", "CrossThread")


def segment(found: Segment) -> bytes:
    """A ``SegmentObject``."""
    return b"".join(
        (
            text(0x0A, found.trace_id),
            text(0x12, found.segment_id),
            *(field(0x1A, _span(span)) for span in found.spans),
            text(0x22, found.identity.service),
            text(0x2A, found.identity.instance),
        )
    )


def collection(segments: Iterable[bytes]) -> bytes:
    """A ``SegmentCollection``."""
    return b"".join([field(0x0A, each) for each in segments])


def instance_properties(identity: Identity, properties: Sequence[Pair]) -> bytes:
    """An ``InstanceProperties``."""
    return ping(identity) + b"".join([field(0x1A, pair(*each)) for each in properties])


def ping(identity: Identity) -> bytes:
    """An ``InstancePingPkg``."""
    return text(0x0A, identity.service) + text(0x12, identity.instance)


def _span(span: SegmentSpan) -> bytes:
    return b"".join(
        (
            number(0x08, span.number),
            number(0x10, span.parent),
            number(0x18, span.start_ms),
            number(0x20, span.end_ms),
            *(field(0x2A, _reference(reference)) for reference in span.references),
            text(0x32, span.name),
            text(0x3A, span.peer),
            number(0x40, span.type),
            number(0x48, span.layer),
            number(0x50, span.component),
            number(0x58, span.is_error),
            *(field(0x62, pair(*tag)) for tag in span.tags),
            *(field(0x6A, log(each)) for each in span.logs),
            number(0x70, span.skips_analysis),
        )
    )


def _reference(reference: SegmentReference) -> bytes:
    to = reference.to
    return b"".join(
        (
            number(0x08, reference.type),
            text(0x12, to.trace_id),
            text(0x1A, to.segment_id),
            number(0x20, to.span),
            text(0x2A, to.service),
            text(0x32, to.instance),
            text(0x3A, to.endpoint),
            text(0x42, to.address),
        )
    )


# The messages for tags and logs are the same in protocol 2.


def log(found: Log) -> bytes:
    """A ``Log``."""
    return number(0x08, found.time_ms) + b"".join([field(0x12, pair(*each)) for each in found.pairs])


def pair(key: str, value: str) -> bytes:
    """A ``KeyStringValuePair``."""
    return text(0x0A, key) + text(0x12, value)


def text(tag: int, value: str) -> bytes:
    """A text field; nothing for an empty text."""
    return field(tag, utf8(value)) if value else b""


def number(tag: int, value: int) -> bytes:
    """An integer field; nothing for 0."""
    return bytes((tag,)) + varint(value & 0xFFFF_FFFF_FFFF_FFFF) if value else b""


def segment_json(found: Segment) -> bytes:
    """The same ``SegmentObject`` as JSON."""
    return _json(
        {
            "traceId": found.trace_id,
            "traceSegmentId": found.segment_id,
            "spans": [_span_json(span) for span in found.spans],
            "service": found.identity.service,
            "serviceInstance": found.identity.instance,
        }
    )


def collection_json(segments: Iterable[bytes]) -> bytes:
    """The segments as the array that ``/v3/segments`` takes."""
    return b"[" + b",".join(segments) + b"]"


def instance_properties_json(identity: Identity, properties: Sequence[Pair]) -> bytes:
    """The body for ``/v3/management/reportProperties``."""
    return _json({**_identity_json(identity), "properties": _pairs_json(properties)})


def ping_json(identity: Identity) -> bytes:
    """The body for ``/v3/management/keepAlive``."""
    return _json(_identity_json(identity))


def _identity_json(identity: Identity) -> dict[str, Any]:
    return {"service": identity.service, "serviceInstance": identity.instance}


def _span_json(span: SegmentSpan) -> dict[str, Any]:
    return _without_zeros(
        {
            "spanId": span.number,
            "parentSpanId": span.parent,
            "startTime": str(span.start_ms),
            "endTime": str(span.end_ms),
            "refs": [_reference_json(reference) for reference in span.references],
            "operationName": span.name,
            "peer": span.peer,
            "spanType": span.type and _TYPES[span.type],
            "spanLayer": span.layer and _LAYERS[span.layer],
            "componentId": span.component,
            "isError": span.is_error,
            "tags": _pairs_json(span.tags),
            "logs": [{"time": str(each.time_ms), "data": _pairs_json(each.pairs)} for each in span.logs],
            "skipAnalysis": span.skips_analysis,
        }
    )


def _reference_json(reference: SegmentReference) -> dict[str, Any]:
    to = reference.to
    return _without_zeros(
        {
            "refType": reference.type and _REFERENCES[reference.type],
            "traceId": to.trace_id,
            "parentTraceSegmentId": to.segment_id,
            "parentSpanId": to.span,
            "parentService": to.service,
            "parentServiceInstance": to.instance,
            "parentEndpoint": to.endpoint,
            "networkAddressUsedAtPeer": to.address,
        }
    )


def _pairs_json(pairs: Sequence[Pair]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs]


def _without_zeros(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
