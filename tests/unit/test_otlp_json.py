"""Encoded spans become the OTLP-JSON that protobuf's own classes and the file exporter specification ask for."""

from __future__ import annotations

import json
import math

import pytest
from any_spans import U32, attributes, spans
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData
from protobuf_json import by_protobuf

from ray_tracing_hooks._formats.otlp import TRACES
from ray_tracing_hooks._formats.otlp_json import FormatError, resource_json, scope_json, span_json

TRACE_ID = bytes(range(16))


def test_unknown_fields_are_ignored() -> None:
    """A newer sender may know more fields than we do."""
    assert span_json(b"\xf8\x7f\x01" + Span(name="f").SerializeToString() + b"\xfa\x7f\x02hi") == '{"name":"f"}'


def test_text_that_is_no_utf8_is_repaired() -> None:
    """One wrong byte costs a replacement character, never the line."""
    assert json.loads(span_json(b"\x2a\x03a\xffb")) == {"name": "a\N{REPLACEMENT CHARACTER}b"}


def test_the_text_is_ascii_on_one_line() -> None:
    """Line separators of any kind and control characters are escaped, so a line ends where the format says."""
    name = "a\nb\u2028c\x85d\x1be\N{SNAKE}"
    written = span_json(Span(name=name).SerializeToString())
    assert written.isascii()
    assert written.isprintable()
    assert json.loads(written) == {"name": name}


def test_truncated_messages_are_refused() -> None:
    """Cut inside a field, at any level, is an error and not a shorter span."""
    whole = _field(0x4A, _field(0x0A, b"key") + _field(0x12, b"\x0a\x05ab"))
    with pytest.raises(FormatError):
        span_json(whole)
    with pytest.raises(FormatError):
        resource_json(whole[:-1])


def test_a_line_is_one_traces_data() -> None:
    """The line parses with protobuf's JSON parser's view of TracesData: one resource, one scope, its spans in order."""
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="job"))])
    scope = InstrumentationScope(name="ray_tracing_hooks", version="1")
    both = [Span(name="a"), Span(name="b")]
    line = TRACES.line(
        resource_json(resource.SerializeToString()),
        scope_json(scope.SerializeToString()),
        [span_json(span.SerializeToString()) for span in both],
    )
    assert line.endswith("}\n")
    whole = TracesData()
    scope_spans = whole.resource_spans.add(resource=resource).scope_spans.add(scope=scope)
    scope_spans.spans.extend(both)
    assert json.loads(line) == MessageToDict(whole, use_integers_for_enums=True)


def _field(tag: int, payload: bytes) -> bytes:
    size, length = len(payload), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([tag]) + bytes(length) + bytes([size]) + payload


_attributes = attributes()
_spans = spans(st.binary(max_size=16), st.binary(max_size=8), _attributes, st.integers(-(2**31), 2**31 - 1))
_any_size = settings(suppress_health_check=[HealthCheck.data_too_large])
"""How many of the first spans are too large depends on the constants of the modules that are loaded."""
VALUES = [
    *(AnyValue(), AnyValue(string_value=""), AnyValue(bool_value=False), AnyValue(bytes_value=b"")),
    *(AnyValue(int_value=number) for number in (0, -(2**63), 2**63 - 1)),
    *(AnyValue(double_value=number) for number in (0.0, math.nan, math.inf, -math.inf)),
    *(AnyValue(array_value=ArrayValue()), AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue()]))),
    AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(bool_value=True))])),
]


@_any_size
@given(_spans)
@example(Span())
@example(Span(status=Status()))
@example(
    Span(
        trace_id=TRACE_ID,
        parent_span_id=b"\xff" * 8,
        end_time_unix_nano=2**64 - 1,
        kind=Span.SPAN_KIND_PRODUCER,
        flags=0x301,
    )
)
@example(Span(attributes=[KeyValue(key="key", value=value) for value in VALUES], dropped_links_count=2**32 - 1))
def test_any_span_reads_as_protobuf_reads_it(span: Span) -> None:
    """Every span that protobuf can encode becomes what protobuf's JSON says of it. A value that was set is written even
    when it is false, zero or empty; null is an empty object.
    """
    assert json.loads(span_json(span.SerializeToString())) == by_protobuf(span)


@_any_size
@given(_spans, _spans)
def test_an_opening_and_a_closing_put_together_are_one_span(opening: Span, closing: Span) -> None:
    """Bytes appended to a span that was cut off close it: the last number counts, parts of a message merge."""
    joined = opening.SerializeToString() + closing.SerializeToString()
    assert json.loads(span_json(joined)) == by_protobuf(Span.FromString(joined))


@given(_attributes, U32)
def test_any_resource_and_scope_reads_as_protobuf_reads_it(given_ones: list[KeyValue], dropped: int) -> None:
    """The same for what spans belong to."""
    resource = Resource(attributes=given_ones, dropped_attributes_count=dropped)
    scope = InstrumentationScope(name="n", version="v", attributes=given_ones, dropped_attributes_count=dropped)
    assert json.loads(resource_json(resource.SerializeToString())) == by_protobuf(resource)
    assert json.loads(scope_json(scope.SerializeToString())) == by_protobuf(scope)
