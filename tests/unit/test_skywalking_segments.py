"""Spans as SkyWalking's segments, against what SkyWalking's own libraries write for the same."""

from __future__ import annotations

import json

import pytest

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Event, Link, Scope, Span
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._formats.skywalking import headers, ids, messages, segments
from ray_tracing_hooks._formats.skywalking.headers import Identity, Reference
from ray_tracing_hooks._formats.skywalking.segments import (
    CROSS_PROCESS,
    CROSS_THREAD,
    ENTRY,
    EXIT,
    LOCAL,
    Generation,
    Log,
    Segment,
    SegmentReference,
    SegmentSpan,
)

START = 1_700_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
GATEWAY = Reference(TRACE, "4f2f27748b8e44ecaf18fe0347194e86", 3, True, "gateway", "gw-1", "/api", "10.0.0.5:8000")
HERE = Identity("ray", "session")
OURS, THEIRS = Scope(names.SCOPE, "1", {}), Scope("opentelemetry.instrumentation.requests", "1", {})
OF_6 = Generation(is_of_6=True, instance_id=9)

TWO_SPANS = Segment(
    TRACE,
    "11111111222233334444555566667777",
    Identity("ray", "n1"),
    [
        SegmentSpan(
            0,
            -1,
            START,
            START + 5,
            [SegmentReference(CROSS_PROCESS, GATEWAY)],
            "f",
            "",
            ENTRY,
            segments.RPC_FRAMEWORK,
            7000,
            True,
            [("http.method", "GET")],
            [Log(START + 1, [("event", "error")])],
            False,
        ),
        SegmentSpan(
            1,
            0,
            START + 1,
            START + 2,
            [],
            "g",
            "ray:llm/G",
            EXIT,
            segments.RPC_FRAMEWORK,
            7000,
            False,
            [],
            [],
            False,
        ),
    ],
)

GOLDEN_3 = (
    "0a20306166373635313931366364343364643834343865623231316338303331396312203131313131313131323232323333333334343434"
    "3535353536363636373737371abc0110ffffffffffffffffff011880d095ffbc312085d095ffbc312a6a1220306166373635313931366364"
    "34336464383434386562323131633830333139631a2034663266323737343862386534346563616631386665303334373139346538362003"
    "2a0767617465776179320467772d313a042f617069420d31302e302e302e353a38303030320166480250d836580162120a0b687474702e6d"
    "6574686f6412034745546a170881d095ffbc31120e0a056576656e7412056572726f721a2508011881d095ffbc312082d095ffbc31320167"
    "3a097261793a6c6c6d2f474001480250d83622037261792a026e31"
)

JSON_3 = (
    '{"traceId":"0af7651916cd43dd8448eb211c80319c","traceSegmentId":"11111111222233334444555566667777","spans":[{"p'
    'arentSpanId":-1,"startTime":"1700000000000","endTime":"1700000000005","refs":[{"traceId":"0af7651916cd43dd8448'
    'eb211c80319c","parentTraceSegmentId":"4f2f27748b8e44ecaf18fe0347194e86","parentSpanId":3,"parentService":"gate'
    'way","parentServiceInstance":"gw-1","parentEndpoint":"/api","networkAddressUsedAtPeer":"10.0.0.5:8000"}],"oper'
    'ationName":"f","spanLayer":"RPCFramework","componentId":7000,"isError":true,"tags":[{"key":"http.method","valu'
    'e":"GET"}],"logs":[{"time":"1700000000001","data":[{"key":"event","value":"error"}]}]},{"spanId":1,"startTime"'
    ':"1700000000001","endTime":"1700000000002","operationName":"g","peer":"ray:llm/G","spanType":"Exit","spanLayer'
    '":"RPCFramework","componentId":7000}],"service":"ray","serviceInstance":"n1"}'
)

GOLDEN_2 = (
    "0a160a14eca2c6b2f7958008baa484bb8f6a9ce380e4916412750a0c0a0a09018180ba898fad991e126110ffffffffffffffffff011880d0"
    "95ffbc312085d095ffbc312a3e12110a0f04b1cfb5df9f34ccef8fcd8ef0f11f180120012a0d31302e302e302e353a38303030380148ffff"
    "ffffffffffffff0158ffffffffffffffffff013a0166580260d83618032009"
)


def test_protocol_3_is_what_official_stubs_write() -> None:
    assert messages.encoded(messages.segment(TWO_SPANS)).hex() == GOLDEN_3


def test_json_is_what_official_stubs_write() -> None:
    assert json.loads(messages.as_json(messages.segment(TWO_SPANS))) == json.loads(JSON_3)
    assert json.loads(messages.collection_json([b"{}", b"{}"])) == [{}, {}]


def test_protocol_2_is_what_official_stubs_write() -> None:
    to = Reference("", "4.1795228002225.17952280022349772", 1, True, "", "", "", "#10.0.0.5:8000", 1, 1, "-1", "-1")
    only = TWO_SPANS.spans[0]._replace(
        references=[SegmentReference(CROSS_PROCESS, to)], is_error=False, tags=[], logs=[]
    )
    made = Segment("4504353231704428.3646282601018.3440746967452", "9.1.17000000000000001", HERE, [only])
    assert messages.upstream_segment(made, 3, 9).hex() == GOLDEN_2


def span(**more: object) -> Span:
    nothing: dict[str, object] = {
        "trace_id": bytes.fromhex(TRACE),
        "span_id": b"12345678",
        "trace_state": "",
        "parent_span_id": b"",
        "name": "work",
        "kind": 1,
        "start_ns": START * 1_000_000 + 999_999,
        "end_ns": (START + 7) * 1_000_000,
        "attributes": {},
        "dropped_attributes": 0,
        "events": [],
        "dropped_events": 0,
        "links": [],
        "dropped_links": 0,
        "status_code": 0,
        "status_message": "",
        "flags": 0x100,
    }
    return Span(**{**nothing, **more})  # type: ignore[arg-type]  # by name


def made(scope: Scope = OURS, generation: Generation = segments.OF_8, **more: object) -> tuple[Segment, SegmentSpan]:
    found = segments.segment(span(**more), scope, HERE, generation)
    (only,) = found.spans
    return found, only


def test_a_span_is_the_first_one_of_its_own_segment() -> None:
    found, only = made()
    assert found.trace_id == TRACE
    assert found.segment_id == ids.segment_text(bytes.fromhex(TRACE), b"12345678")
    assert (only.number, only.parent, only.references) == (0, -1, [])
    assert (only.start_ms, only.end_ms) == (START, START + 7)
    assert (only.type, only.layer, only.skips_analysis) == (LOCAL, segments.UNKNOWN, True)


@pytest.mark.parametrize(("flags", "type_"), [(0x300, CROSS_PROCESS), (0x100, CROSS_THREAD)])
def test_a_reference_leads_to_the_segment_of_the_parent(flags: int, type_: int) -> None:
    parent, of_parent = made(kind=4, name="f ray.remote")
    _, child = made(span_id=b"abcdefgh", parent_span_id=b"12345678", flags=flags, kind=5, name="f ray.remote_worker")
    (reference,) = child.references
    to = reference.to
    assert reference.type == type_
    assert (to.trace_id, to.segment_id, to.span) == (parent.trace_id, parent.segment_id, 0)
    assert (to.service, to.instance, to.endpoint) == (*HERE, of_parent.name)
    # The address that the caller's span has, without which SkyWalking draws no arrow.
    assert to.address == (of_parent.peer if type_ == CROSS_PROCESS else "")


@pytest.mark.parametrize(
    ("kind", "scope", "type_", "skips"),
    [
        (2, OURS, ENTRY, False),
        (5, OURS, ENTRY, False),
        (4, OURS, EXIT, True),
        (3, THEIRS, EXIT, False),
        (1, THEIRS, LOCAL, True),
        (0, OURS, LOCAL, True),
    ],
)
def test_kinds_are_types(kind: int, scope: Scope, type_: int, skips: bool) -> None:
    _, only = made(scope, kind=kind)
    assert (only.type, only.skips_analysis) == (type_, skips)
    assert bool(only.peer) == (type_ == EXIT)


@pytest.mark.parametrize(
    ("attributes", "layer"),
    [
        ({"db.system": "mysql"}, segments.DATABASE),
        ({"http.request.method": "GET"}, segments.HTTP),
        ({"messaging.system": "celery"}, segments.MQ),
        ({}, segments.RPC_FRAMEWORK),
    ],
)
def test_layers(attributes: dict[str, str], layer: int) -> None:
    assert made(kind=3, attributes=attributes)[1].layer == layer


@pytest.mark.parametrize(
    ("attributes", "peer"),
    [
        ({"server.address": "db", "server.port": 5432}, "db:5432"),
        ({"server.address": "db"}, "db"),
        ({"net.peer.name": "db", "net.peer.port": 1}, "db:1"),
        ({"url.full": "http://user:secret@shop:8000/a?b=c"}, "shop:8000"),
        ({"http.url": "http://[::1]:1/"}, "[::1]:1"),
        ({"url.full": "http://[bad"}, "ray:ray/work"),
        ({"server.address": "x" * 99}, "x" * 70),
        ({"server.address": "db", names.SKYWALKING_PEER: "as sent"}, "as sent"),
        ({}, "ray:ray/work"),
    ],
)
def test_the_address_of_a_call(attributes: dict[str, object], peer: str) -> None:
    assert made(kind=3, attributes=attributes)[1].peer == peer


def test_attributes_are_tags_by_the_names_that_skywalking_shows() -> None:
    attributes = {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "ok": True,
        "list": ("a", 1),
        "bytes": b"\0",
        "none": None,
        "text": "grüße",
        names.SKYWALKING_PEER: "hidden",
    }
    links = [Link(b"\1" * 16, b"\2" * 8, "", {"why": "because"}, 0, 0)]
    _, only = made(THEIRS, attributes=attributes, links=links, dropped_events=2, status_code=2, status_message="bad")
    assert only.is_error
    assert dict(only.tags) == {
        "http.method": "GET",
        "http.status_code": "200",
        "ok": "true",
        "list": '["a",1]',
        "bytes": "AA==",
        "text": "grüße",
        "otel.status_description": "bad",
        "otel.scope.name": THEIRS.name,
        "otel.dropped_events_count": "2",
        "otel.link.1": f'{"01" * 16}/{"02" * 8} {{"why":"because"}}',
    }
    assert only.component == 7002


def test_a_long_name_is_cut_as_in_the_references_to_it() -> None:
    """SkyWalking would take it for another endpoint otherwise. The whole name is a tag."""
    name = "x" * 200
    _, only = made(kind=2, name=name)
    _, child = made(span_id=b"abcdefgh", parent_span_id=b"12345678", name=f"{name} ray.remote_worker")
    assert only.name == "x" * 149
    assert child.references[0].to.endpoint == only.name
    assert ("otel.span_name", name) in only.tags


def test_events_are_logs() -> None:
    """An exception as an agent for Java writes it."""
    told = {
        "exception.type": "ValueError",
        "exception.message": "no",
        "exception.stacktrace": "...",
        "exception.escaped": "True",
    }
    events = [Event(START * 1_000_000, "exception", told, 0), Event(START * 1_000_000, "cached", {"hits": 2}, 0)]
    _, only = made(events=events)
    assert [log.pairs for log in only.logs] == [
        [("event", "error"), ("error.kind", "ValueError"), ("message", "no"), ("stack", "...")],
        [("event", "cached"), ("hits", "2")],
    ]


def test_a_header_of_an_agent_is_the_reference() -> None:
    told = GATEWAY._replace(trace_id="56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430001")
    found, only = made(
        trace_id=ids.trace_id_of(told.trace_id),
        parent_span_id=ids.span_id_of(told.segment_id, told.span),
        flags=0x300,
        kind=2,
        attributes={names.SKYWALKING_PARENT: headers.write_sw8(told)},
    )
    assert found.trace_id == told.trace_id
    assert only.references == [SegmentReference(CROSS_PROCESS, told)]
    assert only.tags == []


def test_the_trace_of_an_agent_keeps_its_id_in_every_segment() -> None:
    text = "4.1795228002226.17952280022349362"
    trace_id = ids.trace_id_of(text)
    for generation in (segments.OF_8, OF_6):
        assert made(generation=generation, trace_id=trace_id, trace_state=f"a=b,sw8={text}")[0].trace_id == text
    # Another trace's, or one that this generation cannot write.
    assert made(trace_state=f"sw8={text}")[0].trace_id == TRACE
    java = "56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430001"
    found, _ = made(generation=OF_6, trace_id=ids.trace_id_of(java), trace_state=f"sw8={java}")
    assert found.trace_id == ids.trace_numbers(ids.trace_id_of(java))


def test_a_segment_of_6_has_numbers() -> None:
    parent, _ = made(generation=OF_6)
    found, only = made(generation=OF_6, span_id=b"abcdefgh", parent_span_id=b"12345678", flags=0x300, kind=5)
    assert ids.three_numbers(found.trace_id)
    (reference,) = only.references
    to = reference.to
    assert to.segment_id == parent.segment_id
    assert (to.instance_id, to.entry_instance_id, to.entry_endpoint, to.parent_endpoint) == (9, 9, "-1", "-1")


def test_a_header_of_the_other_generation_is_no_reference() -> None:
    """Its segments are in another back end."""
    told = {names.SKYWALKING_PARENT: headers.write_sw8(GATEWAY)}
    assert made(generation=OF_6, parent_span_id=b"whatever", flags=0x300, attributes=told)[1].references == []


@pytest.mark.parametrize("id_", ["trace_id", "span_id", "parent_span_id"])
def test_a_span_with_other_ids_is_malformed(id_: str) -> None:
    with pytest.raises(FormatError):
        segments.segment(span(**{id_: b"1"}), OURS, HERE)


def test_answers_to_a_registration() -> None:
    assert messages.given_id(b"", "ray") == 0
    assert messages.given_id(bytes.fromhex("0a070a037261791003"), "ray") == 3
    assert messages.given_id(bytes.fromhex("0a070a037261791003"), "other") == 0
