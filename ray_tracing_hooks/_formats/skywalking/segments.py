"""Spans as SkyWalking's segments, in the model that its protocols share.

A segment of SkyWalking's agents holds the spans of one request in one thread. Ours holds one span: a span is delivered
as soon as it has ended, however long the spans around it go on, and no driver makes so many calls that they do not fit
into a segment. A reference puts it below its parent, of type ``CrossThread`` in the same process, else
``CrossProcess``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import (
    CLIENT,
    CONSUMER,
    ERROR,
    INTERNAL,
    PRODUCER,
    SERVER,
    Event,
    Link,
    Scope,
    Span,
)
from ray_tracing_hooks._formats.encoded_span.encode import REMOTE_PARENT
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._formats.skywalking import headers, ids
from ray_tracing_hooks._formats.skywalking.headers import Identity, Reference

ENTRY, EXIT, LOCAL = 0, 1, 2
"""Types of spans."""

CROSS_PROCESS, CROSS_THREAD = 0, 1
"""Types of references."""

UNKNOWN, DATABASE, RPC_FRAMEWORK, HTTP, MQ = 0, 1, 2, 3, 4
"""Layers of spans."""

ROOT = -1
"""The parent of the first span of a segment."""

_TYPES = {SERVER: ENTRY, CONSUMER: ENTRY, CLIENT: EXIT, PRODUCER: EXIT}

_PYTHON = 7000
_COMPONENTS = {"requests": 7002, "fastapi": 7014, "httpx": 7019, "grpc": 23}
"""The ids of components, by the ends of the names of instrumentation scopes. There is none for Ray."""

_TAGS = {
    "http.request.method": "http.method",
    "http.response.status_code": "http.status_code",
    "url.full": "url",
    "db.system": "db.type",
    "db.system.name": "db.type",
    "db.namespace": "db.instance",
    "db.query.text": "db.statement",
    "rpc.response.status_code": "rpc.status_code",
    "rpc.grpc.status_code": "rpc.status_code",
    "messaging.destination.name": "mq.queue",
}
"""SkyWalking's names for attributes, the ones that it searches and shows."""

_HIDDEN = frozenset({names.SKYWALKING_CALLER, names.SKYWALKING_PARENT, names.SKYWALKING_PEER})

_CALLERS = {
    names.execution_name("").strip(): names.submission_name("").strip(),
    names.SERVE_REPLICA: names.SERVE_CALL,
}
"""The last word in the name of an execution, and that in the name of its call."""

Pair = tuple[str, str]


class Log(NamedTuple):
    time_ms: int
    pairs: list[Pair]


class SegmentReference(NamedTuple):
    type: int
    to: Reference


class SegmentSpan(NamedTuple):
    number: int
    parent: int
    start_ms: int
    end_ms: int
    references: list[SegmentReference]
    name: str
    peer: str
    type: int
    layer: int
    component: int
    is_error: bool
    tags: list[Pair]
    logs: list[Log]
    skips_analysis: bool
    """Whether SkyWalking shows it in traces alone, and not as an endpoint with metrics."""


class Segment(NamedTuple):
    trace_id: str
    segment_id: str
    identity: Identity
    spans: list[SegmentSpan]


class Generation(NamedTuple):
    """How spans become segments: of SkyWalking 6.x and 7.x, with the ids of service and instance there, or of 8."""

    is_of_6: bool = False
    service_id: int = 0
    instance_id: int = 0


OF_8 = Generation()


def segment(
    span: Span, scope: Scope, identity: Identity, generation: Generation = OF_8, cluster: Identity | None = None
) -> Segment:
    """The segment of a span. Raises FormatError if its ids are not OpenTelemetry's.

    ``identity`` is that of its process. If this is a replica of a deployment that is a service of its own, ``cluster``
    is the identity of the other processes. The submission of a task or an actor's method belongs to these: the worker
    refers to it, and does not know where it was made.
    """
    if len(span.trace_id) != 16 or len(span.span_id) != 8 or len(span.parent_span_id) not in (0, 8):
        raise FormatError("a span with ids of the wrong length")
    received = _received(span, generation)
    trace_id = _trace_id(span, received, generation)
    type_ = _TYPES.get(span.kind, LOCAL)
    own = cluster if cluster is not None and _is_submission(span, scope) else identity
    start_ms = span.start_ns // 1_000_000
    references = _references(span, trace_id, received, identity, generation)
    return Segment(
        trace_id,
        _segment_id(span.trace_id, span.span_id, generation),
        own,
        [
            SegmentSpan(
                0,
                ROOT,
                start_ms,
                max(start_ms, span.end_ns // 1_000_000),
                references,
                headers.cut(span.name, headers.LONGEST_ENDPOINT),
                headers.address(span.attributes, called(span.name), own.service) if type_ == EXIT else "",
                type_,
                _layer(span),
                _component(scope),
                span.status_code == ERROR,
                _tags(span, scope),
                [_log(event) for event in span.events],
                # It would be an endpoint of its service otherwise. Calls in Ray are counted where they arrive.
                type_ == LOCAL or (type_ == EXIT and scope.name == names.SCOPE),
            )
        ],
    )


def _is_submission(span: Span, scope: Scope) -> bool:
    return span.kind == PRODUCER and scope.name == names.SCOPE and span.name.endswith(names.submission_name(""))


def called(name: str) -> str:
    """What a span of Ray calls or runs: its name without the last word, which says which of the two it is."""
    head, _, tail = name.rpartition(" ")
    return head if head and tail.startswith(("ray.", "serve.")) else name


def _received(span: Span, generation: Generation) -> Reference | None:
    """What the header said that named the parent."""
    header = span.attributes.get(names.SKYWALKING_PARENT)
    if not isinstance(header, str):
        return None
    return headers.read_sw6(header) if generation.is_of_6 else headers.read_sw8(header)


def _trace_id(span: Span, received: Reference | None, generation: Generation) -> str:
    own = ids.trace_numbers(span.trace_id) if generation.is_of_6 else ids.trace_text(span.trace_id)
    text = received.trace_id if received is not None else _in_trace_state(span)
    if not text or ids.trace_id_of(text) != span.trace_id or (generation.is_of_6 and ids.three_numbers(text) is None):
        return own
    return text


def _in_trace_state(span: Span) -> str:
    """SkyWalking's own id of a trace, from the trace state of a span; empty if the trace began elsewhere."""
    for entry in span.trace_state.split(","):
        key, _, value = entry.strip().partition("=")
        if key == headers.SW8:
            return ids.in_trace_state(value, span.trace_id)
    return ""


def _segment_id(trace_id: bytes, span_id: bytes, generation: Generation) -> str:
    return (ids.segment_numbers if generation.is_of_6 else ids.segment_text)(trace_id, span_id)


def _references(
    span: Span, trace_id: str, received: Reference | None, identity: Identity, generation: Generation
) -> list[SegmentReference]:
    if received is not None:
        return [SegmentReference(CROSS_PROCESS, received)]
    if not any(span.parent_span_id) or names.SKYWALKING_PARENT in span.attributes:
        return []  # a root, or below a span of the other generation, whose segments this one cannot name
    is_remote = span.flags & REMOTE_PARENT == REMOTE_PARENT
    what, told_caller = called(span.name), span.attributes.get(names.SKYWALKING_CALLER)
    service = told_caller if isinstance(told_caller, str) and told_caller else identity.service
    to = Reference(
        trace_id,
        _segment_id(span.trace_id, span.parent_span_id, generation),
        0,
        True,
        service,
        identity.instance,
        _caller(span.name),
        headers.address({}, what, service) if is_remote else "",
    )
    if generation.is_of_6:
        number, nowhere = generation.instance_id, headers.NO_ENDPOINT
        to = Reference(*to[:4], "", "", "", f"#{to.address}" if is_remote else "", number, number, nowhere, nowhere)
    return [SegmentReference(CROSS_PROCESS if is_remote else CROSS_THREAD, to)]


def _caller(name: str) -> str:
    """The name of the parent of a span, as far as its own name tells it."""
    head, _, tail = name.rpartition(" ")
    return headers.cut(f"{head} {_CALLERS[tail]}" if tail in _CALLERS else called(name), headers.LONGEST_ENDPOINT)


def _layer(span: Span) -> int:
    attributes = span.attributes
    if "db.system" in attributes or "db.system.name" in attributes:
        return DATABASE
    if "http.request.method" in attributes or "http.method" in attributes:
        return HTTP
    if "messaging.system" in attributes:
        return MQ
    return UNKNOWN if span.kind in (INTERNAL, 0) else RPC_FRAMEWORK


def _component(scope: Scope) -> int:
    return _COMPONENTS.get(scope.name.rpartition(".")[2], _PYTHON)


def _tags(span: Span, scope: Scope) -> list[Pair]:
    found = {
        _TAGS.get(key, key): _text(value)
        for key, value in span.attributes.items()
        if key not in _HIDDEN and value is not None
    }
    if len(span.name) > headers.LONGEST_ENDPOINT:
        found["otel.span_name"] = span.name
    if span.status_message:
        found["otel.status_description"] = span.status_message
    if scope.name and scope.name != names.SCOPE:
        found[names.OTEL_SCOPE_NAME] = scope.name
    for key, dropped in (
        ("otel.dropped_attributes_count", span.dropped_attributes),
        ("otel.dropped_events_count", span.dropped_events),
        ("otel.dropped_links_count", span.dropped_links),
    ):
        if dropped:
            found[key] = str(dropped)
    return [*found.items(), *(_link(number, link) for number, link in enumerate(span.links, start=1))]


def _link(number: int, link: Link) -> Pair:
    more = f" {_text(link.attributes)}" if link.attributes else ""
    return f"otel.link.{number}", f"{link.trace_id.hex()}/{link.span_id.hex()}{more}"


def _log(event: Event) -> Log:
    given = event.attributes
    if event.name == "exception":
        pairs = {
            "event": "error",
            "error.kind": given.get(names.EXCEPTION_TYPE),
            "message": given.get(names.EXCEPTION_MESSAGE),
            "stack": given.get(names.EXCEPTION_STACKTRACE),
        }
    else:
        pairs = {"event": event.name, **given}
    return Log(event.time_ns // 1_000_000, [(key, _text(value)) for key, value in pairs.items() if value is not None])


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(value, default=_text, ensure_ascii=False, separators=(",", ":"))


def properties(resource: Mapping[str, Any]) -> list[Pair]:
    """What SkyWalking shows of an instance."""
    return [("language", "python"), *((key, _text(resource[key])) for key in _SHOWN if key in resource)]


_SHOWN = (
    names.RESOURCE_SESSION_NAME,
    names.RESOURCE_GCS_ADDRESS,
    names.RESOURCE_RAY_VERSION,
    names.DISTRO_NAME,
    names.DISTRO_VERSION,
)
