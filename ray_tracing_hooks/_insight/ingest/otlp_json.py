"""The structure of OTLP-JSON: the only module that knows where a line holds its spans and what their members mean.

msgspec decodes lines into the structs below, which is several times as fast as decoding into dictionaries. It rejects
lone surrogates and ``NaN``, which other programs may write: there, Python's decoder and encoder replace them. Members
that only some readers need stay text (``Raw``) until they are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp_json_read import CODES, KINDS, explained
from ray_tracing_hooks._insight.model.span import Event, Link, Span, State

_NO_TEXT = Raw(b"")
_NO_VALUE: dict[str, Any] = {}

_Found = TypeVar("_Found")


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
    attributes: Raw = _NO_TEXT
    events: Any = None
    links: Any = None
    status: Any = None
    trace_state: Any = None
    flags: Any = None
    dropped_attributes_count: Any = None
    dropped_events_count: Any = None
    dropped_links_count: Any = None


class _ScopeSpans(Struct, rename="camel"):
    scope: Raw = _NO_TEXT
    spans: list[SpanJson] | None = None


class _ResourceSpans(Struct, rename="camel"):
    resource: Raw = _NO_TEXT
    scope_spans: list[_ScopeSpans] | UnsetType | None = UNSET


class TracesJson(Struct, rename="camel"):
    """A line; those of other signals have another member."""

    resource_spans: list[_ResourceSpans] | UnsetType | None = UNSET
    resource_metrics: Raw = _NO_TEXT
    resource_logs: Raw = _NO_TEXT
    resource_profiles: Raw = _NO_TEXT


class Group(NamedTuple):
    """The spans of one resource and one scope, which are still text."""

    resource: Raw
    scope: Raw
    spans: Sequence[SpanJson]


_decode_line = msgspec.json.Decoder(TracesJson).decode
_decode_span = msgspec.json.Decoder(SpanJson).decode
_decode_pairs = msgspec.json.Decoder(list[KeyValue] | None).decode
_decode_object = msgspec.json.Decoder(dict[str, Any] | None).decode


def _decoded(decode: Callable[[bytes | str], _Found], text: bytes | str) -> _Found:
    """The content of a text. Raises ValueError or RecursionError if it is not JSON, and TypeError if it is something
    else than the decoder expects.
    """
    try:
        return decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        strict = json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False).encode("utf-8", "replace")
    try:
        return decode(strict)
    except msgspec.MsgspecError as error:
        raise TypeError(str(error)) from None


def document_of(line: bytes) -> TracesJson:
    """The content of a line, for :func:`groups_of`.

    Raises ValueError or RecursionError if it is not JSON, and TypeError if it is not structured as OTLP.
    """
    if not line.isascii():
        line.decode()  # msgspec does not validate text that it skips
    return _decoded(_decode_line, line)


def groups_of(document: TracesJson) -> Iterator[Group]:
    """The spans of a line by resource and scope. Raises ValueError if it is not structured as OTLP."""
    if document.resource_spans is UNSET:
        others = document.resource_metrics, document.resource_logs, document.resource_profiles
        if not any(map(bytes, others)):
            raise ValueError("expected an object with resourceSpans")
        return
    for of_resource in document.resource_spans or ():
        # Older exporters and other encodings name it otherwise.
        if of_resource.scope_spans is UNSET:
            raise ValueError("expected scopeSpans beside a resource")
        for of_scope in of_resource.scope_spans or ():
            yield Group(of_resource.resource, of_scope.scope, of_scope.spans or ())


def is_truncated(span: SpanJson) -> bool:
    """Whether the span lacks what its recorder dropped."""
    counts = span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count
    return any(each not in (None, 0, "0") for each in counts)


def span_of_text(text: str | bytes) -> SpanJson:
    """A span from the JSON text of that span alone. Raises one of ``MALFORMED``."""
    return _decoded(_decode_span, text)


def plain_text(text: Raw) -> dict[str, Any]:
    """A resource or scope as plain values; empty if it is missing. Raises one of ``MALFORMED``."""
    return (_decoded(_decode_object, bytes(text)) if bytes(text) else None) or {}


def scope_name(scope: dict[str, Any]) -> str:
    return str(scope.get("name") or "")


def attributes_in(text: bytes) -> dict[str, Any]:
    """The attributes in a JSON list; the text may be empty. Raises one of ``MALFORMED``."""
    return {intern(key): intern(value) if type(value) is str else value for key, value in pairs_in(text)}


def pairs_in(text: bytes) -> Iterable[tuple[str, Any]]:
    """The same, as pairs of key and value."""
    if not text:
        return ()
    pairs = _decoded(_decode_pairs, text) or ()
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
    attributes = attributes_in(bytes(written.attributes))
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
    """Its start in nanoseconds; if that is 0 or missing, its end. Raises one of ``MALFORMED`` without a valid one."""
    found = _bounded(written.start_time_unix_nano) or _bounded(written.end_time_unix_nano)
    if not found:
        raise ValueError("it has neither a start nor an end")
    return found


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
