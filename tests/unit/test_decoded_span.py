"""Encoded OTLP messages come apart into plain values."""

from __future__ import annotations

import math

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ray_tracing_hooks._formats.encoded_span.decode import (
    ERROR,
    UNSET,
    Event,
    Link,
    Scope,
    Span,
    decode_resource,
    decode_scope,
    decode_span,
)
from ray_tracing_hooks._formats.protobuf import FormatError

TRACE_ID = bytes.fromhex("ff000000000000000000000000000001")
SPAN_ID = bytes.fromhex("fe00000000000002")
PARENT_ID = bytes.fromhex("0000000000000003")


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def test_every_field_of_a_span() -> None:
    encoded = SpanMessage(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        trace_state="a=b",
        parent_span_id=PARENT_ID,
        flags=0x300,
        name="näme",
        kind=SpanMessage.SPAN_KIND_CONSUMER,
        start_time_unix_nano=1_700_000_000_123_456_789,
        end_time_unix_nano=1_700_000_001_000_000_000,
        attributes=[text("key", "value")],
        dropped_attributes_count=1,
        events=[
            SpanMessage.Event(time_unix_nano=5, name="event", attributes=[text("k", "v")], dropped_attributes_count=2)
        ],
        dropped_events_count=300,
        links=[
            SpanMessage.Link(
                trace_id=TRACE_ID,
                span_id=PARENT_ID,
                trace_state="c=d",
                attributes=[text("l", "v")],
                dropped_attributes_count=4,
                flags=0x101,
            )
        ],
        dropped_links_count=5,
        status=Status(code=Status.STATUS_CODE_ERROR, message="why"),
    ).SerializeToString()
    assert decode_span(encoded) == Span(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        trace_state="a=b",
        parent_span_id=PARENT_ID,
        name="näme",
        kind=5,
        start_ns=1_700_000_000_123_456_789,
        end_ns=1_700_000_001_000_000_000,
        attributes={"key": "value"},
        dropped_attributes=1,
        events=[Event(5, "event", {"k": "v"}, 2)],
        dropped_events=300,
        links=[Link(TRACE_ID, PARENT_ID, "c=d", {"l": "v"}, 4, 0x101)],
        dropped_links=5,
        status_code=ERROR,
        status_message="why",
        flags=0x300,
    )


def test_an_empty_span_has_the_defaults_of_protobuf() -> None:
    empty = decode_span(b"")
    assert empty == Span(b"", b"", "", b"", "", 0, 0, 0, {}, 0, [], 0, [], 0, UNSET, "", 0)


def test_values_of_every_type() -> None:
    """Text, numbers at their limits, truth, bytes, nothing, and lists and maps of them in each other."""
    values = {
        "text": (AnyValue(string_value="ü"), "ü"),
        "empty": (AnyValue(string_value=""), ""),
        "true": (AnyValue(bool_value=True), True),
        "false": (AnyValue(bool_value=False), False),
        "zero": (AnyValue(int_value=0), 0),
        "least": (AnyValue(int_value=-(2**63)), -(2**63)),
        "most": (AnyValue(int_value=2**63 - 1), 2**63 - 1),
        "double": (AnyValue(double_value=-0.1), -0.1),
        "infinite": (AnyValue(double_value=math.inf), math.inf),
        "bytes": (AnyValue(bytes_value=b"\xff\x00"), b"\xff\x00"),
        "null": (AnyValue(), None),
        "list": (
            AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue(), AnyValue(string_value="x")])),
            (1, None, "x"),
        ),
        "map": (
            AnyValue(
                kvlist_value=KeyValueList(
                    values=[
                        text("a", "b"),
                        KeyValue(key="c", value=AnyValue(array_value=ArrayValue(values=[AnyValue(bool_value=True)]))),
                    ]
                )
            ),
            {"a": "b", "c": (True,)},
        ),
    }
    encoded = Resource(
        attributes=[KeyValue(key=key, value=value) for key, (value, _) in values.items()]
    ).SerializeToString()
    decoded = decode_resource(encoded)
    assert decoded == {key: expected for key, (_, expected) in values.items()}
    assert decoded["true"] is True
    assert decoded["zero"] is not False


def test_a_scope() -> None:
    encoded = InstrumentationScope(name="lib", version="1.2", attributes=[text("k", "v")]).SerializeToString()
    assert decode_scope(encoded) == Scope("lib", "1.2", {"k": "v"})
    assert decode_scope(b"") == Scope("", "", {})


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_what_is_no_span_is_an_error(cut: int) -> None:
    encoded = SpanMessage(trace_id=TRACE_ID, span_id=SPAN_ID, name="name").SerializeToString()
    with pytest.raises(FormatError):
        decode_span(encoded[:cut])
