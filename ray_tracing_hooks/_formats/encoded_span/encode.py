"""Encodes spans, and defines the order in which this package's recorder writes their fields; and shortens encoded ones.

Each function returns complete fields, tag included, so that a message is the concatenation of its fields. Zero values
of plain scalars are left out, as protobuf does; inside an ``AnyValue`` they are written, since an absent value there
means null.

A span of the recorder begins with its head: :func:`identity_of`, :data:`start_time`, and :data:`end_time` if that is
already known, as for a submission. Then comes the part that all spans of one call site share, from
:func:`name_and_kind` and :func:`attributes`, and then the part of this span alone. A span that user code runs inside of
ends with its end time and what that code has added. :mod:`~ray_tracing_hooks._formats.encoded_span.read` relies on this
order where that is faster, and reads spans with another order too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
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
)
from ray_tracing_hooks._formats.protobuf import (
    FormatError,
    encoded_field,
    field,
    fields,
    fixed64,
    pack_double,
    pack_fixed32,
    utf8,
    varint,
)
from ray_tracing_hooks._safety.guard import failed

if TYPE_CHECKING:
    from typing import Protocol

    from opentelemetry.trace import TraceState

    class Parent(Protocol):
        @property
        def span_id(self) -> bytes: ...
        @property
        def remote(self) -> bool: ...
        @property
        def trace_state(self) -> TraceState | None: ...


STATUS_ERROR = 2
"""A code of :func:`status`."""

_KEY, _VALUE = KeyValueTag.KEY, KeyValueTag.VALUE
_ATTRIBUTES, _ITEMS = SpanTag.ATTRIBUTES, ListTag.ITEMS

# --- the head of a span -----------------------------------------------------------------------------------------------

BEFORE_TRACE_ID = bytes((SpanTag.TRACE_ID, 16))
BEFORE_SPAN_ID = bytes((SpanTag.SPAN_ID, 8))

IDS = slice(0, 28)
"""The position of both ids with their tags in each encoded span of this package: they identify the span."""
TRACE_ID = slice(2, 18)
SPAN_ID = slice(20, 28)
"""The positions of the ids themselves."""

BEFORE_PARENT_ID = bytes((SpanTag.PARENT_SPAN_ID, 8))
"""Precedes the id of a parent; one of the ``FLAGS_`` constants follows it."""

LOCAL_PARENT, REMOTE_PARENT = 0x100, 0x300
"""The flags of spans and links: 0x100 means that 0x200 is valid, 0x200 that the other span is remote."""

_FLAGS_TAG = varint(SpanTag.FLAGS)
FLAGS_LOCAL_PARENT = _FLAGS_TAG + pack_fixed32(LOCAL_PARENT)
FLAGS_REMOTE_PARENT = _FLAGS_TAG + pack_fixed32(REMOTE_PARENT)

START_TAG, END_TAG = bytes((SpanTag.START_TIME,)), bytes((SpanTag.END_TIME,))
start_time: Callable[[int], bytes] = partial(struct.Struct("<cQ").pack, START_TAG)
end_time: Callable[[int], bytes] = partial(struct.Struct("<cQ").pack, END_TAG)
start_and_end: Callable[[int, bytes, int], bytes] = partial(struct.Struct("<cQcQ").pack, START_TAG)
END_SIZE = len(end_time(0))
"""Encode times, in nanoseconds since the epoch. The last takes start, :data:`END_TAG` and end in one call."""


def identity_of(trace_id: bytes, span_id: bytes, parent: Parent | None) -> bytes:
    """The beginning of each encoded span: its ids, and its parent's id and flags."""
    return before_id(trace_id) + span_id + after_id(parent)


def before_id(trace_id: bytes) -> bytes:
    """The bytes before the id of a span of this trace."""
    return BEFORE_TRACE_ID + trace_id + BEFORE_SPAN_ID


def after_id(parent: Parent | None) -> bytes:
    """The bytes after the id of a child span of ``parent``, up to its start time."""
    if parent is None:
        return FLAGS_LOCAL_PARENT
    flags = FLAGS_REMOTE_PARENT if parent.remote else FLAGS_LOCAL_PARENT
    encoded = BEFORE_PARENT_ID + parent.span_id + flags
    state = parent.trace_state
    return encoded + trace_state(state.to_header()) if state else encoded


def trace_state(header: str) -> bytes:
    """The trace state of a span, given as its header."""
    return field(SpanTag.TRACE_STATE, utf8(header))


def name(text: str) -> bytes:
    """The name of a span. If a span has two, the last one counts."""
    return field(SpanTag.NAME, utf8(text))


def name_and_kind(text: str, kind: int) -> bytes:
    """Name and kind of a span. ``kind`` is OTLP's number, one more than the API's."""
    return name(text) + bytes((SpanTag.KIND, kind))


# --- attributes -------------------------------------------------------------------------------------------------------

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_MAX_DEPTH = 20

MOST_NESTED = 20_000
"""At most this many values inside nested containers of one value: a list that holds itself twice has millions."""

_STRING = AnyValueTag.STRING
_INT, _DOUBLE = bytes((AnyValueTag.INT,)), bytes((AnyValueTag.DOUBLE,))
_FALSE, _TRUE = bytes((AnyValueTag.BOOL, 0)), bytes((AnyValueTag.BOOL, 1))


class Nested:
    """Counts the values inside nested containers of one value."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_NESTED

    def takes(self, container: Sequence[Any] | Mapping[Any, Any]) -> bool:
        """Whether there is room for the values of ``container``, which are counted from now on."""
        if len(container) > self.left:
            return False
        self.left -= len(container)
        return True


def any_value(value: Any, depth: int = 0, nested: Nested | None = None) -> bytes | None:
    """The fields of an ``AnyValue``, or None for a value that OTLP has no type for.

    Containers that are nested too deep, or beyond :data:`MOST_NESTED` values in all, are None too.
    """
    if isinstance(value, str):
        return field(_STRING, utf8(value))
    if isinstance(value, bool):  # before int, its base class
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        if _INT64_MIN <= value <= _INT64_MAX:
            return _INT + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        return field(_STRING, _digits(value).encode())
    if value is None:
        return b""
    if isinstance(value, float):
        return _DOUBLE + pack_double(value)
    if isinstance(value, (bytes, bytearray)):
        return field(AnyValueTag.BYTES, bytes(value))
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, (Sequence, Mapping)):
        if nested is None:
            nested = Nested()
        elif not nested.takes(value):
            return None
        if isinstance(value, Mapping):
            return field(AnyValueTag.KVLIST, b"".join(_entries(value, depth, nested)))
        encoded = (any_value(item, depth + 1, nested) or b"" for item in value)
        return field(AnyValueTag.ARRAY, b"".join(field(_ITEMS, item) for item in encoded))
    return _number_like(value)


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # more digits than Python converts to decimal
        return hex(number)


def _entries(mapping: Mapping[Any, Any], depth: int, nested: Nested) -> list[bytes]:
    entries = []
    for key, item in mapping.items():
        encoded = any_value(item, depth + 1, nested)
        if encoded is not None:
            entries.append(field(_ITEMS, field(_KEY, utf8(str(key))) + field(_VALUE, encoded)))
    return entries


def _number_like(value: Any) -> bytes | None:
    # NumPy scalars and the like: not int or float, but convertible without loss.
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        converted = item()
        if isinstance(converted, (str, bool, int, float, bytes)):
            return any_value(converted)
    return None


_LONGEST_CACHED_KEY = 256


@lru_cache(maxsize=4096)
def _cached_key(key: str) -> bytes:
    return field(_KEY, utf8(key))


def attribute_key(key: str) -> bytes:
    """The key of an attribute, which its encoded ``KeyValue`` begins with."""
    return _cached_key(key) if len(key) <= _LONGEST_CACHED_KEY else field(_KEY, utf8(key))


def key_value(tag: int, key: str, value: Any) -> bytes:
    """A repeated ``KeyValue`` field under ``tag``, or nothing for a value that cannot be encoded."""
    encoded = any_value(value)
    if encoded is None:
        return b""
    return field(tag, attribute_key(key) + field(_VALUE, encoded))


def attribute(key: str, value: Any) -> bytes:
    """One attribute of a span."""
    return key_value(_ATTRIBUTES, key, value)


def attributes(mapping: Mapping[str, Any] | None, tag: int = _ATTRIBUTES) -> bytes:
    """The entries of ``mapping`` as repeated ``KeyValue`` fields under ``tag``, except those that cannot be encoded."""
    if not mapping:
        return b""
    encoded = []
    for key, value in mapping.items():
        try:
            encoded.append(key_value(tag, key, value))
        except Exception as error:  # noqa: BLE001  the user's value may be anything
            failed(f"encoding the attribute {str(key)[:100]!r}", error)
    return b"".join(encoded)


# Attributes that many spans have, encoded except for the part that differs.


def text_attribute_prefix(key: str, size: int) -> bytes:
    """The bytes before the value of a text attribute that always has ``size`` bytes of ASCII (below 128)."""
    blank = attribute(key, "0" * size)
    return blank[:-size]


def double_attribute(key: str) -> Callable[[float], bytes]:
    """A function that encodes a span's attribute of type double."""
    blank = attribute(key, 0.0)
    prefix = blank[:-8]
    return lambda value: prefix + pack_double(value)


TASK_ID_SIZE, ACTOR_ID_SIZE = 48, 32
"""Sizes of Ray's ids in hexadecimal."""

BEFORE_TASK_ID = text_attribute_prefix(names.RAY_TASK_ID, TASK_ID_SIZE)
BEFORE_PARENT_TASK_ID = text_attribute_prefix(names.RAY_PARENT_TASK_ID, TASK_ID_SIZE)
BEFORE_ACTOR_ID = text_attribute_prefix(names.RAY_ACTOR_ID, ACTOR_ID_SIZE)
"""The bytes before the ids that come first among the attributes of one call."""

_MOMENT_BYTES = 9
"""The size of nanoseconds since the epoch as a varint, until the year 2262."""

BEFORE_SUBMIT_TIME = attribute(names.RAY_SUBMIT_TIME, 1 << 62)[:-_MOMENT_BYTES]


def submit_time(moment: int) -> bytes:
    """The attribute ``ray.submit_time_unix_nano``."""
    encoded = varint(moment)
    return BEFORE_SUBMIT_TIME + encoded if len(encoded) == _MOMENT_BYTES else attribute(names.RAY_SUBMIT_TIME, moment)


# --- the rest of a span -----------------------------------------------------------------------------------------------


def nanoseconds(moment: Any) -> int:
    """A timestamp from user code as a number that OTLP can hold; the current time if it is not a number."""
    try:
        return min(max(int(moment), 0), 0xFFFF_FFFF_FFFF_FFFF)
    except (TypeError, ValueError, OverflowError):
        return now_ns()


def dropped_attributes(count: int) -> bytes:
    """The count of dropped attributes of a span; empty for 0."""
    return _count(SpanTag.DROPPED_ATTRIBUTES_COUNT, count)


def dropped_events(count: int) -> bytes:
    return _count(SpanTag.DROPPED_EVENTS_COUNT, count)


def dropped_links(count: int) -> bytes:
    return _count(SpanTag.DROPPED_LINKS_COUNT, count)


def _count(tag: int, count: int) -> bytes:
    return bytes((tag,)) + varint(count) if count else b""


def event(name: str, time_ns: int, mapping: Mapping[str, Any] | None, dropped: int = 0) -> bytes:
    """One event of a span."""
    body = fixed64(EventTag.TIME, time_ns) + field(EventTag.NAME, utf8(name)) + attributes(mapping, EventTag.ATTRIBUTES)
    return field(SpanTag.EVENTS, body + _count(EventTag.DROPPED_ATTRIBUTES_COUNT, dropped))


def link(
    trace_id: bytes, span_id: bytes, state: str, mapping: Mapping[str, Any] | None, *, remote: bool, dropped: int = 0
) -> bytes:
    """One link of a span to another span with this trace state."""
    body = field(LinkTag.TRACE_ID, trace_id) + field(LinkTag.SPAN_ID, span_id)
    if state:
        body += field(LinkTag.TRACE_STATE, utf8(state))
    body += attributes(mapping, LinkTag.ATTRIBUTES) + _count(LinkTag.DROPPED_ATTRIBUTES_COUNT, dropped)
    flags = REMOTE_PARENT if remote else LOCAL_PARENT
    return field(SpanTag.LINKS, body + bytes((LinkTag.FLAGS,)) + pack_fixed32(flags))


def status(code: int, message: str | None = None) -> bytes:
    """The status of a span; an unset one takes no bytes."""
    if not code:
        return b""
    body = field(StatusTag.MESSAGE, utf8(message)) if message else b""
    return field(SpanTag.STATUS, body + bytes((StatusTag.CODE, code)))


# --- resource and scope -----------------------------------------------------------------------------------------------


def resource(mapping: Mapping[str, Any]) -> bytes:
    """An encoded ``Resource`` message."""
    return attributes(mapping, ResourceTag.ATTRIBUTES)


def scope(name: str, version: str | None = None, mapping: Mapping[str, Any] | None = None) -> bytes:
    """An encoded ``InstrumentationScope`` message."""
    body = field(ScopeTag.NAME, utf8(name)) if name else b""
    if version:
        body += field(ScopeTag.VERSION, utf8(version))
    return body + attributes(mapping, ScopeTag.ATTRIBUTES)


def without_attributes(span: bytes, keys: Iterable[str]) -> bytes:
    """The encoded span without its attributes of these keys: OTLP allows each key once.

    Raises FormatError if the span is malformed.
    """
    begins = tuple(map(attribute_key, keys))
    return b"".join(
        encoded_field(tag, value)
        for tag, value in fields(span)
        if tag != SpanTag.ATTRIBUTES or not value.startswith(begins)
    )


# --- what is too long ------------------------------------------------------------------------------------------------

_COUNTS = {
    SpanTag.ATTRIBUTES: SpanTag.DROPPED_ATTRIBUTES_COUNT,
    SpanTag.EVENTS: SpanTag.DROPPED_EVENTS_COUNT,
    SpanTag.LINKS: SpanTag.DROPPED_LINKS_COUNT,
}
"""Attributes, events and links, and the fields with the counts of dropped ones."""

_MOST_TEXT = 1024


def shorten(span: bytes, most: int) -> bytes:
    """The encoded span in at most ``most`` bytes, which must be more than a few thousand.

    Its ids, times and kind are kept; a long name or status message is truncated.
    """
    found = fields(span)
    # Leave room for the counts and for longer length fields.
    excess = len(span) - most + 64
    dropped = dict.fromkeys(_COUNTS.values(), 0)
    removed = set()
    for index in sorted(range(len(found)), key=lambda index: _size(found[index][1]), reverse=True):
        tag, value = found[index]
        if excess <= 0:
            break
        if tag in _COUNTS:
            removed.add(index)
            dropped[_COUNTS[tag]] += 1
            excess -= _size(value)
        elif tag in _SHORTER:
            shorter = _SHORTER[tag](value)
            found[index] = (tag, shorter)
            excess -= _size(value) - len(shorter)
    parts = []
    for index, (tag, value) in enumerate(found):
        if tag in dropped:
            dropped[tag] += value
        elif index not in removed:
            parts.append(encoded_field(tag, value))
    parts += [bytes((tag,)) + varint(count) for tag, count in dropped.items() if count]
    return b"".join(parts)


def _size(value: int | bytes) -> int:
    return 0 if isinstance(value, int) else len(value)


def _text(value: bytes) -> bytes:
    return value[:_MOST_TEXT].decode("utf-8", "ignore").encode()


def _status(value: bytes) -> bytes:
    try:
        parts = fields(value)
    except FormatError:
        return b""
    return b"".join(
        field(tag, _text(part)) if tag == StatusTag.MESSAGE else encoded_field(tag, part) for tag, part in parts
    )


_SHORTER: dict[int, Callable[[bytes], bytes]] = {
    SpanTag.NAME: _text,
    SpanTag.STATUS: _status,
    SpanTag.TRACE_STATE: lambda _: b"",
}
