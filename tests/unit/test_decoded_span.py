"""Encoded OTLP messages come apart into plain values."""

from __future__ import annotations

from typing import Any

import any_spans
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from ray_tracing_hooks._formats.encoded_span.decode import (
    Event,
    Link,
    Scope,
    Span,
    decode_resource,
    decode_scope,
    decode_span,
)
from ray_tracing_hooks._formats.protobuf import FormatError

attributes = any_spans.attributes(st.floats(allow_nan=False))


def plain(value: AnyValue) -> Any:
    """Lists are tuples, which cannot be changed."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(map(plain, value.array_value.values))
    if kind == "kvlist_value":
        return told(value.kvlist_value.values)
    return getattr(value, kind) if kind else None


def told(pairs: Any) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in pairs}


@given(any_spans.spans(st.binary(max_size=16), st.binary(max_size=8), attributes, st.integers(0, 9)))
def test_every_field_of_a_span(span: SpanMessage) -> None:
    """With values of every type, and the defaults of protobuf for what is not there."""
    found = decode_span(span.SerializeToString())
    assert found == Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        trace_state=span.trace_state,
        parent_span_id=span.parent_span_id,
        name=span.name,
        kind=span.kind,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=told(span.attributes),
        dropped_attributes=span.dropped_attributes_count,
        events=[
            Event(each.time_unix_nano, each.name, told(each.attributes), each.dropped_attributes_count)
            for each in span.events
        ],
        dropped_events=span.dropped_events_count,
        links=[
            Link(
                *(each.trace_id, each.span_id, each.trace_state),
                *(told(each.attributes), each.dropped_attributes_count, each.flags),
            )
            for each in span.links
        ],
        dropped_links=span.dropped_links_count,
        status_code=span.status.code,
        status_message=span.status.message,
        flags=span.flags,
    )
    assert repr(found.attributes) == repr(told(span.attributes)), "True is not 1"


@given(attributes)
def test_a_resource_and_a_scope(given_ones: list[KeyValue]) -> None:
    assert decode_resource(Resource(attributes=given_ones).SerializeToString()) == told(given_ones)
    scope = InstrumentationScope(name="lib", version="1.2", attributes=given_ones)
    assert decode_scope(scope.SerializeToString()) == Scope("lib", "1.2", told(given_ones))
    assert decode_scope(b"") == Scope("", "", {})


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_what_is_no_span_is_an_error(cut: int) -> None:
    encoded = SpanMessage(trace_id=bytes(16), span_id=bytes(8), name="name").SerializeToString()
    with pytest.raises(FormatError):
        decode_span(encoded[:cut])
