"""Spans of Ray's calls take a shorter way to OTLP-JSON, and become what they would become on the long one."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from protobuf_json import by_protobuf

from ray_tracing_hooks import names
from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import identity_of
from ray_tracing_hooks._formats.otlp_json import (
    _SPAN,
    FormatError,
    _call,
    _call_json,
    _object,
    _template,
    span_json,
)
from ray_tracing_hooks._formats.protobuf import fixed64
from ray_tracing_hooks._ray.propagation import ACTOR_ID, PARENT_TASK_ID, TASK_ID
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.sampling import Sampler
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._spool.writer import SpoolWriter

TRACE_ID, SPAN_ID = bytes(range(16)), bytes(range(16, 24))
PARENT = Parent(TRACE_ID, bytes(range(1, 9)), 3, None, remote=True)
TASK, OTHER_TASK = bytes(range(24)).hex().encode(), b"ff" * 24
ACTOR = TASK[16:]
TEMPLATE = Template(
    "jobs.train ray.remote_worker", 5, {"ray.function": "jobs.train", "ray.pid": "7", "ray.node_id": "ab" * 28}
)
HEAD = b"\x0a\x10" + TRACE_ID + b"\x12\x08" + SPAN_ID + encode.FLAGS_LOCAL_PARENT
START, END = fixed64(0x39, 1_700_000_000_000_000_001), fixed64(0x41, 1_700_000_000_000_000_002)
ATTEMPT = encode.attribute(names.RAY_ATTEMPT, 1)
SUBMIT_TIME = encode.attribute(names.RAY_SUBMIT_TIME, 1_700_000_000_000_000_000)


class NoSpool:
    def scope(self, _resource: bytes, _scope: bytes) -> int:
        return 0

    def start(self, _prefix: bytes, _span: bytes) -> None: ...

    def span(self, _prefix: bytes, _span: bytes) -> None: ...

    def finish(self, _prefix: bytes, _span: bytes) -> bool:
        return False


written: list[bytes] = []
recorder = Recorder(
    cast("SpoolWriter", NoSpool()), resource=b"", scope=b"", sampler=cast("Sampler", None), limits=SpanLimits()
)
recorder.observer = written.append


def the_span() -> bytes:
    """The span that was just recorded."""
    (span,) = written
    written.clear()
    return span


def submitted(template: Template, parent: Parent | None, additions: bytes) -> bytes:
    recorder.record(template, identity_of(TRACE_ID, SPAN_ID, parent), 5, 7, additions)
    return the_span()


def executed(template: Template, parent: Parent | None, additions: bytes) -> bytes:
    recorder.start(template, TRACE_ID, 3, parent, additions, 5).end(7)
    return the_span()


def compiled(span: bytes) -> str | None:
    """What the compiled part writes, where it is installed."""
    return _call_json(span) if _call_json is not None else None


def both_ways(span: bytes) -> tuple[Any, Any]:
    """What becomes of a span, and what becomes of it on the long way: JSON, or that it is no span."""
    # The compiled part walks over whole fields, so text in the middle of a field does not mislead it.
    assert (text := compiled(span)) is None or text == (_call(span) or text)
    results = []
    for way in (span_json, lambda span: _object(span, _SPAN)):
        try:
            results.append(json.loads(way(span)))
        except FormatError as error:
            results.append(str(error))
    return results[0], results[1]


@pytest.mark.parametrize("parent", [None, PARENT, PARENT._replace(remote=False)])
@pytest.mark.parametrize(
    "own",
    [
        PARENT_TASK_ID + OTHER_TASK + TASK_ID + TASK,
        TASK_ID + TASK,
        ACTOR_ID + ACTOR + PARENT_TASK_ID + OTHER_TASK + TASK_ID + TASK,
        PARENT_TASK_ID + OTHER_TASK + ACTOR_ID + ACTOR + TASK_ID + TASK,
        TASK_ID + TASK + PARENT_TASK_ID + OTHER_TASK + ACTOR_ID + ACTOR,
        TASK_ID + TASK + PARENT_TASK_ID + OTHER_TASK + ACTOR_ID + ACTOR + SUBMIT_TIME,
        TASK_ID + TASK + SUBMIT_TIME + ATTEMPT,
    ],
)
def test_what_the_recorder_makes_of_a_call_takes_the_short_way(parent: Parent | None, own: bytes) -> None:
    """For all the ways in which a call is recorded; the result is that of the long way and protobuf's."""
    for span in (submitted(TEMPLATE, parent, own), executed(TEMPLATE, parent, own)):
        assert json.loads(_call(span)) == json.loads(_object(span, _SPAN)) == by_protobuf(Span.FromString(span))
        if _call_json is not None:
            assert compiled(span) == (_call(span) if not own.endswith(ATTEMPT) else None)


def test_what_user_code_adds_and_how_a_call_fails_is_on_the_short_way_too() -> None:
    """Attributes join those of the call; events, links, counts and the status follow."""
    span = recorder.start(TEMPLATE, TRACE_ID, 3, PARENT, TASK_ID + TASK + PARENT_TASK_ID + OTHER_TASK, 5)
    span.set_attributes({"rows": 3, "table": "é\n"})
    span.add_link(trace.SpanContext(1, 2, is_remote=True), {"why": True})
    span.fail(ValueError("bad row"), None)
    span.end(9)
    encoded = the_span()
    described = json.loads(_call(encoded))
    assert described == by_protobuf(Span.FromString(encoded))
    assert [item["key"] for item in described["attributes"]][-3:] == ["rows", "table", "error.type"]
    assert described["status"] == {"code": 2, "message": "ValueError: bad row"}


@pytest.mark.parametrize(
    "span",
    [
        HEAD + START + END + TEMPLATE.body,
        HEAD + START + TEMPLATE.body + TASK_ID + TASK,
        HEAD + fixed64(0x39, 0) + END + TEMPLATE.body + TASK_ID + TASK,
        HEAD + START + fixed64(0x41, 0) + TEMPLATE.body + TASK_ID + TASK,
        *(
            HEAD + START + END + TEMPLATE.body + TASK_ID + TASK + again
            for again in (
                b"\x0a\x10" + bytes(16),
                b"\x12\x08" + bytes(8),
                b"\x22\x08" + bytes(8),
                protobuf.field(0x2A, b"renamed"),
                b"\x30\x04",
                fixed64(0x39, 1),
                encode.FLAGS_REMOTE_PARENT,
            )
        ),
        HEAD + START + END + TEMPLATE.body + encode.status(2, "x") + TASK_ID + TASK,
        HEAD + START + END + TEMPLATE.body + TASK_ID + TASK[:-1] + b'"',
        HEAD + START + END + TEMPLATE.body + TASK_ID + TASK[:32] + END + b"\x60\x01\x60\x01\x52\x01x",
        HEAD + START + END + TEMPLATE.body + TASK_ID + TASK + END[:-1],
        HEAD + START + END + TEMPLATE.body[:-1] + TASK_ID + TASK,
        # What looks like an attribute of the call is in the middle of a text.
        HEAD + START + END + protobuf.field(0x2A, b"n" + TASK_ID + TASK) + b"\x30\x05",
        HEAD + START + END + encode.attribute("k", (TASK_ID + TASK).decode()) + TASK_ID + TASK,
    ],
)
def test_anything_else_takes_the_long_way(span: bytes) -> None:
    """No ids, no end, a field that counts instead of an earlier one, text where it looks like attributes, damage."""
    assert _call(span) == ""
    short, long = both_ways(span)
    assert short == long


def test_the_memory_for_templates_is_bounded() -> None:
    """Neither very many nor very large ones are remembered."""
    before = _template.cache_info().currsize
    large = Template("n" * 2000, 5, {})
    assert _call(submitted(large, None, TASK_ID + TASK)) == ""
    assert _template.cache_info().currsize == before
    for number in range(3000):
        both_ways(submitted(Template(f"function {number}", 5, {}), None, TASK_ID + TASK))
    assert before <= _template.cache_info().currsize <= 2048


def _mostly(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Most spans are to take the short way, or nothing is compared."""
    return st.integers(0, 19).flatmap(lambda number: rare if number == 19 else usual)


_texts = _mostly(st.text(max_size=12), st.just((TASK_ID + TASK).decode()))
_values = st.one_of(_texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=5))
_attributes = st.dictionaries(_texts, _values | st.lists(_values, max_size=2), max_size=3)
_parents = st.none() | st.builds(
    Parent,
    st.just(TRACE_ID),
    st.binary(min_size=8, max_size=8),
    st.just(3),
    _mostly(st.none(), st.just(trace.TraceState([("vendor", "1")]))),
    st.booleans(),
)
_times = _mostly(st.integers(1, 2**64 - 1), st.just(0))
_own = st.permutations([PARENT_TASK_ID + OTHER_TASK, TASK_ID + TASK, ACTOR_ID + ACTOR, SUBMIT_TIME, b""]).flatmap(
    lambda parts: st.integers(1, 5).map(lambda count: b"".join(parts[:count]))
)


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    """A span as the recorder makes it."""
    template = Template(draw(_texts), draw(st.integers(0, 5)), draw(_attributes))
    parent, own = draw(_parents), draw(_own)
    if draw(st.booleans()):
        return submitted(template, parent, own)
    span = recorder.start(template, TRACE_ID, 3, parent, own, draw(_times))
    if draw(st.booleans()):
        span.set_attributes(draw(_attributes))
    if draw(st.booleans()):
        span.add_event(draw(_texts), draw(_attributes), 3)
    if draw(st.booleans()):
        span.fail(ValueError(draw(_texts)), None)
    if draw(_mostly(st.just(False), st.just(True))):
        span.update_name(draw(_texts))
    span.end(draw(_times))
    return the_span()


@given(calls())
def test_any_call_becomes_the_same_on_both_ways(span: bytes) -> None:
    """Whatever names, attributes, events and errors there are."""
    short, long = both_ways(span)
    assert short == long == by_protobuf(Span.FromString(span))


@given(calls(), st.data())
def test_damaged_calls_become_the_same(span: bytes, data: st.DataObject) -> None:
    """Bytes changed or cut off. What protobuf makes of such is compared with the long way elsewhere."""
    damaged = bytearray(span)
    for _ in range(data.draw(st.integers(1, 2))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    short, long = both_ways(bytes(damaged))
    assert short == long
