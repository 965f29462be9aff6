"""The tags of the fields in OTLP's messages: field number and wire type, ``number << 3 | type``.

Messages and fields are named as in OpenTelemetry's ``.proto`` files.
"""

from __future__ import annotations

from collections.abc import Iterator


class SpanTag:
    TRACE_ID = 0x0A
    SPAN_ID = 0x12
    TRACE_STATE = 0x1A
    PARENT_SPAN_ID = 0x22
    NAME = 0x2A
    KIND = 0x30
    START_TIME = 0x39
    END_TIME = 0x41
    ATTRIBUTES = 0x4A
    DROPPED_ATTRIBUTES_COUNT = 0x50
    EVENTS = 0x5A
    DROPPED_EVENTS_COUNT = 0x60
    LINKS = 0x6A
    DROPPED_LINKS_COUNT = 0x70
    STATUS = 0x7A
    FLAGS = 0x85
    """A field with a number above 15: its tag takes two bytes, ``85 01``."""


class EventTag:
    TIME = 0x09
    NAME = 0x12
    ATTRIBUTES = 0x1A
    DROPPED_ATTRIBUTES_COUNT = 0x20


class LinkTag:
    TRACE_ID = 0x0A
    SPAN_ID = 0x12
    TRACE_STATE = 0x1A
    ATTRIBUTES = 0x22
    DROPPED_ATTRIBUTES_COUNT = 0x28
    FLAGS = 0x35


class StatusTag:
    MESSAGE = 0x12
    CODE = 0x18


class ResourceTag:
    ATTRIBUTES = 0x0A
    DROPPED_ATTRIBUTES_COUNT = 0x10


class ScopeTag:
    NAME = 0x0A
    VERSION = 0x12
    ATTRIBUTES = 0x1A
    DROPPED_ATTRIBUTES_COUNT = 0x20


class KeyValueTag:
    KEY = 0x0A
    VALUE = 0x12


class AnyValueTag:
    STRING = 0x0A
    BOOL = 0x10
    INT = 0x18
    DOUBLE = 0x21
    ARRAY = 0x2A
    KVLIST = 0x32
    BYTES = 0x3A


class ListTag:
    """``ArrayValue`` and ``KeyValueList``."""

    ITEMS = 0x0A


class LogRecordTag:
    TIME = 0x09
    SEVERITY_NUMBER = 0x10
    SEVERITY_TEXT = 0x1A
    BODY = 0x2A
    ATTRIBUTES = 0x32
    DROPPED_ATTRIBUTES_COUNT = 0x38
    FLAGS = 0x45
    TRACE_ID = 0x4A
    SPAN_ID = 0x52
    OBSERVED_TIME = 0x59
    EVENT_NAME = 0x62


def fields_of(message: type) -> Iterator[tuple[str, int]]:
    """The name and the tag of each field of a message."""
    return ((name, tag) for name, tag in vars(message).items() if name.isupper())


def json_name(field: str) -> str:
    """The name of a field in OTLP-JSON."""
    first, *others = field.lower().split("_")
    name = first + "".join(map(str.capitalize, others))
    return f"{name}UnixNano" if field.endswith("TIME") else name


def tags_of(message: type) -> bytes:
    """The tags of a message with one-byte tags, escaped for a character set in a pattern."""
    return b"".join(b"\\x%02x" % tag for _, tag in fields_of(message))
