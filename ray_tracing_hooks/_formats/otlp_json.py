"""Encoded OTLP messages as OTLP-JSON text: what the OTLP file exporter specification wants in a ``.jsonl`` file.

It is protobuf's JSON with three differences: ids are hexadecimal, enums are integers, and unknown fields are left
out. As there, 64-bit integers are strings, bytes are base64, and a field at its default is omitted; the value of an
attribute is not, since ``false``, ``0`` and ``""`` differ from no value. Text that is not UTF-8 has its wrong bytes
replaced. The result is plain ASCII: no reader can take a line separator of Unicode for the end of a line.

Each message is a table from the tag of a field to what writes its JSON member. The writers take all values of the
field: of a repeated one each is an element, of any other the last counts, and sub-messages merge, as in protobuf.

Spans of Ray's calls are many and alike, so they take a shorter way (:func:`_call`). It gives the same text.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.wire import MAX_DEPTH, FormatError, field, fields

__all__ = ["FormatError", "log_record_json", "resource_json", "scope_json", "span_json"]

_CACHED_BYTES = 256
"""Attributes up to this size are remembered; most repeat from span to span."""

_json_text = json.JSONEncoder().encode
_unpack_u64 = struct.Struct("<Q").unpack
_unpack_double = struct.Struct("<d").unpack

_Member = Callable[[list[Any]], str]
_Message = Mapping[int, _Member]


def resource_json(resource: bytes) -> str:
    """An encoded ``Resource`` as a JSON object. Raises FormatError if it is none."""
    return _object(resource, _RESOURCE)


def scope_json(scope: bytes) -> str:
    """An encoded ``InstrumentationScope`` as a JSON object. Raises FormatError if it is none."""
    return _object(scope, _SCOPE)


def span_json(span: bytes) -> str:
    """An encoded ``Span`` as a JSON object. Raises FormatError if it is none."""
    return _call(span) or _object(span, _SPAN)


def log_record_json(record: bytes) -> str:
    """An encoded ``LogRecord`` as a JSON object. Raises FormatError if it is none."""
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
    """A plain field: ``write`` gives the JSON of its value, or nothing for the default."""

    def member(values: list[Any]) -> str:
        text = write(values[-1])
        return f'"{name}":{text}' if text else ""

    return member


def _many(name: str, write: Callable[[bytes], str]) -> _Member:
    def member(values: list[bytes]) -> str:
        return f'"{name}":[{",".join([write(value) for value in values])}]'

    return member


def _merged(name: str, write: Callable[[bytes], str]) -> _Member:
    """A sub-message: its parts put together are their merge."""

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
        if tag == 0x0A:
            key = part
        elif tag == 0x12:
            parts.append(part)
    members = [f'"key":{_text(key)}'] if key else []
    if parts:
        members.append(f'"value":{_any_value(b"".join(parts), depth)}')
    return "{" + ",".join(members) + "}"


def _any_value(message: bytes, depth: int) -> str:
    """The value that was set last; an ``AnyValue`` with none is null."""
    if depth > MAX_DEPTH:
        raise FormatError(f"an attribute's value nests more than {MAX_DEPTH} deep")
    last = 0
    parts: list[Any] = []
    for tag, part in fields(message):
        if tag in _NESTED and tag == last:
            parts.append(part)
        elif tag in _NESTED or tag in _PLAIN:
            last, parts = tag, [part]
    if last in _NESTED:
        name, write = _NESTED[last]
        items = [write(item, depth + 1) for tag, item in fields(b"".join(parts)) if tag == 0x0A]
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
    0x0A: ("stringValue", lambda value: _text(value) or '""'),
    0x10: ("boolValue", lambda value: "true" if value else "false"),
    0x18: ("intValue", lambda value: f'"{_signed(value, 64)}"'),
    0x21: ("doubleValue", _double),
    0x3A: ("bytesValue", lambda value: f'"{base64.b64encode(value).decode()}"'),
}
_NESTED: Mapping[int, tuple[str, Callable[[bytes, int], str]]] = {
    0x2A: ("arrayValue", _any_value),
    0x32: ("kvlistValue", _key_value),
}

_RESOURCE: _Message = {
    0x0A: _many("attributes", _attribute),
    0x10: _one("droppedAttributesCount", _uint32),
}
_SCOPE: _Message = {
    0x0A: _one("name", _text),
    0x12: _one("version", _text),
    0x1A: _many("attributes", _attribute),
    0x20: _one("droppedAttributesCount", _uint32),
}
_EVENT: _Message = {
    0x09: _one("timeUnixNano", _fixed64),
    0x12: _one("name", _text),
    0x1A: _many("attributes", _attribute),
    0x20: _one("droppedAttributesCount", _uint32),
}
_LINK: _Message = {
    0x0A: _one("traceId", _id),
    0x12: _one("spanId", _id),
    0x1A: _one("traceState", _text),
    0x22: _many("attributes", _attribute),
    0x28: _one("droppedAttributesCount", _uint32),
    0x35: _one("flags", _fixed32),
}
_STATUS: _Message = {
    0x12: _one("message", _text),
    0x18: _one("code", _enum),
}
_SPAN: _Message = {
    0x0A: _one("traceId", _id),
    0x12: _one("spanId", _id),
    0x1A: _one("traceState", _text),
    0x22: _one("parentSpanId", _id),
    0x2A: _one("name", _text),
    0x30: _one("kind", _enum),
    0x39: _one("startTimeUnixNano", _fixed64),
    0x41: _one("endTimeUnixNano", _fixed64),
    0x4A: _many("attributes", _attribute),
    0x50: _one("droppedAttributesCount", _uint32),
    0x5A: _many("events", lambda value: _object(value, _EVENT)),
    0x60: _one("droppedEventsCount", _uint32),
    0x6A: _many("links", lambda value: _object(value, _LINK)),
    0x70: _one("droppedLinksCount", _uint32),
    0x7A: _merged("status", lambda value: _object(value, _STATUS)),
    0x85: _one("flags", _fixed32),
}
_LOG_RECORD: _Message = {
    0x09: _one("timeUnixNano", _fixed64),
    0x10: _one("severityNumber", _enum),
    0x1A: _one("severityText", _text),
    0x2A: _merged("body", lambda value: _any_value(value, 0)),
    0x32: _many("attributes", _attribute),
    0x38: _one("droppedAttributesCount", _uint32),
    0x45: _one("flags", _fixed32),
    0x4A: _one("traceId", _id),
    0x52: _one("spanId", _id),
    0x59: _one("observedTimeUnixNano", _fixed64),
    0x62: _one("eventName", _text),
}

_HEAD = re.compile(
    rb"\x0a\x10(.{16})\x12\x08(.{8})(?:\x22\x08(.{8}))?\x85\x01(\x00[\x01\x03]\x00\x00)\x39(.{8})(?:\x41(.{8}))?",
    re.DOTALL,
)
"""How the recorder begins a span: its ids, its parent's, flags, and its times, as far as they are known by then."""


def _before(key: str, value: bytes, size: int) -> bytes:
    """What stands before the last ``size`` bytes of an attribute of a span."""
    return field(0x4A, field(0x0A, key.encode()) + field(0x12, value))[:-size]


_ID_KEYS = {
    _before(key, field(0x0A, bytes(size)), size): f'{{"key":"{key}","value":{{"stringValue":"'
    for key, size in ((names.RAY_TASK_ID, 48), (names.RAY_PARENT_TASK_ID, 48), (names.RAY_ACTOR_ID, 32))
}
# How long the text is stands just before it.
_ID = rb"(%b)((?<=\x30)[0-9a-f]{48}|(?<=\x20)[0-9a-f]{32})" % b"|".join(map(re.escape, _ID_KEYS))
_SUBMITTED = rb"%b(\x18[\x80-\xff]{8}[\x01-\x7f])" % re.escape(_before(names.RAY_SUBMIT_TIME, bytes(10), 10))
_VARYING = re.compile(rb"%b(?:%b)?(?:%b)?(?:%b)?(?:\x41(.{8}))?" % (_ID, _ID, _ID, _SUBMITTED), re.DOTALL)
"""The attributes by which the calls of one call site differ, and the end of a span that code ran inside of."""

_FLAGS = {flags.to_bytes(4, "little"): flags for flags in (0x100, 0x300)}
"""The two that the recorder writes: the parent is local, or remote."""

_TEMPLATE_BYTES = 1024
"""Templates up to this size are remembered: a usual one takes half of it, and its text twice as much."""

_OF_TEMPLATE = frozenset({0x2A, 0x30, 0x4A})
"""Name, kind and attributes."""

_WRITTEN = frozenset({0x0A, 0x12, 0x22, 0x2A, 0x30, 0x39, 0x85})
"""The plain fields that a call has before its own attributes."""


def _call(span: bytes) -> str:
    """The same for a span that the recorder has made of a call; nothing for one that is put together otherwise.

    Between the fields that it begins with and its own attributes stands what all spans of its call site share, the
    template, and that is remembered as text. A template is taken only if it is whole fields. So the attributes that
    were found after it do begin there, and are not in the middle of something else.
    """
    head = _HEAD.match(span)
    varying = head and _VARYING.search(span, head.end())
    if not head or not varying:
        return ""
    template = span[head.end() : varying.start()]
    if len(template) > _TEMPLATE_BYTES or not (shared := _template(template)):
        return ""
    trace_id, span_id, parent_id, flags, start, end = head.groups()
    key, text, key_2, text_2, key_3, text_3, submitted, later_end = varying.groups()
    more = others = ""
    if varying.end() < len(span):
        # What user code has added, or how it failed.
        try:
            values = _values(span[varying.end() :], _SPAN)
        except FormatError:
            return ""
        if not _WRITTEN.isdisjoint(values):
            return ""
        more = "".join(["," + _attribute(value) for value in values.pop(0x4A, ())])
        later_end = values.pop(0x41, [later_end])[-1]
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
        own += f',{{"key":"{names.RAY_SUBMIT_TIME}","value":{{"intValue":"{fields(submitted)[0][1]}"}}}}'
    return (
        f'{{"traceId":"{trace_id.hex()}","spanId":"{span_id.hex()}",{parent}"flags":{_FLAGS[flags]},'
        f'"startTimeUnixNano":"{start_time}","endTimeUnixNano":"{end_time}",{shared}{own}{more}]{others}}}'
    )


@lru_cache(maxsize=2048)
def _template(message: bytes) -> str:
    """The members that a template makes, the list of attributes left open for more; nothing if it is no template."""
    try:
        values = _values(message, _SPAN)
        if not _OF_TEMPLATE.issuperset(values):
            return ""
        attributes = [_attribute(value) + "," for value in values.pop(0x4A, ())]
    except FormatError:
        return ""
    described = _members(values, _SPAN)
    return f'{described}{"," if described else ""}"attributes":[{"".join(attributes)}'
