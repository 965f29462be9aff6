"""Finds in encoded spans what the shipper needs, without decoding the rest.

The fast functions rely on where the recorder writes fields (see
:mod:`~ray_tracing_hooks._formats.encoded_span.encode`). Spans with another order, such as those of the API, are parsed
field by field, or left to the caller.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import ERROR, decode_attribute
from ray_tracing_hooks._formats.encoded_span.tags import KeyValueTag, LogRecordTag, SpanTag, StatusTag
from ray_tracing_hooks._formats.protobuf import FormatError, field, fields

_PARENT, _FLAGS_TAG = SpanTag.PARENT_SPAN_ID, SpanTag.FLAGS
_START, _END = SpanTag.START_TIME, SpanTag.END_TIME
_PARENT_AT = encode.IDS.stop

IDS_FORM = re.escape(encode.BEFORE_TRACE_ID) + b".{16}" + re.escape(encode.BEFORE_SPAN_ID)
"""The beginning of each encoded span of this package, up to its own id, as a pattern (with DOTALL)."""

_fixed64 = struct.Struct("<Q").unpack


# --- single fields of any span ----------------------------------------------------------------------------------------


def trace_id(span: bytes) -> bytes:
    """The trace id of ``span``; empty if it is malformed."""
    if span.startswith(encode.BEFORE_TRACE_ID):
        return span[encode.TRACE_ID]
    return next((value for tag, value in _fields(span) if tag == SpanTag.TRACE_ID), b"")


def own_ids(span: bytes) -> bytes:
    """The trace id and the id of ``span``, 24 bytes; fewer if it is malformed."""
    own = {tag: value for tag, value in _fields(span) if tag in (SpanTag.TRACE_ID, SpanTag.SPAN_ID)}
    return b"".join(own.get(tag, b"") for tag in (SpanTag.TRACE_ID, SpanTag.SPAN_ID))


def parent_id(span: bytes) -> bytes:
    """The id of the parent of ``span``; empty for a root, or if ``span`` is malformed."""
    if span.startswith(encode.BEFORE_PARENT_ID, _PARENT_AT):
        return span[_PARENT_AT + 2 : _PARENT_AT + 10]
    return next((value for tag, value in _fields(span) if tag == _PARENT), b"")


def start_time(span: bytes) -> int:
    """When a span began, in nanoseconds since the epoch; 0 if that is unknown."""
    return next((int.from_bytes(value, "little") for tag, value in _fields(span) if tag == _START), 0)


def end_time(span: bytes) -> int:
    """When a span ended, in nanoseconds since the epoch; 0 if that is unknown."""
    return next((int.from_bytes(value, "little") for tag, value in _fields(span) if tag == _END), 0)


def log_time(record: bytes) -> int:
    """When a log record was made, in nanoseconds since the epoch; 0 if that is unknown."""
    found = next((value for tag, value in _fields(record) if tag == LogRecordTag.TIME), b"")
    return int.from_bytes(found, "little")


def _fields(span: bytes) -> list[tuple[int, Any]]:
    try:
        return fields(span)
    except FormatError:
        return []


# --- attributes -------------------------------------------------------------------------------------------------------


def key_of_attribute(key: str) -> bytes:
    """The beginning of an encoded attribute with this key, after its tag and length of two bytes."""
    return field(KeyValueTag.KEY, key.encode()) + bytes((KeyValueTag.VALUE,))


_PID = key_of_attribute(names.RAY_PID)

# --- calls, for metrics -----------------------------------------------------------------------------------------------

_TAG_AND_LENGTH = 2
_END_SIZE = len(encode.end_time(0))

# After the ids: the parent's id with its tag and length; two bytes of tag and four of flags; the start time; and the
# end time if it is already known.
_BELOW_PARENT = struct.Struct("<30x8sBx4xBQBQ")
_ROOT = struct.Struct("<28xBx4xBQBQ")
_AFTER_START_BELOW_PARENT, _AFTER_START = _BELOW_PARENT.size - _END_SIZE, _ROOT.size - _END_SIZE
_unpack_below_parent, _unpack_root = _BELOW_PARENT.unpack_from, _ROOT.unpack_from

Call = tuple[bytes, int, int, bytes, int]
"""The id of the parent, empty for a root; start and end in nanoseconds since the epoch, with -1 for an end that comes
later; encoded name, kind and attributes that all calls of a function share; and the offset where these end."""


def call(span: bytes) -> Call | None:
    """The fields of a call's span that the recorder has made; None for a span with another layout.

    Raises FormatError if the span is malformed.
    """
    try:
        if span[_PARENT_AT] == _PARENT:
            parent, flags_tag, start_tag, start, end_tag, end = _unpack_below_parent(span)
            position = _AFTER_START_BELOW_PARENT
        else:
            parent = b""
            flags_tag, start_tag, start, end_tag, end = _unpack_root(span)
            position = _AFTER_START
    except struct.error:  # shorter than any span of the recorder
        return None
    except IndexError:
        raise FormatError("a span with nothing but its ids") from None
    if end_tag == _END:
        position += _END_SIZE
    else:
        end = -1
    # From the pid on, attributes are those of the process.
    shared_end = span.find(_PID, position) - _TAG_AND_LENGTH
    if flags_tag != _FLAGS_TAG or start_tag != _START or shared_end < 0:
        return None
    return parent, start, end, span[position:shared_end], shared_end


_TASK_ID = encode.BEFORE_TASK_ID
_TASK_ID_SIZE = len(encode.BEFORE_TASK_ID) + encode.TASK_ID_SIZE
_PARENT_TASK_ID = encode.BEFORE_PARENT_TASK_ID
_PARENT_TASK_ID_SIZE = len(encode.BEFORE_PARENT_TASK_ID) + encode.TASK_ID_SIZE
_ACTOR_ID = encode.BEFORE_ACTOR_ID
_ACTOR_ID_SIZE = len(encode.BEFORE_ACTOR_ID) + encode.ACTOR_ID_SIZE
_NOTHING: Mapping[str, Any] = {}
_end_at = struct.Struct("<Q").unpack_from


def own_part(span: bytes, shared_end: int, keys: tuple[bytes, ...]) -> tuple[int, Mapping[str, Any], bool] | None:
    """The part of an execution that is specific to one call: end, some attributes, and whether the status is ERROR.

    ``shared_end`` is the last item of :func:`call`, and ``keys`` are those of the attributes, from
    :func:`key_of_attribute`. None for a span with another layout. The specific attributes begin with some of fixed
    sizes in a fixed order, and in most calls only the end follows.
    """
    at = span.find(_TASK_ID, shared_end)
    if at < 0:
        return None
    at += _TASK_ID_SIZE
    if span.startswith(_PARENT_TASK_ID, at):
        at += _PARENT_TASK_ID_SIZE
    if span.startswith(_ACTOR_ID, at):
        at += _ACTOR_ID_SIZE
    if len(span) == at + _END_SIZE and span[at] == _END:
        return _end_at(span, at + 1)[0], _NOTHING, False
    attributes: dict[str, Any] = {}
    end, failed = 0, False
    for tag, value in fields(span[at:]):
        if tag == SpanTag.ATTRIBUTES:
            if value.startswith(keys):
                key, item = decode_attribute(value)
                attributes.setdefault(key, item)
        elif tag == _END:
            (end,) = _fixed64(value)
        elif tag == SpanTag.STATUS:
            failed = any(part == (StatusTag.CODE, ERROR) for part in fields(value))
    return end, attributes, failed


# --- calls, for conversion to another format --------------------------------------------------------------------------

FLAGS = {encode.FLAGS_LOCAL_PARENT: encode.LOCAL_PARENT, encode.FLAGS_REMOTE_PARENT: encode.REMOTE_PARENT}
"""The encoded flags that the recorder writes, with their values."""

_END_FORM = rb"(?:%b(.{8}))?" % re.escape(encode.END_TAG)
_HEAD = re.compile(
    rb"%b(.{16})%b(.{8})(?:%b(.{8}))?(%b)%b(.{8})%b"
    % (
        *map(re.escape, (encode.BEFORE_TRACE_ID, encode.BEFORE_SPAN_ID, encode.BEFORE_PARENT_ID)),
        b"|".join(map(re.escape, FLAGS)),
        re.escape(encode.START_TAG),
        _END_FORM,
    ),
    re.DOTALL,
)
"""The beginning of a span of the recorder: its ids, its parent's id, flags, and the times known at that point."""

KEYS_OF_IDS = {
    _TASK_ID: names.RAY_TASK_ID,
    _PARENT_TASK_ID: names.RAY_PARENT_TASK_ID,
    _ACTOR_ID: names.RAY_ACTOR_ID,
}
"""The keys of the first attributes of one call, by the bytes before their values."""

# The byte before a text is its length. Whether it is hexadecimal is quicker to check later.
_ID = rb"(%b)((?<=%b).{%d}|(?<=%b).{%d})" % (
    b"|".join(map(re.escape, KEYS_OF_IDS)),
    *(re.escape(_TASK_ID[-1:]), encode.TASK_ID_SIZE),
    *(re.escape(_ACTOR_ID[-1:]), encode.ACTOR_ID_SIZE),
)
_SUBMITTED = rb"%b(%b[\x80-\xff]{8}[\x01-\x7f])" % (
    re.escape(encode.BEFORE_SUBMIT_TIME[:-1]),
    re.escape(encode.BEFORE_SUBMIT_TIME[-1:]),
)
_VARYING = re.compile(rb"%b(?:%b)?(?:%b)?(?:%b)?%b" % (_ID, _ID, _ID, _SUBMITTED, _END_FORM), re.DOTALL)
"""The attributes in which the calls of one call site differ, and the end of a span that user code ran inside of."""

TEMPLATE_TAGS = frozenset({SpanTag.NAME, SpanTag.KIND, SpanTag.ATTRIBUTES})
"""The fields of a template, which all calls of one call site share."""

TAGS_BEFORE_OWN = frozenset(
    {
        *(SpanTag.TRACE_ID, SpanTag.SPAN_ID, SpanTag.PARENT_SPAN_ID, SpanTag.FLAGS, SpanTag.START_TIME),
        *(SpanTag.NAME, SpanTag.KIND),
    }
)
"""The plain fields of a call that precede its specific attributes."""

Parts = tuple[tuple[Any, ...], bytes, tuple[Any, ...], bytes]
"""The parts of a span. First its head: trace id, span id, parent's id or None, flags (one of :data:`FLAGS`), start, and
end or None. Second its template. Third what differs: three pairs of the bytes before an id (one of :data:`KEYS_OF_IDS`)
and that id, all but the first of which may be None; then the ``AnyValue`` of the submit time or None, and the end or
None. Times have eight bytes each. Last what user code has added, or the error."""


def parts(span: bytes) -> Parts | None:
    """The parts of a call's span that the recorder has made; None for a span with another layout.

    The match may begin in the middle of another field: callers must check that the template consists of whole fields.
    """
    head = _HEAD.match(span)
    if head is None:
        return None
    template = head.end()
    varying = _VARYING.search(span, template)
    if varying is None:
        return None
    own = varying.groups()
    if not own[1].isalnum() or not (own[3] or b"0").isalnum() or not (own[5] or b"0").isalnum():
        return None
    begin, end = varying.span()
    return head.groups(), span[template:begin], own, span[end:]
