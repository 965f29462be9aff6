"""The messages of SkyWalking.

Protocol 3, of 8.0 and newer, is in ``language-agent/Tracing.proto`` and ``management/Management.proto``. A collection
of segments is one message, as JSON an array. JSON is that of protobuf: enums by name, 64-bit integers as texts, zeros
left out.

Protocol 2, of 6.x and 7.x, is in ``language-agent-v2/trace.proto`` and ``register/Register.proto`` of 6.6.0. Services
and instances have numbers there, which the back end gives out when they register.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ray_tracing_hooks._formats.protobuf import field, fields, utf8, varint
from ray_tracing_hooks._formats.skywalking.headers import NO_ENDPOINT, Identity
from ray_tracing_hooks._formats.skywalking.ids import three_numbers
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


# --- protocol 2 -------------------------------------------------------------------------------------------------------

_NONE = -1


def upstream_segment(found: Segment, service_id: int, instance_id: int) -> bytes:
    """An ``UpstreamSegment``, whose second part is an encoded ``SegmentObject``."""
    body = b"".join(
        (
            field(0x0A, _unique_id(found.segment_id)),
            *(field(0x12, _span_of_6(span)) for span in found.spans),
            number(0x18, service_id),
            number(0x20, instance_id),
        )
    )
    return field(0x0A, _unique_id(found.trace_id)) + field(0x12, body)


def _unique_id(text: str) -> bytes:
    parts = three_numbers(text) or (0, 0, 0)
    return field(0x0A, b"".join([varint(part & 0xFFFF_FFFF_FFFF_FFFF) for part in parts]))


def _span_of_6(span: SegmentSpan) -> bytes:
    return b"".join(
        (
            number(0x08, span.number),
            number(0x10, span.parent),
            number(0x18, span.start_ms),
            number(0x20, span.end_ms),
            *(field(0x2A, _reference_of_6(reference)) for reference in span.references),
            text(0x3A, span.name),
            text(0x4A, span.peer),
            number(0x50, span.type),
            number(0x58, span.layer),
            number(0x60, span.component),
            number(0x70, span.is_error),
            *(field(0x7A, encoded(pair(*tag))) for tag in span.tags),
            *(b"\x82\x01" + varint(len(each)) + each for each in map(encoded, map(log, span.logs))),
        )
    )


def _reference_of_6(reference: SegmentReference) -> bytes:
    to = reference.to
    return b"".join(
        (
            number(0x08, reference.type),
            field(0x12, _unique_id(to.segment_id)),
            number(0x18, to.span),
            number(0x20, to.instance_id),
            _name(0x2A, 0x30, to.address),
            number(0x38, to.entry_instance_id),
            _name(0x42, 0x48, to.entry_endpoint),
            _name(0x52, 0x58, to.parent_endpoint),
        )
    )


def _name(literal: int, id_: int, given: str) -> bytes:
    """A name as its header has it: ``#`` and a literal, or an id; nothing for an empty one."""
    if given.startswith("#"):
        return text(literal, given[1:])
    return number(id_, _NONE if given == NO_ENDPOINT else int(given)) if given else b""


# --- registration -----------------------------------------------------------------------------------------------------


def services(name: str) -> bytes:
    """A ``Services`` with one service."""
    return field(0x0A, text(0x0A, name))


def instances(service_id: int, uuid: str, time_ms: int, properties: Sequence[Pair]) -> bytes:
    """A ``ServiceInstances`` with one instance."""
    more = b"".join([field(0x2A, encoded(pair(*each))) for each in properties])
    return field(0x0A, number(0x08, service_id) + text(0x12, uuid) + number(0x18, time_ms) + more)


def ping_of_6(instance_id: int, time_ms: int, uuid: str) -> bytes:
    """A ``ServiceInstancePingPkg``."""
    return number(0x08, instance_id) + number(0x10, time_ms) + text(0x1A, uuid)


def given_id(answer: bytes, key: str) -> int:
    """The id of ``key`` in the answer to a registration; 0 as long as there is none. Raises FormatError."""
    for tag, mapping in fields(answer):
        if tag == 0x0A:
            found: dict[int, Any] = dict(fields(mapping))
            if found.get(0x0A, b"").decode("utf-8", "replace") == key:
                return int(found.get(0x10, 0)) & 0x7FFF_FFFF
    return 0


def commands(answer: bytes) -> list[str]:
    """The names of the commands in a ``Commands``. Raises FormatError."""
    return [
        name.decode("utf-8", "replace")
        for tag, command in fields(answer)
        if tag == 0x0A
        for inner, name in fields(command)
        if inner == 0x0A
    ]


RESET = "ServiceMetadataReset"
"""The command for an instance that the back end does not know: it has to register again."""
