"""Spans as Jaeger has them, before they are encoded for one of its protocols.

The mapping is that of https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/jaeger/.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from ray_tracing_hooks._formats.span import ERROR, OK, Scope, Span

CHILD_OF, FOLLOWS_FROM = 0, 1
"""Kinds of references, in both of Jaeger's protocols."""

SAMPLED = 1

_KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}

Tag = tuple[str, Any]
"""A key and a value, which is a str, bool, int, float or bytes: each has a type of its own in Jaeger."""


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
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    """Eight zero bytes for a root."""
    name: str
    links: list[Reference]
    start_ns: int
    duration_ns: int
    tags: list[Tag]
    logs: list[Log]


def process(resource: dict[str, Any]) -> Process:
    """A Resource: its service name, and all else as tags."""
    service = resource.get("service.name")
    rest = {key: value for key, value in resource.items() if key != "service.name"}
    return Process(str(service) if service else "unknown_service", _tags(rest))


def jaeger_span(span: Span, scope: Scope) -> JaegerSpan:
    """A span of this scope."""
    tags = _tags(span.attributes)
    # Of both names the second is what Jaeger's own pages and older backends look for.
    for keys, value in (
        (("otel.scope.name", "otel.library.name"), scope.name),
        (("otel.scope.version", "otel.library.version"), scope.version),
        (("span.kind",), _KINDS.get(span.kind, "")),
        (("w3c.tracestate",), span.trace_state),
    ):
        tags += [(key, value) for key in keys if value]
    if span.status_code == OK:
        tags.append(("otel.status_code", "OK"))
    elif span.status_code == ERROR:
        tags += [("otel.status_code", "ERROR"), ("error", True)]
        if span.status_message:
            tags.append(("otel.status_description", span.status_message))
    for key, dropped in (
        ("otel.dropped_attributes_count", span.dropped_attributes),
        ("otel.dropped_events_count", span.dropped_events),
        ("otel.dropped_links_count", span.dropped_links),
    ):
        if dropped:
            tags.append((key, dropped))
    logs = []
    for event in span.events:
        attributes = {"event": event.name, **event.attributes}
        if event.dropped_attributes:
            attributes["otel.dropped_attributes_count"] = event.dropped_attributes
        logs.append(Log(event.time_ns, _tags(attributes)))
    return JaegerSpan(
        trace_id=span.trace_id.rjust(16, b"\0"),
        span_id=span.span_id.rjust(8, b"\0"),
        parent_span_id=span.parent_span_id.rjust(8, b"\0"),
        name=span.name,
        links=[Reference(FOLLOWS_FROM, link.trace_id, link.span_id) for link in span.links],
        start_ns=span.start_ns,
        duration_ns=max(0, span.end_ns - span.start_ns),
        tags=tags,
        logs=logs,
    )


def _tags(attributes: dict[str, Any]) -> list[Tag]:
    return [(key, _value(value)) for key, value in attributes.items() if value is not None]


def _value(value: Any) -> Any:
    if isinstance(value, str | bool | int | float | bytes):
        return value
    return json.dumps(value, default=_json_of_bytes, ensure_ascii=False)


def _json_of_bytes(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
