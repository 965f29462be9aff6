"""What users put on spans: the same as the SDK and its encoder make of it, and nothing that is given does any harm."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import shorten
from ray_tracing_hooks._record import sampling
from ray_tracing_hooks._record.limits import SpanLimits, clean
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
from ray_tracing_hooks._sdk.tracers import limits_for_sdk
from ray_tracing_hooks._spool import layout
from ray_tracing_hooks._spool.reader import SegmentReader, segments
from ray_tracing_hooks._spool.writer import SpoolWriter

MIB = 1024 * 1024
PLANES = "".join(chr(plane << 16 | 0x1234) for plane in range(17))
HUGE = 10**6000


class Spans:
    """Spans of Ray's kind and of the SDK, recorded in one spool, with the same limits."""

    def __init__(self, folder: Path, limits: SpanLimits | None = None, segment_bytes: int = 1 << 24) -> None:
        self.folder = folder
        self.limits = limits or SpanLimits()
        self.said: list[str] = []
        self.writer = writer = SpoolWriter(str(folder), segment_bytes=segment_bytes, on_problem=self.said.append)
        sampler = sampling.from_environment({})
        assert sampler is not None
        self.recorder = Recorder(writer, resource=b"", scope=b"", sampler=sampler, limits=self.limits)
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False, span_limits=limits_for_sdk(self.limits))
        processor = SpoolSpanProcessor()
        processor.write_to(writer)
        provider.add_span_processor(processor)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._tracer = provider.get_tracer("scope")

    def ray(self) -> RecordedSpan:
        trace_id, flags = self.recorder.decide(None)
        return self.recorder.start(Template("work", 1, {}), trace_id, flags, None)

    def sdk(self, **options: Any) -> trace.Span:
        return self._tracer.start_span("work", **options)

    def written(self, kind: int = layout.SPAN) -> list[ProtoSpan]:
        """What is in the spool, as protobuf reads it."""
        found = []
        for pairs in segments(str(self.folder)).values():
            for _, path in pairs:
                reader = SegmentReader(path)
                found += [ProtoSpan.FromString(payload[2:]) for each, payload, _ in reader.read() if each == kind]
                assert reader.damaged == 0
        return found


# The same as the SDK's.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
scalars = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.binary(max_size=5)),
    texts,
)
odd = st.sampled_from([object(), {1}, dt.date(2026, 1, 2), Path("/a/b"), len, 1 + 2j, range(3), Exception("e")])
keys = st.one_of(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["", 0, 7, None]))
values = st.recursive(
    st.one_of(scalars, odd),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=6,
)
mappings = st.dictionaries(keys, values, max_size=5)
maybe = st.one_of(st.none(), mappings)
times = st.integers(0, (1 << 64) - 1)
contexts = st.builds(
    trace.SpanContext, st.sampled_from([0, 1, 1 << 127]), st.sampled_from([0, 1, 1 << 63]), is_remote=st.booleans()
)
codes = st.sampled_from(list(trace.StatusCode))
statuses = st.one_of(codes, st.builds(trace.Status, codes, st.sampled_from([None, "", "text", 5])))


def raised(depth: int) -> Exception:
    """An exception as it is caught, with a traceback and a chain of causes."""
    try:
        raise_chain(depth)
    except ValueError as error:
        return error
    raise AssertionError


def raise_chain(depth: int) -> None:
    raise ValueError("outer") from (raised(depth - 1) if depth else None)


some_calls = st.one_of(
    st.tuples(st.just("set_attribute"), st.tuples(keys, values)),
    st.tuples(st.just("set_attributes"), st.tuples(mappings)),
    st.tuples(st.just("add_event"), st.tuples(texts, maybe, times)),
    st.tuples(st.just("add_link"), st.tuples(contexts, maybe)),
    st.tuples(st.just("set_status"), st.tuples(statuses)),
    st.tuples(st.just("set_status"), st.tuples(codes, st.sampled_from(["text", None, 5]))),
    st.tuples(st.just("update_name"), st.tuples(texts)),
    st.tuples(st.just("record_exception"), st.tuples(st.builds(raised, st.integers(0, 2)), maybe, times)),
)
limit = st.one_of(st.none(), st.integers(0, 3))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    calls=st.lists(some_calls, max_size=8),
    limits=st.builds(SpanLimits, limit, limit, limit, limit, limit, limit, limit),
)
def test_both_kinds_of_spans_are_what_the_sdk_makes_of_them(
    calls: list[tuple[str, tuple[Any, ...]]], limits: SpanLimits, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same calls on a span of Ray's, on one of the SDK, and on one that the official encoder encodes."""
    spans = Spans(tmp_path_factory.mktemp("spool"), limits)
    ray, sdk = spans.ray(), spans.sdk()
    for name, arguments in calls:
        getattr(sdk, name)(*arguments)
        getattr(ray, name)(*arguments)
    sdk.end()
    ray.end()
    (official,) = encode_spans(spans.exporter.get_finished_spans()).resource_spans[0].scope_spans[0].spans
    from_sdk, from_ray = spans.written()
    spans.writer.close()
    assert canonical(from_sdk) == canonical(official)
    # What tells one span from another.
    for field in ("trace_id", "span_id", "start_time_unix_nano", "end_time_unix_nano"):
        setattr(from_ray, field, getattr(official, field))
    assert canonical(from_ray) == canonical(official)


def canonical(span: ProtoSpan) -> bytes:
    """One with NaN does not equal itself, and its encoding does. An unset status may be there or not."""
    if not span.status.code and not span.status.message:
        span.ClearField("status")
    return span.SerializeToString(deterministic=True)


# Better than the SDK's: what its encoder would lose.


def test_what_the_official_encoder_cannot_take_is_kept_as_well_as_can_be(tmp_path: Path) -> None:
    """There, a lone surrogate in a name costs the whole batch, and a number of more than 64 bits its attribute."""
    spans = Spans(tmp_path)
    for span in (spans.ray(), spans.sdk()):
        span.update_name("name \ud800")
        span.set_attributes({"key \ud800": "text \udcff", "big": 1 << 64, "huge": HUGE, "list": [1 << 70]})
        span.add_event("event \ud800", {"a": 1}, timestamp=5)
        span.add_link(trace.SpanContext(1, 2, is_remote=False, trace_state=trace.TraceState([("vendor", "value")])))
        span.set_status(trace.StatusCode.ERROR, "status \ud800")
        span.end()
    for written in spans.written():
        assert written.name == "name ?"
        found = {item.key: item.value for item in written.attributes}
        assert found["key ?"].string_value == "text ?"
        assert found["big"].string_value == str(1 << 64)
        assert found["huge"].string_value == hex(HUGE)
        assert [item.string_value for item in found["list"].array_value.values] == [str(1 << 70)]
        assert (written.events[0].name, written.links[0].trace_state) == ("event ?", "vendor=value")
        assert written.status.message == "status ?"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (np.int64(-3), "int_value", -3),
        (np.float32(0.5), "double_value", 0.5),
        (np.bool_(True), "bool_value", True),
        (np.str_("text"), "string_value", "text"),
        (np.datetime64("2026-01-02"), "string_value", "2026-01-02"),
        (bytearray(b"ab"), "bytes_value", b"ab"),
        (memoryview(b"ab"), "bytes_value", b"ab"),
    ],
)
def test_scalars_of_numpy_stay_numbers(tmp_path: Path, value: Any, kind: str, expected: Any) -> None:
    """On the spans of Ray's calls. The SDK makes texts of most of them."""
    spans = Spans(tmp_path)
    span = spans.ray()
    span.set_attribute("key", value)
    span.set_attribute("list", [value])
    span.end()
    (alone, listed) = (item.value for item in spans.written()[0].attributes)
    assert [getattr(found, kind) for found in (alone, *listed.array_value.values)] == [expected] * 2
    assert alone.WhichOneof("value") == kind


def test_a_value_is_taken_as_it_is_when_it_is_set(tmp_path: Path) -> None:
    spans = Spans(tmp_path)
    span = spans.ray()
    value = [1, {"a": 2}]
    span.set_attribute("key", value)
    cast("dict[str, int]", value[1])["a"] = 3
    value.append(4)
    span.end()
    array = spans.written()[0].attributes[0].value.array_value.values
    assert (len(array), array[1].kvlist_value.values[0].value.int_value) == (2, 2)


# Nothing that is given does any harm.


class Broken(Exception):  # noqa: N818  a name that says what it is
    def __str__(self) -> str:
        raise RuntimeError("cannot be shown")

    __repr__ = __str__
    __bool__ = __str__


class BrokenMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no item")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no items")

    def __len__(self) -> int:
        return 3


class BrokenText(str):
    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no bytes")


def endless() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


HARMFUL: list[tuple[str, list[Any]]] = [
    ("set_attribute", [(None, 1), ("", 1), (5, 1), ([], 1), ({}, 1), (Broken(), 1), (BrokenText("key"), 1)]),
    (
        "set_attribute",
        [
            ("key", value)
            for value in (
                *(Broken(), BrokenText("text"), BrokenMapping(), {Broken(): 1}, [Broken()], {"a": Broken()}),
                *(endless(), (each for each in "abc"), HUGE, math.nan, object(), type, print, np.zeros(3)),
            )
        ],
    ),
    ("set_attributes", [(each,) for each in (None, [1], 5, BrokenMapping(), {Broken(): 1}, {"a": Broken()}, {1: 2})]),
    ("add_event", [(name,) for name in (None, 5, Broken(), BrokenText("event"))]),
    ("add_event", [("event", each) for each in (5, [1], BrokenMapping(), {"a": Broken()}, Broken())]),
    ("add_event", [("event", None, moment) for moment in (-1, 1.5, "now", 1 << 70, math.inf, Broken())]),
    ("add_link", [(context,) for context in (None, 5, Broken(), trace.SpanContext(1 << 200, 1, is_remote=False))]),
    ("set_status", [(status,) for status in (None, "ERROR", 2, Broken())]),
    ("set_status", [(trace.StatusCode.ERROR, Broken())]),
    ("update_name", [(name,) for name in (None, 5, Broken())]),
    ("record_exception", [(error,) for error in (Broken(), None, "text", 5, RecursionError(), SystemExit(Broken()))]),
    ("record_exception", [(ValueError("known"), BrokenMapping()), (ValueError("known"), None, "never")]),
]


def test_nothing_that_is_given_raises_or_costs_more_than_itself(tmp_path: Path) -> None:
    """A call on a task's own span raises nothing without tracing, so it raises nothing with it."""
    spans = Spans(tmp_path)
    span = spans.ray()
    span.set_attribute("good", 1)
    for name, all_arguments in HARMFUL:
        for arguments in all_arguments:
            getattr(span, name)(*arguments)
    span.set_attribute("last", 2)
    span.end(cast("int", 1.5))
    (written,) = spans.written()
    assert written.name == "work"
    found = {item.key: item.value for item in written.attributes}
    assert (found["good"].int_value, found["last"].int_value, found["1"].int_value) == (1, 2, 2)
    assert found["key"].string_value == "[0. 0. 0.]"
    assert [event.time_unix_nano for event in written.events if event.name == "event"][-6:-4] == [0, 1]
    assert "known" in {item.value.string_value for event in written.events for item in event.attributes}
    assert written.end_time_unix_nano == 1


def shared() -> list[Any]:
    """A list of 20 lists in each other, each twice in the next: it holds itself nowhere."""
    value: list[Any] = [1, 2]
    for _ in range(20):
        value = [value, value]
    return value


def cyclic(*, is_mapping: bool) -> Any:
    """A container that holds itself twice."""
    if is_mapping:
        mapping: dict[str, Any] = {}
        mapping.update(a=mapping, b=mapping)
        return mapping
    value: list[Any] = []
    value.extend([value, value])
    return value


def size(value: Any) -> int:
    """How many values a cleaned value consists of."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return 1 + sum(map(size, items))


@pytest.mark.parametrize(
    "value",
    [cyclic(is_mapping=False), cyclic(is_mapping=True), shared()],
    ids=["a list in itself", "a mapping in itself", "shared lists"],
)
def test_a_value_with_millions_of_paths_through_it_is_bounded(value: Any) -> None:
    """Both where it is copied and where it is encoded."""
    assert 1000 < size(clean(value, None)) < 1.1 * encode.MOST_NESTED
    encoded = encode.any_value(value)
    assert encoded is not None
    assert len(encoded) < 100 * encode.MOST_NESTED


def test_a_large_value_is_kept_whole(tmp_path: Path) -> None:
    """However long a flat list is, and as long as what is nested has no more values than the limit."""
    flat, table = list(range(10 * encode.MOST_NESTED)), [[0.5] * 100] * (encode.MOST_NESTED // 100)
    spans = Spans(tmp_path)
    span = spans.ray()
    span.set_attributes({"flat": flat, "table": table})
    span.end()
    (written,) = spans.written()
    found = {item.key: item.value.array_value.values for item in written.attributes}
    assert [value.int_value for value in found["flat"]] == flat
    assert [[value.double_value for value in row.array_value.values] for row in found["table"]] == table


def test_times_and_names_of_any_type_cost_no_span(tmp_path: Path) -> None:
    """The SDK takes them, and its encoder would lose the batch."""
    spans = Spans(tmp_path)
    processor = SpoolSpanProcessor()
    processor.write_to(SpoolWriter(str(tmp_path)))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    odd_name = provider.get_tracer("scope").start_span(cast("str", 5), start_time=cast("int", 1.5))
    odd_name.end(end_time=cast("int", 2.5))
    (written,) = spans.written()
    assert (written.name, written.start_time_unix_nano, written.end_time_unix_nano) == ("5", 1, 2)


def test_an_exception_with_an_endless_text_is_cut(tmp_path: Path) -> None:
    """Of 50 MiB the beginning and the end stay, three times: message, stack trace and status."""
    spans = Spans(tmp_path)
    for error in (ValueError("begin" + "x" * 50 * MIB + "end"), Broken()):
        span = spans.ray()
        span.fail(error, None)
        span.record_exception(error)
        span.end()
    long, broken = spans.written()
    assert long.ByteSize() < MIB
    assert long.status.message.startswith("ValueError: begin")
    for event in long.events:
        for attribute in event.attributes[1:3]:
            assert "begin" in attribute.value.string_value
            assert attribute.value.string_value.rstrip().endswith("end")
    assert broken.status.message == "Broken: <Broken that cannot be shown>"
    assert len(broken.events) == 2


# Large.


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("kind", ["ray", "sdk"])
def test_large_spans_are_recorded(kind: str, tmp_path: Path) -> None:
    """10 MiB in an attribute, 4,000 of each thing, a name of 1 MiB: with segments of 1 MiB, all of them in full."""
    unlimited = SpanLimits(None, None, None, None, None, None, None)
    spans = Spans(tmp_path, unlimited, segment_bytes=MIB)
    begin: Callable[[], Any] = getattr(spans, kind)
    large, many, named = begin(), begin(), begin()
    large.set_attribute("text", "x" * 10 * MIB)
    large.set_attribute("bytes", b"\xff" * MIB)
    for index in range(4_000):
        many.set_attribute(f"key {index}", index)
        many.add_event(f"event {index}", {"index": index}, index)
        many.add_link(trace.SpanContext(index + 1, index + 1, is_remote=False), {"index": index})
    named.update_name(PLANES * (MIB // 60))
    for span in (large, many, named):
        span.end()
    written = spans.written()
    by_size = sorted(written, key=lambda span: len(span.attributes))
    assert by_size[0].name.encode() == (PLANES * (MIB // 60)).encode()
    assert [len(item.value.string_value or item.value.bytes_value) for item in by_size[1].attributes] == [10 * MIB, MIB]
    assert len(by_size[2].attributes) == len(by_size[2].events) == len(by_size[2].links) == 4_000
    assert [item.value.int_value for item in by_size[2].attributes] == list(range(4_000))
    assert spans.said == []
    assert all(span.ByteSize() < 100_000 for span in spans.written(layout.START))


@pytest.mark.parametrize("kind", ["ray", "sdk"])
def test_a_span_that_no_record_can_hold_loses_what_is_largest(kind: str, tmp_path: Path) -> None:
    """It ends, it says how much is missing, and it costs no other span."""
    spans = Spans(tmp_path)
    before, large, after = (getattr(spans, kind)() for _ in range(3))
    before.end()
    for index in range(5):
        large.set_attribute(f"large {index}", "x" * 6 * MIB)
    large.set_attribute("small", 1)
    large.add_event("small", {"a": 1})
    large.add_event("large", {"a": "x" * 20 * MIB})
    large.update_name("n" * 17 * MIB)
    large.set_status(trace.StatusCode.ERROR, "s" * 17 * MIB)
    large.end()
    after.end()
    first, written, last = spans.written()
    assert (first.name, last.name) == ("work", "work")
    assert (written.name, written.status.code, written.status.message) == ("n" * 1024, 2, "s" * 1024)
    assert {item.key for item in written.attributes} > {"small"}
    assert len(written.attributes) + written.dropped_attributes_count == 6
    assert ([event.name for event in written.events], written.dropped_events_count) == (["small"], 1)
    assert written.ByteSize() > 6 * MIB
    assert len(spans.said) == 1
    assert "left out and counted as dropped" in spans.said[0]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4000)), max_size=12),
    st.integers(0, 4000),
    st.integers(2000, 12_000),
)
def test_a_shortened_span_fits_and_counts(parts: list[tuple[int, int]], name: int, most: int) -> None:
    """Whatever it holds: what is there and what is counted is what there was."""
    full = [0, 0, 0]
    encoded = b"\x0a\x10" + bytes(range(16)) + b"\x12\x08" + bytes(range(8)) + encode.name_and_kind("é" * name, 3)
    encoded += protobuf.fixed64(0x39, 1) + b"\x50\x05" + encode.FLAGS_LOCAL_PARENT
    for kind, size in parts:
        full[kind] += 1
        text = {"key": "x" * size}
        link = encode.link(bytes(range(16)), bytes(range(8)), "", text, remote=False)
        encoded += (encode.attributes(text), encode.event("e", 1, text), link)[kind]
    shortened = shorten(encoded, most)
    assert len(shortened) <= max(most, 1024 + 100)
    span = ProtoSpan.FromString(shortened)
    assert (span.trace_id, span.kind, span.start_time_unix_nano, span.flags) == (bytes(range(16)), 3, 1, 0x100)
    assert span.name == "é" * name or span.name == "é" * 512
    kept = (len(span.attributes), len(span.events), len(span.links))
    dropped = (span.dropped_attributes_count - 5, span.dropped_events_count, span.dropped_links_count)
    assert [a + b for a, b in zip(kept, dropped, strict=True)] == full
    if len(encoded) + 64 <= most:
        assert sum(dropped) == 0
