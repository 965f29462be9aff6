"""The structure of OTLP-JSON: the only module that knows where a line holds its spans and what their members mean.

msgspec decodes lines into the structs below, which is several times as fast as decoding into dictionaries. It is
stricter than Python's decoder (lone surrogates, ``NaN``, other encodings), so lines that it rejects are decoded by
Python's: other programs may write them. Members that only some readers need stay text (``Raw``) until they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp_json_read import CODES, KINDS, explained
from ray_tracing_hooks._insight.model.span import Event, Link, Span, State

OTHER_SIGNALS = ("resourceMetrics", "resourceLogs", "resourceProfiles")

_NO_TEXT = Raw(b"")
_NO_VALUE: dict[str, Any] = {}


class KeyValue(Struct, gc=False):
    key: str = ""
    value: dict[str, Any] | None = None


class SpanJson(Struct, rename="camel"):
    """A span as written. Other programs may write values of any type, so each reader of a member converts it."""

    trace_id: Any = UNSET
    span_id: Any = UNSET
    parent_span_id: Any = None
    name: Any = None
    kind: Any = None
    start_time_unix_nano: Any = None
    end_time_unix_nano: Any = None
    attributes: Any = None
    events: Any = None
    links: Any = None
    status: Any = None
    trace_state: Any = None
    flags: Any = None
    dropped_attributes_count: Any = None
    dropped_events_count: Any = None
    dropped_links_count: Any = None


class _Written(SpanJson, rename="camel"):
    """The same, but its attributes are decoded only when they are used."""

    attributes: Raw = _NO_TEXT


class _ScopeSpans(Struct, rename="camel"):
    scope: Raw = _NO_TEXT
    spans: list[_Written] | None = None


class _ResourceSpans(Struct, rename="camel"):
    resource: Raw = _NO_TEXT
    scope_spans: list[_ScopeSpans] | UnsetType | None = UNSET


class _TracesData(Struct, rename="camel"):
    resource_spans: list[_ResourceSpans] | UnsetType | None = UNSET


class Group(Struct):
    """The spans of one resource and one scope. Resource and scope are still text if msgspec decoded the line."""

    resource: Any
    scope: Any
    spans: Sequence[Any]
    """Each is a ``SpanJson``, or whatever the line holds instead: see :func:`as_span`."""


_decode_line = msgspec.json.Decoder(_TracesData).decode
_decode_span = msgspec.json.Decoder(_Written).decode
_decode_pairs = msgspec.json.Decoder(list[KeyValue] | None).decode


def document_of(line: bytes) -> Any:
    """The content of a line, for :func:`groups_of`. Raises ValueError or RecursionError if it is not JSON."""
    try:
        if not line.isascii():
            line.decode()  # msgspec does not validate text that it skips
        document = _decode_line(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return json.loads(line)
    # The structs leave out the members that tell whether the line belongs to another signal, or spells them otherwise.
    if document.resource_spans is UNSET or any(each.scope_spans is UNSET for each in document.resource_spans or ()):
        return json.loads(line)
    return document


_BESIDE_SCOPES = {"resource", "schemaUrl"}


def groups_of(document: Any) -> Iterator[Group]:
    """The spans of a line by resource and scope. Raises one of ``MALFORMED`` if it is not structured as OTLP."""
    if isinstance(document, _TracesData):
        for of_resource in document.resource_spans or ():
            # All of them are set, as `document_of` has seen.
            for of_scope in of_resource.scope_spans or ():
                yield Group(of_resource.resource, of_scope.scope, of_scope.spans or ())
        return
    if "resourceSpans" not in document and not any(signal in document for signal in OTHER_SIGNALS):
        found = f", found {', '.join(sorted(document))[:100]}" if isinstance(document, dict) and document else ""
        raise ValueError(f"expected an object with resourceSpans{found}")
    for resource_spans in document.get("resourceSpans") or ():
        resource = resource_spans.get("resource")
        # An empty list may be left out. Older exporters and other encodings name it otherwise.
        if "scopeSpans" not in resource_spans and (others := sorted(resource_spans.keys() - _BESIDE_SCOPES)):
            raise ValueError(f"expected scopeSpans, found {', '.join(others)}")
        for scope_spans in resource_spans.get("scopeSpans") or ():
            yield Group(resource, scope_spans.get("scope"), scope_spans.get("spans") or ())


def as_span(found: Any) -> SpanJson:
    """An item of a group as a span. Raises one of ``MALFORMED`` if it is not one."""
    if isinstance(found, SpanJson):
        return found
    members = ((field, found.get(written, UNSET)) for field, written in _MEMBERS)
    return SpanJson(**{field: value for field, value in members if value is not UNSET})


_MEMBERS = tuple(zip(SpanJson.__struct_fields__, SpanJson.__struct_encode_fields__, strict=True))


def is_truncated(span: SpanJson) -> bool:
    """Whether the span lacks what its recorder dropped."""
    counts = span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count
    return any(each not in (None, 0, "0") for each in counts)


def span_of_text(text: str | bytes) -> SpanJson:
    """A span from the JSON text of that span alone. Raises one of ``MALFORMED``."""
    try:
        return _decode_span(text)
    except (msgspec.MsgspecError, UnicodeError):
        return as_span(json.loads(text))


def plain_text(text: Any) -> Any:
    """A resource or scope as plain values, whether it is still text or not; an empty dictionary if it is missing."""
    return ((json.loads(bytes(text)) if bytes(text) else None) if isinstance(text, Raw) else text) or {}


def scope_name(scope: Any) -> str:
    return str(plain_text(scope).get("name") or "")


def attributes_of(span: SpanJson) -> dict[str, Any]:
    """The attributes of a span as plain values. Raises one of ``MALFORMED``."""
    written = span.attributes
    return attributes_in(bytes(written)) if isinstance(written, Raw) else plain_attributes(written)


def attributes_in(text: bytes) -> dict[str, Any]:
    """The attributes in a JSON list; the text may be empty. Raises one of ``MALFORMED``."""
    return {intern(key): intern(value) if type(value) is str else value for key, value in pairs_in(text)}


def pairs_in(text: bytes) -> Iterable[tuple[str, Any]]:
    """The same, as pairs of key and value."""
    if not text:
        return ()
    try:
        pairs = _decode_pairs(text) or ()
    except (msgspec.MsgspecError, UnicodeError):
        return plain_attributes(json.loads(text)).items()
    # Most values are strings, which need no function call each.
    return [
        (pair.key, plain)
        if len(value := pair.value or _NO_VALUE) == 1 and type(plain := value.get("stringValue")) is str
        else (pair.key, plain_value(value))
        for pair in pairs
    ]


def plain_attributes(described: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The attributes in a list of OTLP ``KeyValue``. Raises one of ``MALFORMED``."""
    return {intern(item.get("key") or ""): plain_value(item.get("value") or {}) for item in described or ()}


def plain_value(described: dict[str, Any]) -> Any:
    """The plain value of an ``AnyValue``; bytes stay base64 text."""
    for kind, value in described.items():
        if kind == "stringValue":
            return intern(value)
        if kind == "intValue":
            return int(value)
        if kind == "doubleValue":
            return float(value)
        if kind in ("boolValue", "bytesValue"):
            return value
        if kind == "arrayValue":
            return [plain_value(item) for item in value.get("values") or ()]
        if kind == "kvlistValue":
            return plain_attributes(value.get("values"))
    return None


def span_of(written: SpanJson, resource: dict[str, Any], scope: str) -> Span:
    """The complete span. Raises one of ``MALFORMED``."""
    attributes = attributes_of(written)
    status = written.status or {}
    trace_id, span_id = span_ids(written)
    end_ns = _bounded(written.end_time_unix_nano)
    # No process will end a span that a file holds without an end, so it is lost as well.
    state: State = "ended" if end_ns and not attributes.get(names.RAY_END_ESTIMATED) else "lost"
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=id_text(written.parent_span_id or "", 8),
        name=intern(written.name or ""),
        kind=kind_of(written),
        start_ns=start_of(written),
        end_ns=end_ns,
        status_code=status_code_of(written),
        status_message=str(status.get("message") or ""),
        attributes=attributes,
        events=[
            Event(
                str(event.get("name") or ""),
                time_of(event.get("timeUnixNano")),
                plain_attributes(event.get("attributes")),
            )
            for event in written.events or ()
        ],
        links=[
            Link(
                id_text(link.get("traceId") or "", 16),
                id_text(link.get("spanId") or "", 8),
                plain_attributes(link.get("attributes")),
                str(link.get("traceState") or ""),
            )
            for link in written.links or ()
        ],
        resource=resource,
        scope=scope,
        state=state,
        trace_state=str(written.trace_state or ""),
        flags=int(written.flags or 0),
        dropped=(
            int(written.dropped_attributes_count or 0),
            int(written.dropped_events_count or 0),
            int(written.dropped_links_count or 0),
        ),
    )


def span_ids(written: SpanJson) -> tuple[str, str]:
    """Its trace id and span id. Raises one of ``MALFORMED`` if one is missing or invalid."""
    for given, member in ((written.trace_id, "traceId"), (written.span_id, "spanId")):
        if given is UNSET:
            raise KeyError(member)
    trace_id, span_id = id_text(written.trace_id, 16), id_text(written.span_id, 8)
    if not trace_id or not span_id:
        raise ValueError("its ids are zero")
    return trace_id, span_id


def kind_of(written: SpanJson) -> int:
    """Its kind as a number. Raises one of ``MALFORMED`` if it is neither a number nor the name of one."""
    return _enum(written.kind, KINDS, "its kind")


def status_code_of(written: SpanJson) -> int:
    """Its status code, likewise."""
    return _enum((written.status or {}).get("code"), CODES, "its status code")


def _enum(value: Any, known: Mapping[str, int], what: str) -> int:
    # OTLP demands a number, but protobuf's own JSON has names.
    if type(value) is str and value in known:
        return known[value]
    try:
        return int(value or 0)
    except ValueError:
        raise ValueError(f"{what} is {value!r:.50}: expected a number, or a name such as {list(known)[-1]}") from None


def start_of(written: SpanJson) -> int:
    """Its start in nanoseconds; if that is unknown, which is 0 or missing, its end. Raises one of ``MALFORMED`` if it
    is invalid.
    """
    return _bounded(written.start_time_unix_nano) or _bounded(written.end_time_unix_nano)


def _bounded(described: Any) -> int:
    """A time that columns can hold, which end in the year 2262. Raises one of ``MALFORMED`` if it is invalid."""
    return time_of(described, 1 << 63)


def time_of(described: Any, limit: int = 1 << 64) -> int:
    number = int(described or 0)
    if not 0 <= number < limit:
        raise ValueError("an invalid time")
    return number


def id_text(text: str, size: int) -> str:
    """An id in lower case; empty if it is missing or all zeros."""
    try:
        number = bytes.fromhex(text)
    except ValueError:
        number = None  # such as base64, which protobuf's own JSON has
    if number is None or (number and len(number) != size):
        raise ValueError(f"the id {text!r:.50} is not {size} bytes in hex")
    return intern(number.hex()) if any(number) else ""


def explain(error: Exception) -> str:
    """What is wrong, to be used in a sentence."""
    if isinstance(error, json.JSONDecodeError):
        return explained(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
