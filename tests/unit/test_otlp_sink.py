"""The sink that sends OTLP, against collectors that run in this process."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import grpc
import pytest
from google.protobuf import json_format
from grpc_server import grpc_server
from http_server import Answer, Request, http_server, port_of
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from plans import made_plan
from protobuf_json import with_protobuf_ids

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, RefusesAllError, SinkContext
from ray_tracing_hooks._ship.sinks.otlp import OtlpSink, make

PROTOCOLS = ["grpc", "http/protobuf", "http/json"]


class Verdict(NamedTuple):
    """What a collector answers, in both protocols."""

    status: int
    code: grpc.StatusCode
    words: str = ""
    rejected: int = 0


def taken(rejected: int = 0, words: str = "") -> Verdict:
    return Verdict(200, grpc.StatusCode.OK, words, rejected)


LATER = Verdict(503, grpc.StatusCode.UNAVAILABLE, "busy")
FORBIDDEN = Verdict(403, grpc.StatusCode.PERMISSION_DENIED, "no such key")
UNAUTHENTICATED = Verdict(401, grpc.StatusCode.UNAUTHENTICATED, "who are you")
UNKNOWN = Verdict(404, grpc.StatusCode.UNIMPLEMENTED, "no such method")
BAD = Verdict(400, grpc.StatusCode.INVALID_ARGUMENT, "bad span")
BROKEN = Verdict(500, grpc.StatusCode.UNKNOWN, "storage is down")
TOO_LARGE_TRACE = Verdict(
    400,
    grpc.StatusCode.FAILED_PRECONDITION,
    "TRACE_TOO_LARGE: max size of trace (5000000) exceeded while adding 387 bytes to trace 7 for tenant x",
)
TOO_LARGE = Verdict(413, grpc.StatusCode.RESOURCE_EXHAUSTED, "received message larger than max")


class Collector:
    """Reads requests with the official protocol's code, and answers what ``judge`` says; keeps what it has taken."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.judge: Callable[[ExportTraceServiceRequest], Verdict] = lambda _: taken()
        self.requests: list[ExportTraceServiceRequest] = []
        self.sizes: list[int] = []
        self.taken: list[ExportTraceServiceRequest] = []
        self.port = 0
        self._running = ExitStack()

    def start(self) -> None:
        """At the same port each time."""
        self._running.enter_context(self._grpc() if self.protocol == "grpc" else self._http())

    def stop(self) -> None:
        self._running.close()

    def spans(self) -> list[Span]:
        return [span for request in self.taken for _, _, span in spans_of(request)]

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]

    def _answer(self, request: ExportTraceServiceRequest, size: int) -> tuple[Verdict, ExportTraceServiceResponse]:
        self.requests.append(request)
        self.sizes.append(size)
        verdict = self.judge(request)
        if verdict.status == 200:
            self.taken.append(request)
        partial = ExportTracePartialSuccess(rejected_spans=verdict.rejected, error_message=verdict.words)
        told = verdict.rejected or verdict.words
        return verdict, ExportTraceServiceResponse(partial_success=partial if told else None)

    @contextmanager
    def _grpc(self) -> Iterator[None]:
        def export(body: bytes, context: grpc.ServicerContext) -> bytes:
            verdict, answer = self._answer(ExportTraceServiceRequest.FromString(body), len(body))
            if verdict.status != 200:
                context.abort(verdict.code, verdict.words)
            return answer.SerializeToString()

        method = "opentelemetry.proto.collector.trace.v1.TraceService/Export"
        with grpc_server(method, export, port=self.port) as self.port:
            yield

    @contextmanager
    def _http(self) -> Iterator[None]:
        with http_server(self._answer_http, port=self.port) as url:
            self.port = port_of(url)
            yield

    def _answer_http(self, request: Request) -> Answer:
        assert request.path == "/v1/traces"
        in_json = self.protocol == "http/json"
        kind = "application/json" if in_json else "application/x-protobuf"
        assert request.headers["content-type"] == kind
        body = gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
        spans = ExportTraceServiceRequest()
        if in_json:
            json_format.ParseDict(with_protobuf_ids(json.loads(body)), spans)
        else:
            spans.ParseFromString(body)
        verdict, answer = self._answer(spans, len(body))
        if verdict.status != 200:
            return Answer(verdict.status, verdict.words.encode(), {"Content-Type": "text/plain"})
        encoded = json_format.MessageToJson(answer).encode() if in_json else answer.SerializeToString()
        return Answer(body=encoded, headers={"Content-Type": kind})


def spans_of(request: ExportTraceServiceRequest) -> Iterator[tuple[Resource, InstrumentationScope, Span]]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield resource_spans.resource, scope_spans.scope, span


class Made:
    """Makes sinks for one collector, and keeps what they told."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.counted: Counter[str] = Counter()
        self.problems: list[str] = []
        self.sinks: list[OtlpSink] = []

    def __call__(self, **variables: str) -> OtlpSink:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.collector.port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": self.collector.protocol,
            "NO_PROXY": "*",
            **variables,
        }
        plan = made_plan(("otlp",), "", 1, 1, 1)
        sink = make(SinkContext(plan, {}, lambda _: None, self.count, environ, self.problems.append))
        self.sinks.append(sink)
        return sink

    def count(self, text: str, number: int) -> None:
        if number:
            self.counted[text.replace("{count}", "N")] += number

    def refused(self, why: str) -> str:
        return f"N spans were refused by {self.address} and are lost: {why}"

    @property
    def address(self) -> str:
        path = "" if self.collector.protocol == "grpc" else "/v1/traces"
        return f"http://127.0.0.1:{self.collector.port}{path}"

    def told(self, verdict: Verdict) -> str:
        """How a sink words a refusal."""
        if self.collector.protocol == "grpc":
            return self.refused(f"{verdict.code.name}: {verdict.words}")
        from http import HTTPStatus

        return self.refused(f"HTTP {verdict.status} {HTTPStatus(verdict.status).phrase}: {verdict.words}")


@pytest.fixture(params=PROTOCOLS)
def collector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("NO_PROXY", "*")
    collector = Collector(request.param)
    collector.start()
    yield collector
    collector.stop()


@pytest.fixture
def made(collector: Collector) -> Iterator[Made]:
    made = Made(collector)
    yield made
    for sink in made.sinks:
        sink.close()


def span(number: int, name: str = "", filling: int = 0) -> bytes:
    return Span(
        trace_id=number.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        name=name or str(number),
        attributes=[KeyValue(key="filling", value=AnyValue(string_value="x" * filling))] if filling else [],
    ).SerializeToString()


RESOURCE = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="ray"))]).SerializeToString()
SCOPE = InstrumentationScope(name="test").SerializeToString()


def batch(numbers: Sequence[int], filling: int = 0) -> list[Batch]:
    return [Batch(RESOURCE, SCOPE, [span(number, filling=filling) for number in numbers])]


def is_probe(request: ExportTraceServiceRequest) -> bool:
    return not any(spans_of(request))


def has_bad(request: ExportTraceServiceRequest, *bad: int) -> bool:
    return any(message.name in names(bad) for _, _, message in spans_of(request))


def names(numbers: Sequence[int]) -> list[str]:
    return [str(number) for number in numbers]


# What arrives.


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_collector_receives_spans_resources_and_scopes_as_they_were_recorded(made: Made, compression: str) -> None:
    """How each of their fields is written as JSON, ``test_replay.py`` and ``test_otlp_json.py`` prove."""
    attributes = [KeyValue(key="key", value=AnyValue(bytes_value=bytes(range(256))))]
    resources = [Resource(attributes=[*attributes, KeyValue(key="n", value=AnyValue(int_value=n))]) for n in range(2)]
    scopes = [InstrumentationScope(name="a", version="1", attributes=attributes), InstrumentationScope()]
    sent: dict[bytes, tuple[Resource, InstrumentationScope, Span]] = {}
    batches = []
    for number in range(1, 25):
        resource, scope, message = resources[number % 2], scopes[number % 3 // 2], Span.FromString(span(number))
        sent[message.span_id] = (resource, scope, message)
        batches.append(Batch(resource.SerializeToString(), scope.SerializeToString(), [message.SerializeToString()]))
    made(OTEL_EXPORTER_OTLP_COMPRESSION=compression).deliver(batches)
    (request,) = made.collector.taken
    received = {message.span_id: (resource, scope, message) for resource, scope, message in spans_of(request)}
    assert received == sent
    assert len(list(spans_of(request))) == len(sent)
    assert made.counted == Counter()
    assert made.problems == []


def test_a_resource_is_sent_once_and_so_are_its_scopes() -> None:
    """However many processes have written to the portion, and in whatever order."""
    groups = [
        Group(resource, scope, [span(1)]) for _ in range(3) for resource in (RESOURCE, b"") for scope in (SCOPE, b"")
    ]
    request = ExportTraceServiceRequest.FromString(otlp.encode(groups))
    assert [len(each.scope_spans) for each in request.resource_spans] == [2, 2]
    assert [len(scope.spans) for each in request.resource_spans for scope in each.scope_spans] == [3, 3, 3, 3]


GROUPS = st.lists(
    st.builds(
        Group,
        st.sampled_from([b"", RESOURCE, b"\x0a\x00" * 200]),
        st.sampled_from([b"", SCOPE]),
        st.lists(st.integers(0, 3000).map(bytes), max_size=20),
    ),
    max_size=8,
)


@given(GROUPS, st.integers(500, 10_000), st.none() | st.integers(1, 20))
def test_requests_keep_to_their_limits(groups: list[Group], max_bytes: int, max_spans: int | None) -> None:
    """No span is lost, doubled or out of order, and only one that is larger by itself exceeds the size."""
    portions = list(otlp.cut(groups, max_bytes, max_spans))
    assert [each for portion in portions for group in portion for each in group.spans] == [
        each for group in groups for each in group.spans
    ]
    for portion in portions:
        assert all(group.spans for group in portion)
        size = otlp.count(portion)
        assert size >= 1
        assert max_spans is None or size <= max_spans
        assert len(otlp.encode(portion)) <= max_bytes or size == 1


def test_spans_are_cut_into_equal_requests_and_no_small_rest() -> None:
    """A request costs the same time however few spans it has."""
    group = Group(RESOURCE, SCOPE, [span(number) for number in range(3000)])
    size = len(otlp.encode([group]))
    sizes = [otlp.count(portion) for portion in otlp.cut([group], size * 2 // 3)]
    assert len(sizes) == 2
    assert min(sizes) > 1400
    assert list(otlp.cut([group], 2 * size)) == [[group]]


@given(GROUPS.filter(lambda groups: otlp.count(groups) > 1))
def test_halves_are_two_that_make_the_whole(groups: list[Group]) -> None:
    first, second = otlp.halves(groups)
    assert abs(otlp.count(first) - otlp.count(second)) <= 1
    assert [each for group in [*first, *second] for each in group.spans] == [
        each for group in groups for each in group.spans
    ]


def test_a_request_holds_no_more_spans_than_the_batch_size(made: Made) -> None:
    made(OTEL_BSP_MAX_EXPORT_BATCH_SIZE="30").deliver([*batch(range(1, 80)), *batch(range(80, 101))])
    assert [len(list(spans_of(request))) for request in made.collector.taken] == [30, 30, 30, 10]
    assert made.collector.names() == names(range(1, 101))


def test_nothing_is_sent_for_nothing(made: Made) -> None:
    sink = made()
    sink.deliver([])
    sink.deliver([Batch(RESOURCE, SCOPE, [])])
    assert made.collector.requests == []
    assert sink.checkpoint() == {}
    assert sink.delay == 1.0


# Failures that pass.


def test_what_was_acknowledged_is_not_sent_again(made: Made) -> None:
    """The same batch continues where it failed; each span arrives once and in order."""
    sink = made(OTEL_BSP_MAX_EXPORT_BATCH_SIZE="10")
    portion = batch(range(1, 101))
    failing = {3, 4, 9}
    made.collector.judge = lambda _: LATER if len(made.collector.requests) in failing else taken()
    for _ in failing:
        with pytest.raises(DeliveryError, match=f"^{re.escape(made.address)} accepts nothing at present: "):
            sink.deliver(portion)
    sink.deliver(portion)
    assert made.collector.names() == names(range(1, 101))
    assert made.counted == Counter()


def test_another_portion_begins_at_its_beginning(made: Made) -> None:
    sink = made(OTEL_BSP_MAX_EXPORT_BATCH_SIZE="10")
    made.collector.judge = lambda _: LATER if len(made.collector.requests) == 2 else taken()
    with pytest.raises(DeliveryError):
        sink.deliver(batch(range(1, 31)))
    sink.deliver(batch(range(101, 131)))
    sink.deliver(batch(range(201, 231)))
    assert made.collector.names() == names([*range(1, 11), *range(101, 131), *range(201, 231)])


# Spans that are refused.


def test_a_request_that_is_too_large_is_sent_in_parts(made: Made) -> None:
    """What is too large by itself is counted, and costs no other span."""
    made.collector.judge = lambda _: TOO_LARGE if made.collector.sizes[-1] > 10_000 else taken()
    made().deliver([*batch(range(1, 100), filling=500), *batch([100], filling=20_000), *batch([101])])
    assert made.collector.names() == [*names(range(1, 100)), "101"]
    assert made.counted == {made.told(TOO_LARGE): 1}


def test_a_bad_span_does_not_cost_those_that_went_with_it(made: Made) -> None:
    """It is found in about twice as many requests as there are halvings, and as many probes."""
    made.collector.judge = lambda request: BAD if has_bad(request, 7, 400) else taken()
    made().deliver(batch(range(1, 513)))
    assert made.collector.names() == [name for name in names(range(1, 513)) if name not in {"7", "400"}]
    assert made.counted == {made.told(BAD): 2}
    assert len(made.collector.requests) <= 2 * (2 * 2 * 9 + 1)


def test_looking_for_bad_spans_has_an_end(made: Made) -> None:
    """Where all spans are refused, the number of requests does not grow with the number of spans."""
    made.collector.judge = lambda request: taken() if is_probe(request) else BAD
    made().deliver(batch(range(1, 2001)))
    assert made.counted == {made.told(BAD): 2000}
    assert len(made.collector.requests) <= 450


@pytest.mark.parametrize(
    "verdict",
    [
        FORBIDDEN,
        UNAUTHENTICATED,
        UNKNOWN,
        BAD,
        Verdict(402, grpc.StatusCode.NOT_FOUND, "no quota"),
        Verdict(410, grpc.StatusCode.FAILED_PRECONDITION, "gone"),
    ],
    ids=lambda verdict: str(verdict.status),
)
def test_a_collector_that_refuses_everything_costs_no_span(made: Made, verdict: Verdict) -> None:
    """Its credentials or its address can be corrected. It is asked without spans until it accepts that."""
    made.collector.judge = lambda _: verdict
    sink = made(OTEL_BSP_MAX_EXPORT_BATCH_SIZE="50")
    portion = batch(range(1, 101))
    for _ in range(3):
        with pytest.raises(RefusesAllError, match=verdict.words) as caught:
            sink.deliver(portion)
        assert str(caught.value) == f"{made.address} refuses all spans, which wait: {caught.value.reason}"
    assert [len([*spans_of(request)]) for request in made.collector.requests] == [50, 0, 0, 0]
    made.collector.judge = lambda _: taken()
    sink.deliver(portion)
    sink.deliver(batch(range(101, 151)))
    assert made.collector.names() == names(range(1, 151))
    assert made.counted == {}


def test_the_present_cause_of_a_refusal_is_told(made: Made) -> None:
    """Where one mistake has been corrected, the next one shows. Words that differ each time are no other cause."""
    sink = made()
    told = []
    for verdict in (UNAUTHENTICATED, UNAUTHENTICATED._replace(words="request 2"), BAD):
        made.collector.judge = lambda _, verdict=verdict: verdict  # type: ignore[misc]  # of the default
        with pytest.raises(RefusesAllError) as caught:
            sink.deliver(batch([1]))
        told.append(caught.value.reason)
    assert UNAUTHENTICATED.words in told[0]
    assert told[1] == told[0]
    assert BAD.words in told[2]


def test_a_span_that_alone_is_refused_holds_up_no_other(made: Made) -> None:
    """Firewalls refuse what they take for an attack, with the status of a wrong password."""
    made.collector.judge = lambda request: FORBIDDEN if has_bad(request, 7) else taken()
    sink = made(OTEL_BSP_MAX_EXPORT_BATCH_SIZE="10")
    sink.deliver(batch(range(1, 31)))
    assert made.collector.names() == names([*range(1, 7), *range(8, 31)])
    assert made.counted == {made.told(FORBIDDEN): 1}


@pytest.mark.parametrize("accepts_probes", [True, False])
def test_failures_of_a_server_cost_no_span(made: Made, *, accepts_probes: bool) -> None:
    """However long they last. The storage of a server that accepts requests without spans may be down.

    Each attempt sends one request and a probe, but for the first one, in which something is accepted.
    """
    sink = made(OTEL_BSP_MAX_EXPORT_BATCH_SIZE="4")
    made.collector.judge = lambda _: BROKEN if len(made.collector.requests) > 1 else taken()
    if accepts_probes:
        broken = made.collector.judge
        made.collector.judge = lambda request: taken() if is_probe(request) else broken(request)
    portion = batch(range(1, 13))
    for attempt in range(1, 101):
        with pytest.raises(DeliveryError, match=f"accepts nothing at present: .*{BROKEN.words}$"):
            sink.deliver(portion)
        assert len(made.collector.requests) <= 1 + 2 * 13 + 2 * attempt
    made.collector.judge = lambda _: taken()
    sink.deliver(portion)
    assert sorted(made.collector.names(), key=int) == names(range(1, 13))
    assert made.counted == {}


def test_a_failure_that_a_span_causes_costs_no_other_span(made: Made) -> None:
    """The others arrive after a few attempts. The bad ones are lost, once the server has accepted others."""
    made.collector.judge = lambda request: BROKEN if has_bad(request, 7, 400) else taken()
    sink = made()
    portion = batch(range(1, 513))
    attempts = 0
    while True:
        attempts += 1
        assert attempts < 20
        try:
            sink.deliver(portion)
            break
        except DeliveryError:
            assert made.counted == {}
        if attempts >= 6:
            assert sorted(made.collector.names(), key=int) == [n for n in names(range(1, 513)) if n not in {"7", "400"}]
    assert attempts > 10
    assert made.counted == {made.told(BROKEN): 2}
    assert len(made.collector.requests) <= 150


def test_spans_of_a_trace_that_is_too_large(made: Made) -> None:
    """They are refused and counted with advice, and cost no span of other traces."""
    spans = [span(number % 50 or 50, name=str(number)) for number in range(1, 501)]
    trace = (7).to_bytes(16, "big")
    made.collector.judge = lambda request: (
        TOO_LARGE_TRACE if any(message.trace_id == trace for _, _, message in spans_of(request)) else taken()
    )
    made().deliver([Batch(RESOURCE, SCOPE, spans)])
    assert sorted(made.collector.names(), key=int) == [str(number) for number in range(1, 501) if number % 50 != 7]
    ((text, lost),) = made.counted.items()
    assert lost == 10
    assert "RAY_TRACING_ROOT_SPAN=0" in text
    assert "max_bytes_per_trace" in text
    assert len(made.collector.requests) <= 2 * 6 + 1


def test_spans_that_a_collector_rejects_are_counted_and_not_sent_again(made: Made) -> None:
    """With its reason; the rest of the request has been taken."""
    made.collector.judge = lambda _: taken(3, "span {too}\n old")
    sink = made()
    sink.deliver(batch(range(1, 11)))
    sink.deliver(batch(range(11, 21)))
    assert len(made.collector.requests) == 2
    assert made.counted == {made.refused("span {too} old"): 6}
    made.collector.judge = lambda _: taken(1 << 40)
    sink.deliver(batch(range(21, 31)))
    assert made.counted[made.refused("it gives no reason")] == 10, "no more than were sent"


def test_a_warning_of_the_collector_is_told(made: Made) -> None:
    """Each once, and not without end: there may be a time in it."""
    sink = made()
    for text in ("deprecated", "deprecated", *(f"at {number}" for number in range(20))):
        made.collector.judge = lambda _, text=text: taken(0, text)  # type: ignore[misc]  # of the default
        sink.deliver(batch([1]))
    assert made.problems == [
        f"{made.address} accepted the spans with a warning: {text}"
        for text in ("deprecated", *(f"at {n}" for n in range(4)))
    ]
    assert made.counted == Counter()


def test_reasons_that_never_repeat_are_counted_together(made: Made) -> None:
    """The log has one line for each reason."""
    made.collector.judge = lambda _: taken(1, f"request {len(made.collector.requests)}")
    sink = made()
    for number in range(1, 51):
        sink.deliver(batch([number]))
    assert len(made.counted) <= 21
    assert made.counted.total() == 50
    assert made.counted[made.refused("for various reasons")] == 30


@pytest.mark.parametrize("collector", ["http/json"], indirect=True)
def test_spans_that_have_no_json(made: Made) -> None:
    """They are left out and counted once, however often the request is tried; the others arrive."""
    verdicts = iter([LATER, LATER, taken()])
    made.collector.judge = lambda _: next(verdicts)
    sink = made()
    portion = [Batch(b"\xff", b"\xff", [span(1), b"\xff\xff", span(2)])]
    for _ in range(2):
        with pytest.raises(DeliveryError):
            sink.deliver(portion)
    sink.deliver(portion)
    assert made.collector.names() == ["1", "2"]
    assert made.counted == {"N spans could not be decoded and were skipped": 1}


@pytest.mark.parametrize(
    "answer",
    [b"", b"\xff", b"\x0a\x05", b"\x0a\x02\x08", b"\x08\x01", b"\x0d", b"\x0a\x0b\x08" + b"\xff" * 9 + b"\x01"],
)
def test_an_answer_that_makes_no_sense_says_nothing(answer: bytes) -> None:
    """Nor does a number of rejected spans below 0."""
    assert otlp.decode_answer(answer) == (0, "")


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "x"}}', (2, "x")),
        (b'{"partialSuccess": {"rejectedSpans": -2}}', (0, "")),
        (b'{"partialSuccess": null}', (0, "")),
        (b'{"partialSuccess": [1]}', (0, "")),
        (b'{"partialSuccess": {"rejectedSpans": "x"}}', (0, "")),
        (b'{"partialSuccess": {"rejectedSpans": 1e999}}', (0, "")),
        (b"[]", (0, "")),
        (b"", (0, "")),
        (b"{", (0, "")),
        (b"\xff", (0, "")),
        (b"[" * 100_000, (0, "")),
    ],
)
def test_answers_in_json(answer: bytes, meaning: tuple[int, str]) -> None:
    """64-bit integers may be texts; what makes no sense says nothing."""
    assert otlp.decode_json_answer(answer) == meaning
