"""Maps spans to Jaeger's model, which is common to all of its protocols, and encodes that as protobuf messages.

The mapping is that of https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/jaeger/ and, where it is silent, of
https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._formats.encoded_span.decode import ERROR, OK, Event, Link, Scope, Span
from ray_tracing_hooks._formats.protobuf import FormatError, field, pack_double, utf8, varint

CHILD_OF, FOLLOWS_FROM = 0, 1
"""Kinds of references, in Thrift and in protobuf."""

SAMPLED = 1
"""The flag of a span that was sampled."""

_KINDS = {2: "server", 3: "client", 4: "producer", 5: "consumer"}
"""Keyed by OTLP's numbers. An internal span has no tag for its kind."""

_DROPPED = "otel.dropped_attributes_count"

Tag = tuple[str, "str | bool | int | float | bytes"]
"""A key and a value, each type of which has its own type in Jaeger."""


class Reference(NamedTuple):
    kind: int
    trace_id: bytes
    span_id: bytes


class Log(NamedTuple):
    time_ns: int
    fields: list[Tag]


class Process(NamedTuple):
    service: str
    tags: list[Tag]


class JaegerSpan(NamedTuple):
    """A span with ids of 16 and 8 bytes; a root's parent is eight zero bytes."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    links: list[Reference]
    start_ns: int
    duration_ns: int
    tags: list[Tag]
    logs: list[Log]


class Encoder(NamedTuple):
    """One of Jaeger's protocols: ``request`` takes an encoded process and its encoded spans, without decoding them."""

    process: Callable[[Process], bytes]
    span: Callable[[JaegerSpan], bytes]
    request: Callable[[bytes, Sequence[bytes]], bytes]


def process(resource: Mapping[str, Any]) -> Process:
    """The process of a Resource: its service name, and all other attributes as tags."""
    service = resource.get("service.name")
    rest = {key: value for key, value in resource.items() if key != "service.name"}
    return Process(str(service) if service else "unknown_service", _tags(rest))


def jaeger_span(span: Span, scope: Scope) -> JaegerSpan:
    """A span of this scope. Raises FormatError if an id is longer than Jaeger's."""
    attributes = {**scope.attributes, **span.attributes}
    # The specification still asks for the old names too.
    for key, value in (("name", scope.name), ("version", scope.version)):
        if value:
            attributes[f"otel.scope.{key}"] = attributes[f"otel.library.{key}"] = value
    if span.kind in _KINDS:
        attributes["span.kind"] = _KINDS[span.kind]
    if span.trace_state:
        attributes["w3c.tracestate"] = span.trace_state
    if span.status_code == OK:
        attributes["otel.status_code"] = "OK"
    elif span.status_code == ERROR:
        attributes |= {"otel.status_code": "ERROR", "error": True}
        if span.status_message:
            attributes["otel.status_description"] = span.status_message
    for key, dropped in (
        (_DROPPED, span.dropped_attributes),
        ("otel.dropped_events_count", span.dropped_events),
        ("otel.dropped_links_count", span.dropped_links),
    ):
        if dropped:
            attributes[key] = dropped
    logs = [_event(event) for event in span.events]
    # A reference has no place for a link's attributes; a log has.
    logs += [_link(link, span.start_ns) for link in span.links if link.attributes or link.dropped_attributes]
    return JaegerSpan(
        _id(span.trace_id, 16),
        _id(span.span_id, 8),
        _id(span.parent_span_id, 8),
        span.name,
        [Reference(FOLLOWS_FROM, _id(link.trace_id, 16), _id(link.span_id, 8)) for link in span.links],
        span.start_ns,
        max(0, span.end_ns - span.start_ns),
        _tags(attributes),
        logs,
    )


def _event(event: Event) -> Log:
    fields = {"event": event.name, **event.attributes}
    if event.dropped_attributes:
        fields["otel.event.dropped_attributes_count"] = event.dropped_attributes
    return Log(event.time_ns, _tags(fields))


def _link(link: Link, time_ns: int) -> Log:
    fields = {"event": "link", "trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), **link.attributes}
    if link.dropped_attributes:
        fields[_DROPPED] = link.dropped_attributes
    return Log(time_ns, _tags(fields))


def _id(value: bytes, size: int) -> bytes:
    if len(value) > size:
        raise FormatError(f"an id of {len(value)} bytes where at most {size} are allowed")
    return value.rjust(size, b"\0")


def _tags(attributes: Mapping[str, Any]) -> list[Tag]:
    return [(key, _value(value)) for key, value in attributes.items() if value is not None]


def _value(value: Any) -> Any:
    if isinstance(value, str | bool | int | float | bytes):
        return value
    return json.dumps(value, default=_base64, ensure_ascii=False, separators=(",", ":"))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# Its protobuf messages: ``model.proto`` and ``collector.proto`` of ``proto/api_v2`` in its IDL.


def _request(process: bytes, spans: Sequence[bytes]) -> bytes:
    # PostSpansRequest: batch = 1. Batch: spans = 1, process = 2.
    return field(0x0A, b"".join([*(field(0x0A, span) for span in spans), field(0x12, process)]))


def _process(process: Process) -> bytes:
    return field(0x0A, utf8(process.service)) + _key_values(0x12, process.tags)


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
            _key_values(0x42, span.tags),
            *(field(0x4A, field(0x0A, _time(log.time_ns)) + _key_values(0x12, log.fields)) for log in span.logs),
        )
    )


def _reference(reference: Reference) -> bytes:
    kind = b"\x18" + varint(reference.kind) if reference.kind else b""
    return field(0x0A, reference.trace_id) + field(0x12, reference.span_id) + kind


def _key_values(tag: int, tags: Iterable[Tag]) -> bytes:
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
