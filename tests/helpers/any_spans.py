"""Strategies of Hypothesis for whatever can be in OTLP's messages for spans."""

from __future__ import annotations

from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
U32 = st.integers(0, 2**32 - 1)
_U64 = st.integers(0, 2**64 - 1)


def attributes(doubles: st.SearchStrategy[float] | None = None) -> st.SearchStrategy[list[KeyValue]]:
    """A few attributes, with values of each type, and in each other. ``doubles`` are any by default."""
    plain = (
        st.builds(AnyValue)
        | st.builds(AnyValue, string_value=TEXTS)
        | st.builds(AnyValue, bool_value=st.booleans())
        | st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1))
        | st.builds(AnyValue, double_value=st.floats() if doubles is None else doubles)
        | st.builds(AnyValue, bytes_value=st.binary(max_size=10))
    )

    def nested(values: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[AnyValue]:
        arrays = st.lists(values, max_size=3).map(lambda items: AnyValue(array_value=ArrayValue(values=items)))
        maps = st.lists(st.builds(KeyValue, key=TEXTS, value=values), max_size=3)
        return arrays | maps.map(lambda items: AnyValue(kvlist_value=KeyValueList(values=items)))

    return st.lists(st.builds(KeyValue, key=TEXTS, value=st.recursive(plain, nested, max_leaves=6)), max_size=4)


def spans(
    trace_ids: st.SearchStrategy[bytes],
    span_ids: st.SearchStrategy[bytes],
    attributes: st.SearchStrategy[list[KeyValue]],
    kinds: st.SearchStrategy[int],
) -> st.SearchStrategy[Span]:
    """Spans with these ids; their parents may be none."""
    about = {"attributes": attributes, "dropped_attributes_count": U32}
    return st.builds(
        Span,
        trace_id=trace_ids,
        span_id=span_ids,
        parent_span_id=st.just(b"") | span_ids,
        trace_state=TEXTS,
        name=TEXTS,
        kind=kinds,
        start_time_unix_nano=_U64,
        end_time_unix_nano=_U64,
        **about,
        events=st.lists(st.builds(Span.Event, time_unix_nano=_U64, name=TEXTS, **about), max_size=2),
        dropped_events_count=U32,
        links=st.lists(
            st.builds(Span.Link, trace_id=trace_ids, span_id=span_ids, trace_state=TEXTS, **about, flags=U32),
            max_size=2,
        ),
        dropped_links_count=U32,
        status=st.builds(Status, code=st.integers(0, 2), message=TEXTS),
        flags=U32,
    )
