"""Encoded OTLP messages as OTLP-JSON text: what the OTLP file exporter specification wants in a ``.jsonl`` file.

It is protobuf's JSON with three differences: ids are hexadecimal, enums are integers, and unknown fields are left
out. As there, 64-bit integers are strings, bytes are base64, and a field at its default is omitted; the value of an
attribute is not, since ``false``, ``0`` and ``""`` differ from no value. Text that is not UTF-8 has its wrong bytes
replaced. The result is plain ASCII: no reader can take a line separator of Unicode for the end of a line.

Each message is a table from the tag of a field to what writes its JSON member. The writers take all values of the
field: of a repeated one each is an element, of any other the last counts, and sub-messages merge, as in protobuf.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ray_tracing_hooks._formats.wire import MAX_DEPTH, FormatError, fields

__all__ = ["FormatError", "resource_json", "scope_json", "span_json", "traces_line"]

_CACHED_BYTES = 256
"""Attributes up to this size are remembered; most repeat from span to span."""

_json_text = json.JSONEncoder().encode
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
    return _object(span, _SPAN)


def traces_line(resource: str, scope: str, spans: Sequence[str]) -> str:
    """One line of a file, newline included: a ``TracesData`` of one resource, one scope and spans, given as JSON."""
    joined = ",".join(spans)
    return f'{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":[{joined}]}}]}}]}}\n'


def _object(message: bytes, members: _Message) -> str:
    values: dict[int, list[Any]] = {}
    for tag, value in fields(message):
        if tag in values:
            values[tag].append(value)
        elif tag in members:
            values[tag] = [value]
    written = [members[tag](found) for tag, found in values.items()]
    return "{" + ",".join([member for member in written if member]) + "}"


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
