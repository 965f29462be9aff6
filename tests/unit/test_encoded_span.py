"""What is found in an encoded span without decoding it is what protobuf's own classes find there."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.trace import TraceState

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode, tags
from ray_tracing_hooks._formats.encoded_span.read import (
    FLAGS,
    IDS_FORM,
    KEYS_OF_IDS,
    call,
    key_of_attribute,
    own_part,
    parent_id,
    parts,
    start_time,
)
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._record.span import Parent

TRACE_ID, SPAN_ID, PARENT_ID = bytes(range(16)), bytes(range(16, 24)), bytes(range(32, 40))
LOCAL = Parent(TRACE_ID, PARENT_ID, 1, None, remote=False)
REMOTE = LOCAL._replace(remote=True)
WITH_STATE = REMOTE._replace(trace_state=TraceState([("a", "b")]))
START, END = 1_700_000_000_123_456_789, 1_700_000_001_000_000_000
TASK, CALLER, ACTOR = b"a" * 48, b"b" * 48, b"c" * 32
SITE = encode.name_and_kind("module.function ray.remote_worker", 5) + encode.attribute(names.RAY_FUNCTION, "f")
TEMPLATE = SITE + encode.attribute(names.RAY_PID, "17")
OWN = encode.BEFORE_TASK_ID + TASK + encode.BEFORE_PARENT_TASK_ID + CALLER
KEYS = tuple(map(key_of_attribute, (names.RAY_ATTEMPT, names.ERROR_TYPE)))


def submission(parent: Parent | None, own: bytes = OWN) -> bytes:
    times = encode.start_and_end(START, encode.END_TAG, END)
    return encode.identity_of(TRACE_ID, SPAN_ID, parent) + times + TEMPLATE + own


def execution(parent: Parent | None, own: bytes = OWN, added: bytes = b"") -> bytes:
    head = encode.identity_of(TRACE_ID, SPAN_ID, parent) + encode.start_time(START)
    return head + TEMPLATE + own + encode.end_time(END) + added


def foreign(**more: Any) -> bytes:
    """A span as protobuf writes it: in the order of the numbers of its fields."""
    given: dict[str, Any] = {"trace_id": TRACE_ID, "span_id": SPAN_ID, "name": "n", "start_time_unix_nano": START}
    return bytes(Span(**(given | more)).SerializeToString())


@pytest.mark.parametrize("message", [Span, Span.Event, Span.Link, Status, Resource, LogRecord, KeyValue, AnyValue])
def test_tags_are_those_of_protobuf(message: Any) -> None:
    """Each constant is the tag of a field of this message, and the names are the same but for units and types."""
    wire_types = {"fixed64": 1, "fixed32": 5, "double": 1, "bool": 0, "int64": 0, "uint32": 0, "enum": 0}
    kinds = {1: "double", 3: "int64", 6: "fixed64", 7: "fixed32", 8: "bool", 13: "uint32", 14: "enum"}
    expected = {
        field.name: field.number << 3 | wire_types.get(kinds.get(field.type, ""), 2)
        for field in message.DESCRIPTOR.fields
    }
    written = {name: tag for name, tag in vars(getattr(tags, f"{message.__name__}Tag")).items() if name.isupper()}
    assert len(written) == len(set(written.values()))
    for name, tag in written.items():
        (found,) = [field for field, number in expected.items() if number == tag]
        assert found.startswith(name.lower())


def test_an_event_and_a_link_say_what_they_dropped_and_a_link_whether_its_span_is_remote() -> None:
    """The spans of the SDK's API drop nothing of a link, and its links are rarely remote."""
    attribute = KeyValue(key="k", value=AnyValue(bool_value=True))
    shared: dict[str, Any] = {"attributes": [attribute], "dropped_attributes_count": 4}
    event = Span.Event(time_unix_nano=START, name="event", **shared)
    link = Span.Link(trace_id=TRACE_ID, span_id=PARENT_ID, trace_state="c=d", flags=0x300, **shared)
    written = encode.event("event", START, {"k": True}, 4)
    written += encode.link(TRACE_ID, PARENT_ID, "c=d", {"k": True}, remote=True, dropped=4)
    assert Span.FromString(written) == Span(events=[event], links=[link])


@pytest.mark.parametrize("parent", [None, LOCAL, REMOTE, WITH_STATE], ids=["root", "local", "remote", "with a state"])
def test_ids_stand_where_they_are_looked_for(parent: Parent | None) -> None:
    """So do those of each span that begins as ours."""
    for encoded in (submission(parent), execution(parent)):
        assert (encoded[encode.TRACE_ID], encoded[encode.SPAN_ID]) == (TRACE_ID, SPAN_ID)
        assert encoded[encode.IDS] == encode.before_id(TRACE_ID) + SPAN_ID
        assert re.match(IDS_FORM, encoded, re.DOTALL)
        assert parent_id(encoded) == (parent.span_id if parent else b"")
        assert start_time(encoded) == START


def test_times_long_ago_and_far_ahead() -> None:
    """A submit time that takes another number of bytes than those of our days is the same attribute."""
    for moment in (0, 1, 127, START, 2**62, 2**63 - 1):
        (attribute,) = Span.FromString(encode.submit_time(moment)).attributes
        assert (attribute.key, attribute.value.int_value) == (names.RAY_SUBMIT_TIME, moment)
        for encoded in (encode.start_time(moment), encode.end_time(moment)):
            span = Span.FromString(encoded)
            assert span.start_time_unix_nano + span.end_time_unix_nano == moment


@pytest.mark.parametrize("state", ["", "a=b"])
def test_one_thing_of_a_span_of_another_order(state: str) -> None:
    """It is found by walking."""
    encoded = foreign(trace_state=state, parent_span_id=PARENT_ID)
    assert parent_id(encoded) == PARENT_ID
    assert start_time(encoded) == START
    assert parent_id(foreign()) == b""
    assert (parent_id(b"\xff"), start_time(b"\xff")) == (b"", 0)


@pytest.mark.parametrize("parent", [None, LOCAL, REMOTE], ids=["root", "local", "remote"])
def test_a_call(parent: Parent | None) -> None:
    """Its times, what it shares with others, and its own part."""
    above = parent.span_id if parent else b""
    found = call(submission(parent))
    assert found is not None
    assert found[:4] == (above, START, END, SITE)
    begun = call(execution(parent))
    assert begun is not None
    assert begun[:4] == (above, START, -1, SITE)
    for own in (
        encode.BEFORE_TASK_ID + TASK,
        OWN,
        OWN + encode.BEFORE_ACTOR_ID + ACTOR,
        encode.BEFORE_TASK_ID + TASK + encode.BEFORE_ACTOR_ID + ACTOR,
    ):
        assert own_part(execution(parent, own), begun[4], KEYS) == (END, {}, False)
        added = encode.attributes({names.RAY_ATTEMPT: 2, "other": 1, names.ERROR_TYPE: "E"})
        failed = execution(parent, own + added, encode.status(encode.STATUS_ERROR, "why"))
        assert own_part(failed, begun[4], KEYS) == (END, {names.RAY_ATTEMPT: 2, names.ERROR_TYPE: "E"}, True)
    assert own_part(execution(parent, b""), begun[4], KEYS) is None


def test_what_is_no_call_of_ours_is_left_to_others() -> None:
    """Another order, no pid, a trace state, or nothing but ids."""
    for encoded in (foreign(), foreign(parent_span_id=PARENT_ID), execution(WITH_STATE), TEMPLATE + submission(REMOTE)):
        assert call(encoded) is None
    without_pid = encode.identity_of(TRACE_ID, SPAN_ID, None) + encode.start_time(START) + SITE + bytes(20)
    assert call(without_pid) is None
    for encoded in (b"", submission(None)[encode.IDS]):
        with pytest.raises(FormatError):
            call(encoded)


@pytest.mark.parametrize("parent", [None, LOCAL, REMOTE], ids=["root", "local", "remote"])
def test_the_parts_of_a_call(parent: Parent | None) -> None:
    """They are all of it, in order, and what has been added comes last."""
    start, end = struct.pack("<Q", START), struct.pack("<Q", END)
    flags = encode.FLAGS_REMOTE_PARENT if parent and parent.remote else encode.FLAGS_LOCAL_PARENT
    assert FLAGS[flags] == (0x300 if parent and parent.remote else 0x100)
    ids = TRACE_ID, SPAN_ID, parent.span_id if parent else None
    own = (encode.BEFORE_TASK_ID, TASK, encode.BEFORE_PARENT_TASK_ID, CALLER, None, None)
    assert [KEYS_OF_IDS[before] for before in own[:4:2]] == [names.RAY_TASK_ID, names.RAY_PARENT_TASK_ID]
    assert parts(submission(parent)) == ((*ids, flags, start, end), TEMPLATE, (*own, None, None), b"")
    added = encode.status(1)
    submitted = encode.submit_time(START)
    found = parts(execution(parent, OWN + submitted, added))
    assert found is not None
    assert found[0] == (*ids, flags, start, None)
    assert found[2][:6] == own
    assert AnyValue.FromString(found[2][6]).int_value == START
    assert (found[2][7], found[3]) == (end, added)


def test_what_has_other_parts_is_left_to_others() -> None:
    """Another order, a trace state, or no task."""
    for encoded in (b"", foreign(), execution(WITH_STATE), execution(REMOTE, b"")):
        assert parts(encoded) is None


@pytest.mark.parametrize("encoded", [submission(None), execution(REMOTE), foreign(parent_span_id=PARENT_ID)])
def test_a_span_cut_anywhere_is_refused_or_read(encoded: bytes) -> None:
    """Nothing is raised except the error for invalid spans."""
    for size in range(len(encoded)):
        cut = encoded[:size]
        parts(cut)
        assert parent_id(cut) in {b"", PARENT_ID[: max(0, size - 30)]}
        assert start_time(cut) in {0, START}
        try:
            found = call(cut)
            if found is not None:
                own_part(cut, found[4], KEYS)
        except FormatError:
            continue
