"""The walk over protobuf fields agrees with protobuf and refuses invalid messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ray_tracing_hooks._formats.protobuf import FormatError, fields, varint


def test_each_wire_type_is_read() -> None:
    """A field comes with its tag; numbers of fixed size and payloads come as the bytes that stand there."""
    span = Span(trace_id=b"\1" * 16, kind=Span.SPAN_KIND_PRODUCER, start_time_unix_nano=5, flags=0x300)
    assert fields(span.SerializeToString()) == [
        (0x0A, b"\1" * 16),
        (0x30, 4),
        (0x39, b"\5" + bytes(7)),
        (0x85, b"\0\3\0\0"),
    ]


def test_an_empty_message_has_no_fields() -> None:
    """No bytes are a message whose fields are all at their defaults."""
    assert fields(b"") == []


@given(st.integers(0, 2**64 - 1) | st.integers(1, 63).flatmap(lambda bits: st.integers((1 << bits) - 2, 1 << bits)))
def test_numbers_of_64_bits_are_exact(number: int) -> None:
    """A varint has the value that protobuf gives it, up to the largest."""
    encoded = Span(start_time_unix_nano=0, dropped_events_count=number & 0xFFFF_FFFF).SerializeToString()
    assert fields(encoded) == ([(0x60, number & 0xFFFF_FFFF)] if number & 0xFFFF_FFFF else [])
    shortest = bytearray()
    rest = number
    while rest > 0x7F:
        shortest.append(rest & 0x7F | 0x80)
        rest >>= 7
    shortest.append(rest)
    assert varint(number) == shortest
    assert fields(b"\x08" + shortest) == [(0x08, number)]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (b"\x08", "the number at byte 1 has no end"),
        (b"\x08\x80", "the number at byte 1 has no end"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "the number at byte 1 has no end"),
        (b"\x0a", "the number at byte 1 has no end"),
        (b"\x08\x01\x0a\x05abc", "field 1 at byte 2 ends at byte 9, but the message has only 7"),
        (b"\x39\0\0\0", "field 7 at byte 0 ends at byte 9, but the message has only 4"),
        (b"\x85\x01\0\0", "field 16 at byte 0 ends at byte 6, but the message has only 4"),
        (b"\x00\x01", "invalid tag 0x0 at byte 0"),
        (b"\x0b\x0c", "field 1 at byte 0 has the unsupported wire type 3"),
        (b"\x0f", "field 1 at byte 0 has the unsupported wire type 7"),
    ],
)
def test_what_is_no_message_is_refused(message: bytes, complaint: str) -> None:
    """Cut and senseless input raises an error that says what is wrong and where."""
    with pytest.raises(FormatError) as error:
        fields(message)
    assert str(error.value) == complaint


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    """No input causes another error than FormatError, and what is read was in the input."""
    try:
        found = fields(message)
    except FormatError:
        return
    assert all(value in message for _, value in found if isinstance(value, bytes))
