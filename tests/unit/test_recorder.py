"""The recorder: spans as bytes that protobuf reads back as what was recorded."""

from __future__ import annotations

import itertools
import pickle
import runpy
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision
from protobuf_json import attributes
from support import PROGRAMS

from ray_tracing_hooks._formats import readable
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.errors import fail, failure
from ray_tracing_hooks._record import sampling
from ray_tracing_hooks._record.current import SPAN_KEY
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, Template, add_former_root, link_to_ended
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame, traceback_of
from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._sdk import processor
from ray_tracing_hooks._spool import layout
from ray_tracing_hooks._spool.reader import SegmentReader, iterate
from ray_tracing_hooks._spool.writer import SpoolWriter

pytestmark = pytest.mark.usefixtures("each_way")

ODD = runpy.run_path(str(PROGRAMS / "odd_errors.py"))
KINDS: dict[str, Any] = {**ODD["KINDS"], **ODD["FATAL_KINDS"]}
"""Makers of errors whose classes say of themselves what they like."""

PARENT = Parent(bytes(range(1, 17)), bytes(range(1, 9)), 3, None, remote=True)


def recorder(folder: Path, limits: SpanLimits | None = None, environ: Mapping[str, str] | None = None) -> Recorder:
    sampler = sampling.from_environment(environ or {})
    assert sampler is not None
    return Recorder(
        SpoolWriter(str(folder)),
        resource=encode.resource({"service.name": "test"}),
        scope=encode.scope("scope", "1"),
        sampler=sampler,
        limits=limits or SpanLimits(),
    )


def records(folder: Path, kind: int = layout.SPAN) -> list[ProtoSpan]:
    """The spans that were written, as protobuf reads them."""
    found = []
    for _, paths, _ in iterate(str(folder)):
        for path in paths:
            found += [
                ProtoSpan.FromString(payload[2:])
                for found_kind, payload, _ in SegmentReader(path).read()
                if found_kind == kind
            ]
    return found


def begin(of: Recorder, parent: Parent | None = PARENT) -> RecordedSpan:
    trace_id, flags = of.decide(parent)
    return of.start(Template("work", 5, {"constant": "c"}), trace_id, flags, parent, encode.attribute("first", 1))


def test_what_a_process_learns_of_itself_is_in_the_resource_of_what_ends_later(tmp_path: Path) -> None:
    of, scope = recorder(tmp_path), encode.scope("scope", "1")
    begun = begin(of)
    begin(of).end()
    of.say(encode.resource({"service.name": "test", "ray.serve.deployment": "Model"}), scope)
    begin(of).end()
    begun.end()
    ((_, (path,), _),) = iterate(str(tmp_path))
    read = SegmentReader(path).read()
    before, *after = [payload[:2] for kind, payload, _ in read if kind == layout.SPAN]
    assert before != after[0] == after[1], "the ids of their resources and scopes"
    assert [b"Model" in payload for kind, payload, _ in read if kind == layout.RESOURCE] == [False, True]


def test_a_span_is_written_when_it_starts_and_when_it_ends(tmp_path: Path) -> None:
    """The start record holds everything known by then; the end record is complete by itself."""
    span = begin(recorder(tmp_path))
    (start,) = records(tmp_path, layout.START)
    assert (start.name, start.kind, start.end_time_unix_nano) == ("work", 5, 0)
    assert start.trace_id == PARENT.trace_id
    assert start.parent_span_id == PARENT.span_id
    assert start.flags == 0x300, "the parent is known to be remote"
    assert attributes(start) == {"constant": "c", "first": 1}
    assert records(tmp_path) == []
    span.end()
    (end,) = records(tmp_path)
    assert end.span_id == start.span_id == span.span_id
    assert end.start_time_unix_nano == start.start_time_unix_nano <= end.end_time_unix_nano
    assert attributes(end) == attributes(start)


def test_an_attribute_that_is_set_again_is_there_once(tmp_path: Path) -> None:
    """OTLP allows each key once, and viewers differ in which of two they show. What only looks alike stays."""
    span = begin(recorder(tmp_path))
    span.set_attribute("constant", "new")
    span.set_attribute("irs", "not the end of another key")
    span.end()
    (found,) = records(tmp_path)
    assert [item.key for item in found.attributes] == ["first", "constant", "irs"]
    assert attributes(found) == {"constant": "new", "first": 1, "irs": "not the end of another key"}
    assert (found.name, found.kind, found.parent_span_id, found.flags) == ("work", 5, PARENT.span_id, 0x300)
    assert found.start_time_unix_nano <= found.end_time_unix_nano


class WithoutHash(trace.NonRecordingSpan):
    """A span of the program."""

    __hash__ = None  # type: ignore[assignment]


def test_any_span_of_the_program_is_a_parent_but_not_the_root_of_an_earlier_driver(tmp_path: Path) -> None:
    of_driver, span = recorder(tmp_path), WithoutHash(trace.SpanContext(5, 6, is_remote=False))
    of_driver.fallback = Parent(bytes(range(16)), b"fallback", 3, None, remote=False)
    parent = of_driver.parent(Context({SPAN_KEY: span}))
    assert parent is not None
    assert (parent.trace_id, parent.span_id) == ((5).to_bytes(16, "big"), (6).to_bytes(8, "big"))
    add_former_root(span)
    for none in (Context({SPAN_KEY: span}), Context({SPAN_KEY: trace.INVALID_SPAN}), Context()):
        assert of_driver.parent(none) is of_driver.fallback


@pytest.mark.parametrize("of", ["this package", "the SDK"])
def test_a_span_that_ended_more_than_a_second_ago_is_no_parent(of: str, tmp_path: Path) -> None:
    of_worker, tracer = recorder(tmp_path), TracerProvider().get_tracer("")
    of_worker.fallback = Parent(bytes(range(16)), b"fallback", 3, None, remote=False)

    def started() -> Any:
        return tracer.start_span("") if of == "the SDK" else begin(of_worker)

    open_, recent, span = started(), started(), started()
    recent.end(time.time_ns() + 3600 * 10**9)
    for each in (open_, recent):
        context = Context({SPAN_KEY: each})
        parent = of_worker.parent(context)
        assert parent is not None
        assert parent.span_context() == each.get_span_context()
        assert link_to_ended(context) == b""
    span.end(time.time_ns() - 1_500_000_000)
    context = Context({SPAN_KEY: span})
    assert of_worker.parent(context) is None, "not the root span of the driver, either"
    current = of_worker.current(context)
    assert current is not None
    assert current.span_context() == span.get_span_context(), "log records are still its own"
    linking = ProtoSpan.FromString(link_to_ended(context))
    assert 1.5 <= attributes(linking)["ray.after_end"] < 60
    (link,) = linking.links
    assert (link.trace_id, link.span_id, link.flags) == (current.trace_id, current.span_id, 0x100)
    add_former_root(span)
    assert of_worker.parent(context) is of_worker.fallback
    assert link_to_ended(context) == b""


def test_an_exception_is_recorded_as_the_semantic_conventions_say(tmp_path: Path) -> None:
    span = begin(recorder(tmp_path))
    try:
        dict[str, int]()["missing"]
    except KeyError as error:
        span.fail(error, error.__traceback__)
    span.end()
    (ended,) = records(tmp_path)
    assert (ended.status.code, ended.status.message) == (2, "KeyError: 'missing'")
    assert attributes(ended)["error.type"] == "KeyError"
    (event,) = ended.events
    details = {item.key: item.value.string_value for item in event.attributes}
    assert (details["exception.type"], details["exception.message"]) == ("KeyError", "'missing'")
    assert "test_an_exception_is_recorded" in details["exception.stacktrace"]


def test_a_span_can_be_pickled_as_a_reference_to_it(tmp_path: Path) -> None:
    """A span that user code has captured goes with what Ray pickles, as a span of the API would."""
    span = begin(recorder(tmp_path))
    copy = pickle.loads(pickle.dumps(span))
    assert copy.get_span_context() == span.get_span_context()
    assert not copy.is_recording()


scalars = st.one_of(st.text(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False))
values = st.one_of(scalars, st.lists(st.text(), max_size=4))


@given(st.dictionaries(st.text(min_size=1), values, max_size=6))
def test_sdk_spans_are_encoded_as_protobuf_reads_them(given_attributes: dict[str, Any]) -> None:
    """A span of the SDK and its encoding say the same, and the decoder for span processors gives the span back."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("scope")
    with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner", attributes=given_attributes) as s:
        s.add_event("event", given_attributes)
    span = exporter.get_finished_spans()[0]
    encoded = processor.encode_ended(span)
    proto = ProtoSpan.FromString(encoded)
    assert proto.name == "inner"
    assert int.from_bytes(encoded[encode.SPAN_ID], "big") == span.context.span_id
    assert int.from_bytes(encoded[encode.TRACE_ID], "big") == span.context.trace_id
    assert span.instrumentation_scope is not None
    again = readable.decode(encoded, span.resource, span.instrumentation_scope)
    assert again.to_json().replace('"trace_flags"', "") == span.to_json().replace('"trace_flags"', "")


@pytest.mark.parametrize(
    ("sampler", "argument"),
    [
        *(("", ""), ("always_on", ""), ("always_off", ""), ("parentbased_always_off", ""), ("traceidratio", "0.3")),
        *(("parentbased_traceidratio", "0.5"), ("traceidratio", "two"), ("parentbased_always_on", "")),
    ],
)
def test_sampling_decides_as_the_sdk_does(sampler: str, argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For roots, and for children of parents that are sampled or not."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    sdk = TracerProvider(shutdown_on_exit=False).sampler
    mine = sampling.from_environment({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument})
    assert mine is not None
    for index, parent in itertools.product(range(200), (None, True, False)):
        trace_id = (index * 0x9E3779B97F4A7C15F39CC0605CEDC835 + 1) % (1 << 128)
        context = None
        if parent is not None:
            span_context = trace.SpanContext(trace_id, 1, is_remote=False, trace_flags=trace.TraceFlags(int(parent)))
            context = trace.set_span_in_context(trace.NonRecordingSpan(span_context))
        theirs = sdk.should_sample(context, trace_id, "name").decision is Decision.RECORD_AND_SAMPLE
        key = trace_id.to_bytes(16, "big")
        assert (mine.root(key) if parent is None else mine.child(parent, key)) == theirs


def test_a_sampler_that_is_not_built_in_is_left_to_the_sdk() -> None:
    assert sampling.from_environment({"OTEL_TRACES_SAMPLER": "my_sampler"}) is None


def caught(make: Any) -> BaseException:
    """The error as what has called the function that raises it sees it."""

    def raises() -> None:
        raise make()

    try:
        raises()
    except BaseException as error:  # noqa: BLE001  some are no Exceptions
        return error
    raise AssertionError


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_error_of_any_kind_is_recorded(kind: str, tmp_path: Path) -> None:
    """With its type, and with where it was raised. A frame can be taken out of its traceback."""
    made, error = recorder(tmp_path), caught(KINDS[kind])
    fail(made.start(Template("task", 1, {}), bytes(15) + b"1", 1, None), error)
    (span,) = records(tmp_path)
    (event,) = span.events
    assert span.status.code == 2
    told = {item.key: item.value.string_value for item in event.attributes}
    assert attributes(span)["error.type"] == told["exception.type"]
    assert told["exception.type"].rpartition(".")[2] == type.__dict__["__name__"].__get__(type(error))
    assert "in raises" in told["exception.stacktrace"]
    assert ProtoSpan.FromString(failure(error, 1)).status == span.status
    assert describe(error)
    before = traceback_of(error)
    assert before is not None
    hide_frame(error)
    assert traceback_of(error) is before.tb_next


@pytest.mark.parametrize("status", [["a list"], "text", 3, 1.0, ODD["OddExit"]])
def test_an_exit_with_a_bad_status_is_a_failure_whatever_the_status_is(status: Any, tmp_path: Path) -> None:
    """And one whose class hides the status is what Python takes it for: it exits well."""
    error = status() if isinstance(status, type) else SystemExit(status)
    fail(recorder(tmp_path).start(Template("task", 1, {}), bytes(15) + b"1", 1, None), error)
    (span,) = records(tmp_path)
    assert span.status.code == (0 if isinstance(status, type) else 2)


def test_an_error_that_says_that_it_is_its_own_cause_is_recorded(tmp_path: Path) -> None:
    from ray.exceptions import RayTaskError

    error = RayTaskError("function", "a traceback", ValueError("inner"))
    error.cause = error
    fail(recorder(tmp_path).start(Template("task", 1, {}), bytes(15) + b"1", 1, None), error)
    (span,) = records(tmp_path)
    assert attributes(span)["error.type"] == "ray.exceptions.RayTaskError"
