"""Parses OTLP-JSON text into encoded OTLP messages: the reverse of :mod:`~ray_tracing_hooks._formats.otlp_json`.

It accepts OTLP's JSON protobuf encoding (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding), and
everything that protobuf's own parsers accept: numbers as text, names of enums, names of fields with underscores, null
for a default, ids in base64. Unknown fields are ignored, and so are schema URLs.

Each message is a table from the name of a JSON member to the function that encodes its value. This is much faster than
protobuf's own parser for JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from ray_tracing_hooks._formats.encoded_span.encode import BEFORE_PARENT_ID, before_id
from ray_tracing_hooks._formats.encoded_span.tags import (
    AnyValueTag,
    EventTag,
    KeyValueTag,
    LinkTag,
    ListTag,
    ResourceTag,
    ScopeTag,
    SpanTag,
    StatusTag,
    fields_of,
    json_name,
)
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._formats.protobuf import (
    MAX_DEPTH,
    FormatError,
    field,
    fixed64,
    pack_double,
    pack_fixed32,
    utf8,
    varint,
)

_OTHER_SIGNALS = (
    *("resourceMetrics", "resourceLogs", "resourceProfiles"),
    *("resource_metrics", "resource_logs", "resource_profiles"),
)
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading raises if the text or its members are not OTLP-JSON."""

MAX_LINE = 64 * 1024 * 1024
"""A longer line is treated as damage. The lines that this package writes stay below 1 MiB."""


def whole(line: bytes, readline: Callable[[int], bytes]) -> bytes:
    """A line with what belongs to it: after a line with nothing but a brace follow those of its object, which another
    program has written over many lines. At most ``MAX_LINE`` bytes are read.
    """
    if len(line) > _LONE_BRACE or line.rstrip() != b"{":
        return line
    lines, left = [line], MAX_LINE
    while left and (line := readline(left)):
        lines.append(line)
        left -= len(line)
        if line.rstrip() == b"}":
            break
    return b"".join(lines)


_LONE_BRACE = len(b"{\r\n")

_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


_Encode = Callable[[Any], bytes]
_Message = Mapping[str, _Encode]


def traces(line: bytes | str) -> tuple[list[Group], list[str]]:
    """The spans of one line, a ``TracesData``, and the reason for each span that had to be left out.

    A line of metrics, logs or profiles has no spans. Raises FormatError if the line is not OTLP-JSON.
    """
    try:
        document = json.loads(line)
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {explained(error)}") from error
    except (ValueError, RecursionError) as error:  # text that is not UTF-8, a number with too many digits
        raise FormatError(f"not JSON: {error}") from error
    groups: list[Group] = []
    wrong: list[str] = []
    try:
        for resource_spans in _resource_spans(document):
            resource = _object(_RESOURCE, resource_spans.get("resource") or {})
            for scope_spans in _member(resource_spans, "scopeSpans", "scope_spans") or ():
                scope = _object(_SCOPE, scope_spans.get("scope") or {})
                spans = []
                for described in scope_spans.get("spans") or ():
                    try:
                        spans.append(_span(described))
                    except MALFORMED as error:
                        wrong.append(f"a span that is not OTLP: {_explain(error)}")
                if spans:
                    groups.append(Group(resource, scope, spans))
    except MALFORMED as error:
        raise FormatError(f"not OTLP traces: {_explain(error)}") from error
    return groups, wrong


def _resource_spans(document: Any) -> Any:
    found = _member(document, "resourceSpans", "resource_spans")
    if found is None and not any(signal in document for signal in _OTHER_SIGNALS):
        raise FormatError("expected an object with resourceSpans")
    return found or ()


def explained(error: json.JSONDecodeError) -> str:
    """What is wrong with a line that is not JSON; the error's own text counts lines within this line."""
    return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"


def _explain(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _member(described: Mapping[str, Any], name: str, also: str) -> Any:
    value = described.get(name)
    return described.get(also) if value is None else value


def _object(members: _Message, described: Mapping[str, Any]) -> bytes:
    return b"".join(
        [encode(value) for name, value in described.items() if value is not None and (encode := members.get(name))]
    )


def _span(described: Mapping[str, Any]) -> bytes:
    """The encoded span, its ids first. Receivers would refuse a span whose ids have a wrong size."""
    trace_id = _id(_member(described, "traceId", "trace_id") or "")
    span_id = _id(_member(described, "spanId", "span_id") or "")
    parent = _id(_member(described, "parentSpanId", "parent_span_id") or "")
    if len(trace_id) != 16 or len(span_id) != 8 or len(parent) not in (0, 8):
        raise FormatError("an id has the wrong size: a trace id has 16 bytes, a span id 8")
    if not any(trace_id) or not any(span_id):
        raise FormatError("its ids are zero")
    head = before_id(trace_id) + span_id + (BEFORE_PARENT_ID + parent if any(parent) else b"")
    return head + _object(_SPAN, described)


def _id(text: str) -> bytes:
    """An id in hexadecimal, or in base64 as in protobuf's JSON."""
    return base64.b64decode(text, validate=True) if text.endswith("=") else binascii.unhexlify(text)


def _text(tag: int, value: str) -> bytes:
    return field(tag, utf8(_checked(value, str))) if value else b""


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"{value!r:.100} where a {kind.__name__} is expected")
    return value


def _integer(value: Any) -> int:
    """A number, or a number as text, possibly in a form such as 1e3."""
    if isinstance(value, bool):
        raise FormatError(f"{value!r} where a number is expected")
    try:
        number = int(value)
    except ValueError:
        number = int(float(value))
    if isinstance(value, float) and number != value:
        raise FormatError(f"{value!r} where a whole number is expected")
    return number


def _unsigned(value: Any, most: int) -> int:
    number = _integer(value)
    if not 0 <= number <= most:
        raise FormatError(f"{number} where a number from 0 to {most} is expected")
    return number


def _uint32(tag: int, value: Any) -> bytes:
    number = _unsigned(value, _U32)
    return bytes((tag,)) + varint(number) if number else b""


def _fixed32(tag: int, value: Any) -> bytes:
    number = _unsigned(value, _U32)
    return varint(tag) + pack_fixed32(number) if number else b""


def _time(tag: int, value: Any) -> bytes:
    number = _unsigned(value, _U64)
    return fixed64(tag, number) if number else b""


def _enum(names: Mapping[str, int], tag: int, value: Any) -> bytes:
    number = names.get(value) if isinstance(value, str) else None
    number = _integer(value) if number is None else number
    if not -(1 << 31) <= number < 1 << 31:
        raise FormatError(f"{number} where an enum is expected")
    return bytes((tag,)) + varint(number & _U64) if number else b""


def _message(members: _Message, tag: int, value: Any) -> bytes:
    return field(tag, _object(members, value))


def _messages(members: _Message, tag: int, value: Any) -> bytes:
    return b"".join([field(tag, _object(members, item)) for item in _checked(value, list)])


def _id_field(tag: int, value: str) -> bytes:
    encoded = _id(value)
    return field(tag, encoded) if encoded else b""


def _attributes(tag: int, value: Any) -> bytes:
    return b"".join([field(tag, _attribute(item)) for item in _checked(value, list)])


def _attribute(described: Mapping[str, Any]) -> bytes:
    value = described.get("value")
    # Most attributes are short text, and repeat from span to span.
    if value is not None and len(value) == 1:
        text = value.get("stringValue")
        if text is not None and len(text) < _CACHED_CHARACTERS:
            return _text_attribute(described.get("key") or "", text)
    return _key_value(described, 0)


_CACHED_CHARACTERS = 100


@lru_cache(maxsize=8192)
def _text_attribute(key: str, text: str) -> bytes:
    return _text(KeyValueTag.KEY, key) + field(KeyValueTag.VALUE, field(AnyValueTag.STRING, utf8(_checked(text, str))))


def _key_value(described: Mapping[str, Any], depth: int) -> bytes:
    value = described.get("value")
    key = _text(KeyValueTag.KEY, described.get("key") or "")
    return key if value is None else key + field(KeyValueTag.VALUE, _any_value(value, depth))


def _any_value(described: Mapping[str, Any], depth: int) -> bytes:
    """The last known value. An ``AnyValue`` without one is null."""
    if depth > MAX_DEPTH:
        raise FormatError(f"an attribute's value is nested more than {MAX_DEPTH} levels deep")
    encoded = b""
    for name, value in described.items():
        if value is None:
            continue
        if name in _PLAIN:
            encoded = _PLAIN[name](value)
        elif name in _NESTED:
            tag, encode = _NESTED[name]
            items = _checked(value.get("values") or [], list)
            encoded = field(tag, b"".join([field(ListTag.ITEMS, encode(item, depth + 1)) for item in items]))
    return encoded


def _boolean(value: Any) -> bytes:
    return bytes((AnyValueTag.BOOL, _checked(value, bool)))


def _int64(value: Any) -> bytes:
    number = _integer(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise FormatError(f"{number} where an integer of 64 bits is expected")
    return bytes((AnyValueTag.INT,)) + varint(number & _U64)


def _double(value: Any) -> bytes:
    # float() reads "NaN", "Infinity" and "-Infinity", as protobuf's JSON writes them.
    return bytes((AnyValueTag.DOUBLE,)) + pack_double(float(value))


def _bytes(value: Any) -> bytes:
    """Base64, also in its URL-safe form, and without padding."""
    text = re.sub(r"\s|=", "", _checked(value, str)).replace("-", "+").replace("_", "/")
    return field(AnyValueTag.BYTES, base64.b64decode(text + "=" * (-len(text) % 4), validate=True))


_PLAIN: Mapping[str, _Encode] = {
    "stringValue": lambda value: field(AnyValueTag.STRING, utf8(_checked(value, str))),
    "boolValue": _boolean,
    "intValue": _int64,
    "doubleValue": _double,
    "bytesValue": _bytes,
}
_NESTED: Mapping[str, tuple[int, Callable[[Any, int], bytes]]] = {
    "arrayValue": (AnyValueTag.ARRAY, _any_value),
    "kvlistValue": (AnyValueTag.KVLIST, _key_value),
}


def _with_underscores(members: dict[str, Any]) -> dict[str, Any]:
    return members | {re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name): members[name] for name in members}


def _names(prefix: str, *names: str) -> dict[str, int]:
    return {prefix + name: number for number, name in enumerate(names)}


KINDS = _names("SPAN_KIND_", "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
CODES = _names("STATUS_CODE_", "UNSET", "OK", "ERROR")
"""The numbers of kinds and status codes by the names that protobuf has for them."""

_PLAIN = _with_underscores(dict(_PLAIN))
_NESTED = _with_underscores(dict(_NESTED))
_OF_WIRE_TYPE: Mapping[int, Callable[[int, Any], bytes]] = {1: _time, 2: _text, 5: _fixed32}


def _table(message: type, **of_field: Callable[[int, Any], bytes]) -> _Message:
    """``of_field``: how these fields are encoded, where neither their names nor their wire types say it."""
    members = {}
    for name, tag in fields_of(message):
        if name in of_field:
            encode = of_field[name]
        elif name == "ATTRIBUTES":
            encode = _attributes
        elif name.endswith("_ID"):
            encode = _id_field
        else:
            encode = _uint32 if name.startswith("DROPPED") else _OF_WIRE_TYPE[tag & 7]
        members[json_name(name)] = partial(encode, tag)
    return _with_underscores(members)


_RESOURCE, _SCOPE, _EVENT, _LINK = map(_table, (ResourceTag, ScopeTag, EventTag, LinkTag))
_STATUS = _table(StatusTag, CODE=partial(_enum, CODES))
_SPAN = _table(
    SpanTag,
    KIND=partial(_enum, KINDS),
    EVENTS=partial(_messages, _EVENT),
    LINKS=partial(_messages, _LINK),
    STATUS=partial(_message, _STATUS),
    # These come first: see `_span`.
    **dict.fromkeys(("TRACE_ID", "SPAN_ID", "PARENT_SPAN_ID"), lambda *_: b""),
)
