"""Encoding of spans in the protobuf wire format of ``opentelemetry/proto/trace/v1/trace.proto``.

Each function returns a complete field, tag included, so that a message is the concatenation of its fields. Zero values
of plain scalars are left out, as protobuf does; inside an ``AnyValue`` they are written, since an absent value there
means null.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ray_tracing_hooks._formats.wire import field, fixed64, utf8, varint
from ray_tracing_hooks._guard import failed

__all__ = [
    "FLAGS_LOCAL_PARENT",
    "FLAGS_REMOTE_PARENT",
    "STATUS_ERROR",
    "any_value",
    "attribute",
    "attributes",
    "double_attribute",
    "event",
    "field",
    "fixed64",
    "key_value",
    "link",
    "name_and_kind",
    "nanoseconds",
    "resource",
    "scope",
    "status",
    "text_attribute_prefix",
    "utf8",
    "varint",
]

_pack_fixed32 = struct.Struct("<I").pack
_pack_double = struct.Struct("<d").pack

STATUS_ERROR = 2

FLAGS_LOCAL_PARENT = b"\x85\x01" + _pack_fixed32(0x100)
FLAGS_REMOTE_PARENT = b"\x85\x01" + _pack_fixed32(0x300)
"""The ``flags`` field: 0x100 says that it is known whether the parent is remote, 0x200 that it is."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_MAX_DEPTH = 20


def any_value(value: Any, depth: int = 0) -> bytes | None:
    """The fields of an ``AnyValue``, or None for a value that OTLP has no type for."""
    if isinstance(value, str):
        return field(0x0A, utf8(value))
    if isinstance(value, bool):  # before int, which it is a subclass of
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        if _INT64_MIN <= value <= _INT64_MAX:
            return b"\x18" + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        return field(0x0A, _digits(value).encode())
    if value is None:
        return b""
    if isinstance(value, float):
        return b"\x21" + _pack_double(value)
    if isinstance(value, (bytes, bytearray)):
        return field(0x3A, bytes(value))
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return field(0x32, b"".join(_entries(value, depth)))
    if isinstance(value, Sequence):
        encoded = (any_value(item, depth + 1) or b"" for item in value)
        return field(0x2A, b"".join(field(0x0A, item) for item in encoded))
    return _number_like(value)


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # more digits than Python writes in decimal
        return hex(number)


def _entries(mapping: Mapping[Any, Any], depth: int) -> list[bytes]:
    entries = []
    for key, item in mapping.items():
        encoded = any_value(item, depth + 1)
        if encoded is not None:
            entries.append(field(0x0A, field(0x0A, utf8(str(key))) + field(0x12, encoded)))
    return entries


def _number_like(value: Any) -> bytes | None:
    # NumPy scalars and the like: neither int nor float, but they convert without loss.
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        converted = item()
        if isinstance(converted, (str, bool, int, float, bytes)):
            return any_value(converted)
    return None


_LONGEST_CACHED_KEY = 256


@lru_cache(maxsize=4096)
def _cached_key(key: str) -> bytes:
    return field(0x0A, utf8(key))


def _key(key: str) -> bytes:
    return _cached_key(key) if len(key) <= _LONGEST_CACHED_KEY else field(0x0A, utf8(key))


def key_value(tag: int, key: str, value: Any) -> bytes:
    """A repeated ``KeyValue`` field under ``tag``, or nothing for a value that cannot be encoded."""
    encoded = any_value(value)
    if encoded is None:
        return b""
    return field(tag, _key(key) + field(0x12, encoded))


def attribute(key: str, value: Any) -> bytes:
    """One attribute of a span (field 9)."""
    return key_value(0x4A, key, value)


def attributes(mapping: Mapping[str, Any] | None, tag: int = 0x4A) -> bytes:
    """The entries of ``mapping`` as repeated ``KeyValue`` fields under ``tag``, but those that cannot be encoded."""
    if not mapping:
        return b""
    encoded = []
    for key, value in mapping.items():
        try:
            encoded.append(key_value(tag, key, value))
        except Exception as error:  # noqa: BLE001  a value of the user's may be anything
            failed(f"encoding the attribute {str(key)[:100]!r}", error)
    return b"".join(encoded)


def text_attribute_prefix(key: str, size: int) -> bytes:
    """What stands before the text of a span's attribute whose value always has ``size`` bytes of ASCII (below 128)."""
    blank = attribute(key, "0" * size)
    return blank[:-size]


def double_attribute(key: str) -> Callable[[float], bytes]:
    """What encodes an attribute of a span whose values are doubles."""
    blank = attribute(key, 0.0)
    prefix = blank[:-8]
    return lambda value: prefix + _pack_double(value)


def nanoseconds(moment: Any) -> int:
    """A moment that user code has given, as a number that OTLP can hold: now, if it is none."""
    try:
        return min(max(int(moment), 0), 0xFFFF_FFFF_FFFF_FFFF)
    except (TypeError, ValueError, OverflowError):
        return time.time_ns()


def event(name: str, time_ns: int, mapping: Mapping[str, Any] | None, dropped: int = 0) -> bytes:
    """One event of a span (field 11)."""
    body = fixed64(0x09, time_ns) + field(0x12, utf8(name)) + attributes(mapping, 0x1A)
    if dropped:
        body += b"\x20" + varint(dropped)
    return field(0x5A, body)


def link(
    trace_id: bytes, span_id: bytes, trace_state: str, mapping: Mapping[str, Any] | None, flags: int, dropped: int = 0
) -> bytes:
    """One link of a span (field 13)."""
    body = b"\x0a\x10" + trace_id + b"\x12\x08" + span_id
    if trace_state:
        body += field(0x1A, utf8(trace_state))
    body += attributes(mapping, 0x22)
    if dropped:
        body += b"\x28" + varint(dropped)
    return field(0x6A, body + b"\x35" + _pack_fixed32(flags))


def status(code: int, message: str | None = None) -> bytes:
    """The status of a span (field 15); an unset one takes no bytes."""
    if not code:
        return b""
    body = field(0x12, utf8(message)) if message else b""
    return field(0x7A, body + b"\x18" + bytes((code,)))


def name_and_kind(name: str, kind: int) -> bytes:
    """Fields 5 and 6. ``kind`` is OTLP's number, one more than the API's."""
    return field(0x2A, utf8(name)) + b"\x30" + bytes((kind,))


def resource(mapping: Mapping[str, Any]) -> bytes:
    """An encoded ``Resource`` message."""
    return attributes(mapping, 0x0A)


def scope(name: str, version: str | None = None, mapping: Mapping[str, Any] | None = None) -> bytes:
    """An encoded ``InstrumentationScope`` message."""
    body = field(0x0A, utf8(name)) if name else b""
    if version:
        body += field(0x12, utf8(version))
    return body + attributes(mapping, 0x1A)
