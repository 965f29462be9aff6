"""Converts encoded OTLP messages to OTLP-JSON text, as the OTLP file exporter specification asks for.

It is protobuf's JSON with three differences: ids are hexadecimal, enums are integers, and unknown fields are left out.
As in protobuf's, 64-bit integers are strings, bytes are base64, and a field at its default is omitted; the value of an
attribute is not, since ``false``, ``0`` and ``""`` differ from no value. Bytes of a text that are not UTF-8 are
replaced. The result is plain ASCII: no reader can mistake a Unicode line separator for the end of a line.

Each message is a table from the tag of a field to a function that writes its JSON member. These functions take all
values of the field: for a repeated field each is an element, for a plain one the last counts, and sub-messages are
merged, as in protobuf.

Spans of Ray's calls are many and alike, so there is a fast path for them (:func:`_call`), with the same result. For
those that nothing was added to, the compiled part does the same.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ray_tracing_hooks import _compiled, names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.read import FLAGS, KEYS_OF_IDS, TAGS_BEFORE_OWN, TEMPLATE_TAGS, parts
from ray_tracing_hooks._formats.encoded_span.tags import (
    AnyValueTag,
    EventTag,
    KeyValueTag,
    LinkTag,
    ListTag,
    LogRecordTag,
    ResourceTag,
    ScopeTag,
    SpanTag,
    StatusTag,
    fields_of,
    json_name,
)
from ray_tracing_hooks._formats.protobuf import MAX_DEPTH, FormatError, fields

__all__ = ["ATTRIBUTE", "OF_TEXT", "FormatError", "log_record_json", "resource_json", "scope_json", "span_json"]

_CACHED_BYTES = 256
"""Attributes up to this size are cached; most repeat from span to span."""

_json_text = json.JSONEncoder().encode
_KEY, _VALUE = KeyValueTag.KEY, KeyValueTag.VALUE
_unpack_u64 = struct.Struct("<Q").unpack
_unpack_double = struct.Struct("<d").unpack

_Member = Callable[[list[Any]], str]
_Message = Mapping[int, _Member]


def resource_json(resource: bytes) -> str:
    """An encoded ``Resource`` as a JSON object. Raises FormatError if it is malformed."""
    return _object(resource, _RESOURCE)


def scope_json(scope: bytes) -> str:
    """An encoded ``InstrumentationScope`` as a JSON object. Raises FormatError if it is malformed."""
    return _object(scope, _SCOPE)


def span_json(span: bytes) -> str:
    """An encoded ``Span`` as a JSON object. Raises FormatError if it is malformed."""
    if _compiled.use.is_on and _call_json is not None and (text := _call_json(span)):
        return text
    return _call(span) or _object(span, _SPAN)


def log_record_json(record: bytes) -> str:
    """An encoded ``LogRecord`` as a JSON object. Raises FormatError if it is malformed."""
    return _object(record, _LOG_RECORD)


def _object(message: bytes, members: _Message) -> str:
    return "{" + _members(_values(message, members), members) + "}"


def _values(message: bytes, members: _Message) -> dict[int, list[Any]]:
    values: dict[int, list[Any]] = {}
    for tag, value in fields(message):
        if tag in values:
            values[tag].append(value)
        elif tag in members:
            values[tag] = [value]
    return values


def _members(values: Mapping[int, list[Any]], members: _Message) -> str:
    written = [members[tag](found) for tag, found in values.items()]
    return ",".join([member for member in written if member])


def _one(name: str, write: Callable[[Any], str]) -> _Member:
    """A plain field: ``write`` returns the JSON of its value, empty for the default."""

    def member(values: list[Any]) -> str:
        text = write(values[-1])
        return f'"{name}":{text}' if text else ""

    return member


def _many(name: str, write: Callable[[bytes], str]) -> _Member:
    def member(values: list[bytes]) -> str:
        return f'"{name}":[{",".join([write(value) for value in values])}]'

    return member


def _merged(name: str, write: Callable[[bytes], str]) -> _Member:
    """A sub-message: concatenating its parts merges them."""

    def member(values: list[bytes]) -> str:
        return f'"{name}":{write(b"".join(values))}'

    return member


def _text(value: bytes) -> str:
    return _json_text(value.decode("utf-8", "replace")) if value else ""


def _id(value: bytes) -> str:
    return f'"{value.hex()}"' if value else ""


def _uint32(value: int) -> str:
    value &= 0xFFFF_FFFF
    return str(value) if value else ""


def _enum(value: int) -> str:
    value = _signed(value & 0xFFFF_FFFF, 32)
    return str(value) if value else ""


def _fixed32(value: bytes) -> str:
    number = int.from_bytes(value, "little")
    return str(number) if number else ""


def _fixed64(value: bytes) -> str:
    number = int.from_bytes(value, "little")
    return f'"{number}"' if number else ""


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _attribute(value: bytes) -> str:
    return _remembered_attribute(value) if len(value) <= _CACHED_BYTES else _key_value(value, 0)


@lru_cache(maxsize=4096)
def _remembered_attribute(value: bytes) -> str:
    return _key_value(value, 0)


def _key_value(message: bytes, depth: int) -> str:
    key = b""
    parts: list[bytes] = []
    for tag, part in fields(message):
        if tag == _KEY:
            key = part
        elif tag == _VALUE:
            parts.append(part)
    members = [f'"key":{_text(key)}'] if key else []
    if parts:
        members.append(f'"value":{_any_value(b"".join(parts), depth)}')
    return "{" + ",".join(members) + "}"


def _any_value(message: bytes, depth: int) -> str:
    """The value that was set last; an ``AnyValue`` without one is null."""
    if depth > MAX_DEPTH:
        raise FormatError(f"an attribute's value is nested more than {MAX_DEPTH} levels deep")
    last = 0
    parts: list[Any] = []
    for tag, part in fields(message):
        if tag in _NESTED and tag == last:
            parts.append(part)
        elif tag in _NESTED or tag in _PLAIN:
            last, parts = tag, [part]
    if last in _NESTED:
        name, write = _NESTED[last]
        items = [write(item, depth + 1) for tag, item in fields(b"".join(parts)) if tag == ListTag.ITEMS]
        return f'{{"{name}":{{"values":[{",".join(items)}]}}}}' if items else f'{{"{name}":{{}}}}'
    if last in _PLAIN:
        name, write_plain = _PLAIN[last]
        return f'{{"{name}":{write_plain(parts[-1])}}}'
    return "{}"


def _double(value: bytes) -> str:
    number: float = _unpack_double(value)[0]
    if math.isfinite(number):
        return repr(number)
    return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'


_PLAIN: Mapping[int, tuple[str, Callable[[Any], str]]] = {
    AnyValueTag.STRING: ("stringValue", lambda value: _text(value) or '""'),
    AnyValueTag.BOOL: ("boolValue", lambda value: "true" if value else "false"),
    AnyValueTag.INT: ("intValue", lambda value: f'"{_signed(value, 64)}"'),
    AnyValueTag.DOUBLE: ("doubleValue", _double),
    AnyValueTag.BYTES: ("bytesValue", lambda value: f'"{base64.b64encode(value).decode()}"'),
}
_NESTED: Mapping[int, tuple[str, Callable[[bytes, int], str]]] = {
    AnyValueTag.ARRAY: ("arrayValue", _any_value),
    AnyValueTag.KVLIST: ("kvlistValue", _key_value),
}

_OF_FIELD: Mapping[str, tuple[Callable[[str, Callable[[Any], str]], _Member], Callable[[Any], str]]] = {
    "ATTRIBUTES": (_many, _attribute),
    "EVENTS": (_many, lambda value: _object(value, _EVENT)),
    "LINKS": (_many, lambda value: _object(value, _LINK)),
    "STATUS": (_merged, lambda value: _object(value, _STATUS)),
    "BODY": (_merged, lambda value: _any_value(value, 0)),
    **dict.fromkeys(("TRACE_ID", "SPAN_ID", "PARENT_SPAN_ID"), (_one, _id)),
}
_OF_WIRE_TYPE: Mapping[int, Callable[[Any], str]] = {0: _enum, 1: _fixed64, 2: _text, 5: _fixed32}
"""How other fields are written, except for counts of what was dropped."""


def _table(message: type) -> _Message:
    members = {}
    for field, tag in fields_of(message):
        plain = _uint32 if field.startswith("DROPPED") else _OF_WIRE_TYPE[tag & 7]
        kind, write = _OF_FIELD.get(field, (_one, plain))
        members[tag] = kind(json_name(field), write)
    return members


_RESOURCE: _Message = _table(ResourceTag)
_SCOPE: _Message = _table(ScopeTag)
_EVENT: _Message = _table(EventTag)
_LINK: _Message = _table(LinkTag)
_STATUS: _Message = _table(StatusTag)
_SPAN: _Message = _table(SpanTag)
_LOG_RECORD: _Message = _table(LogRecordTag)

ATTRIBUTE, OF_TEXT = '{"key":"', '","value":{"stringValue":"'
"""The beginning of an attribute, and the text between its key and a value that is text.

Readers may look for these: in a span of a call the attributes that many calls share come first, and then
``ray.task_id`` or ``ray.parent_task_id``.
"""

_ID_KEYS = {before: f"{ATTRIBUTE}{key}{OF_TEXT}" for before, key in KEYS_OF_IDS.items()}

_SUBMIT_TIME = f',{ATTRIBUTE}{names.RAY_SUBMIT_TIME}","value":{{"intValue":"'

_TEMPLATE_BYTES = 1024
"""Templates up to this size are cached: a typical one takes half of it, and its text twice as much."""


def _call(span: bytes) -> str:
    """The fast path for a call's span that the recorder has made; empty for a span with another layout.

    Between the first fields and the call's own attributes is the part that all spans of its call site share, the
    template, whose text is cached. A template is accepted only if it consists of whole fields. So the attributes that
    were found after it do begin there, and not in the middle of another field.
    """
    found = parts(span)
    if found is None:
        return ""
    head, template, own_part, rest = found
    if len(template) > _TEMPLATE_BYTES or not (shared := _template(template)):
        return ""
    trace_id, span_id, parent_id, flags, start, end = head
    key, text, key_2, text_2, key_3, text_3, submitted, later_end = own_part
    more = others = ""
    if rest:
        try:
            values = _values(rest, _SPAN)
        except FormatError:
            return ""
        if not TAGS_BEFORE_OWN.isdisjoint(values):
            return ""
        more = "".join(["," + _attribute(value) for value in values.pop(SpanTag.ATTRIBUTES, ())])
        later_end = values.pop(SpanTag.END_TIME, [later_end])[-1]
        if others := _members(values, _SPAN):
            others = "," + others
    (start_time,), (end_time,) = _unpack_u64(start), _unpack_u64(later_end or end or bytes(8))
    if not start_time or not end_time:
        return ""
    parent = f'"parentSpanId":"{parent_id.hex()}",' if parent_id is not None else ""
    own = f'{_ID_KEYS[key]}{text.decode()}"}}}}'
    if key_2 is not None:
        own += f',{_ID_KEYS[key_2]}{text_2.decode()}"}}}}'
    if key_3 is not None:
        own += f',{_ID_KEYS[key_3]}{text_3.decode()}"}}}}'
    if submitted is not None:
        own += f'{_SUBMIT_TIME}{fields(submitted)[0][1]}"}}}}'
    return (
        f'{{"traceId":"{trace_id.hex()}","spanId":"{span_id.hex()}",{parent}"flags":{FLAGS[flags]},'
        f'"startTimeUnixNano":"{start_time}","endTimeUnixNano":"{end_time}",{shared}{own}{more}]{others}}}'
    )


@lru_cache(maxsize=2048)
def _template(message: bytes) -> str:
    """The members of a template, with the list of attributes left open; empty if it is not a template."""
    try:
        values = _values(message, _SPAN)
        if not TEMPLATE_TAGS.issuperset(values):
            return ""
        attributes = [_attribute(value) + "," for value in values.pop(SpanTag.ATTRIBUTES, ())]
    except FormatError:
        return ""
    described = _members(values, _SPAN)
    return f'{described}{"," if described else ""}"attributes":[{"".join(attributes)}'


def _compiled_call() -> Callable[[bytes], str | None] | None:
    """The compiled :func:`_call`, if it could be imported. It returns None for other spans and what was added to."""
    if _compiled.hotpath is None:
        return None
    constants = (
        *(encode.BEFORE_TRACE_ID, encode.BEFORE_SPAN_ID, encode.BEFORE_PARENT_ID, encode.START_TAG, encode.END_TAG),
        *(bytes(TEMPLATE_TAGS), encode.BEFORE_SUBMIT_TIME, _SUBMIT_TIME.encode()),
    )
    flags = [each for encoded, value in FLAGS.items() for each in (encoded, str(value).encode())]
    ids = [each for before, text in _ID_KEYS.items() for each in (before, text.encode())]
    return _compiled.hotpath.CallJson(_template, constants, tuple(flags), tuple(ids)).write


_call_json = _compiled_call()
