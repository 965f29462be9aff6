"""Decodes OTLP messages into plain values with protobuf's own classes, for conversion to other formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ray_tracing_hooks._formats.protobuf import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
"""Kinds of a span."""

UNSET, OK, ERROR = 0, 1, 2
"""Codes of a status."""


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
    """A span. Ids have the length that was encoded; ``kind`` and the status are OTLP's numbers."""

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
    """An encoded ``Span``. Raises FormatError if it is malformed."""
    from opentelemetry.proto.trace.v1 import trace_pb2  # noqa: PLC0415  few processes need it

    found = _parsed(trace_pb2.Span, encoded)
    return Span(
        found.trace_id,
        found.span_id,
        found.trace_state,
        found.parent_span_id,
        found.name,
        found.kind,
        found.start_time_unix_nano,
        found.end_time_unix_nano,
        _values(found.attributes),
        found.dropped_attributes_count,
        [
            Event(each.time_unix_nano, each.name, _values(each.attributes), each.dropped_attributes_count)
            for each in found.events
        ],
        found.dropped_events_count,
        [
            Link(
                *(each.trace_id, each.span_id, each.trace_state),
                *(_values(each.attributes), each.dropped_attributes_count, each.flags),
            )
            for each in found.links
        ],
        found.dropped_links_count,
        found.status.code,
        found.status.message,
        found.flags,
    )


def decode_resource(encoded: bytes) -> dict[str, Any]:
    """The attributes of an encoded ``Resource``. Raises FormatError if it is malformed."""
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource  # noqa: PLC0415  as above

    return _values(_parsed(Resource, encoded).attributes)


def decode_attribute(encoded: bytes) -> tuple[str, Any]:
    """The key and the value of an encoded ``KeyValue``. Raises FormatError if it is malformed."""
    from opentelemetry.proto.common.v1 import common_pb2  # noqa: PLC0415  as above

    found = _parsed(common_pb2.KeyValue, encoded)
    return found.key, _value(found.value)


def decode_scope(encoded: bytes) -> Scope:
    """An encoded ``InstrumentationScope``. Raises FormatError if it is malformed."""
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope  # noqa: PLC0415  as above

    found = _parsed(InstrumentationScope, encoded)
    return Scope(found.name, found.version, _values(found.attributes))


def _parsed(kind: Any, encoded: bytes) -> Any:
    from google.protobuf.message import DecodeError  # noqa: PLC0415  as above

    try:
        return kind.FromString(encoded)
    except DecodeError as error:
        raise FormatError(str(error)) from None


def _values(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return tuple(map(_value, value.array_value.values))
    if kind == "kvlist_value":
        return _values(value.kvlist_value.values)
    return getattr(value, kind)
