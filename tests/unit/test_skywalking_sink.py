"""The sink for SkyWalking: what arrives, read by SkyWalking's own definitions, and what becomes of failures."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import skywalking_peers as peers
import trustme
from installed import needs
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from plans import made_plan
from ports import free_port
from skywalking_peers import Backend, HttpBackend

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.skywalking import headers, ids
from ray_tracing_hooks._formats.skywalking.headers import Reference
from ray_tracing_hooks._settings import table
from ray_tracing_hooks._ship.plan import with_settings
from ray_tracing_hooks._ship.registry import destination_of, make_sink
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Sink, SinkContext
from ray_tracing_hooks._ship.sinks import skywalking

pytestmark = needs("skywalking")

START = 1_700_000_000_123_456_789
PLAN = made_plan(("skywalking",), "/nowhere", 1, 1, 1)
GATEWAY = Reference("a trace", "a segment", 3, True, "gateway", "gw-1", "/api", "10.0.0.5:8000")


class Made:
    """Makes sinks and servers, and keeps what was said and counted."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.counted: dict[str, int] = {}
        self._stack = contextlib.ExitStack()

    def backend(self, *arguments: Any, **more: Any) -> Backend:
        backend = Backend(*arguments, **more)
        self._stack.callback(backend.close)
        return backend

    def http(self, **more: Any) -> HttpBackend:
        backend = HttpBackend(**more)
        self._stack.callback(backend.close)
        return backend

    def sink(
        self,
        endpoint: str,
        state: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        /,
        **settings: str,
    ) -> Sink:
        ours = {f"RAY_TRACING_SKYWALKING_{name.upper()}": value for name, value in settings.items()}
        environ = {**ours, **(environ or {})}
        environ["SW_AGENT_COLLECTOR_BACKEND_SERVICES"] = endpoint
        arguments = PLAN, state or {}, self.remember, self.count, environ, self.problems.append
        sink = make_sink("skywalking", SinkContext(*arguments))
        self._stack.callback(sink.close)
        return sink

    def remember(self, state: Mapping[str, Any]) -> None:
        raise AssertionError("there is nothing to remember")

    def count(self, text: str, number: int) -> None:
        if number:
            said = text.replace("{count}", "N")
            self.counted[said] = self.counted.get(said, 0) + number

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def make() -> Iterator[Made]:
    made = Made()
    yield made
    made.close()


RESOURCE = {"service.name": "shop", names.RESOURCE_SESSION_NAME: "session_2026", names.RESOURCE_RAY_VERSION: "2.60.0"}


def span(number: int, **more: Any) -> bytes:
    parts = {
        "trace_id": b"\1" * 16,
        "span_id": number.to_bytes(8, "big"),
        "name": f"f{number} ray.remote",
        "kind": Span.SPAN_KIND_PRODUCER,
        "start_time_unix_nano": START,
        "end_time_unix_nano": START + 250_000_000,
        "flags": 0x100,
        **more,
    }
    return Span(**parts).SerializeToString()


def batch(spans: Sequence[bytes]) -> Batch:
    return Batch(encode.resource(RESOURCE), encode.scope(names.SCOPE), [*spans])


def a_call() -> list[bytes]:
    """A request that an agent has sent, a call in it, and the task that was called."""
    told = {names.SKYWALKING_PARENT: headers.write_sw8(GATEWAY)}
    trace_id = ids.trace_id_of(GATEWAY.trace_id)
    attributes = encode.attributes({**told, "http.request.method": "GET"})
    request = span(
        1,
        trace_id=trace_id,
        parent_span_id=ids.span_id_of(GATEWAY.segment_id, GATEWAY.span),
        flags=0x300,
        kind=Span.SPAN_KIND_SERVER,
        name="GET /",
        trace_state="sw8=a%20trace",
    )
    call = span(2, trace_id=trace_id, parent_span_id=(1).to_bytes(8, "big"), trace_state="sw8=a%20trace")
    task = span(
        3,
        trace_id=trace_id,
        parent_span_id=(2).to_bytes(8, "big"),
        flags=0x300,
        kind=Span.SPAN_KIND_CONSUMER,
        name="f2 ray.remote_worker",
        trace_state="sw8=a%20trace",
        status=Status(code=Status.STATUS_CODE_ERROR, message="ValueError: no"),
    )
    return [request + attributes, call, task]


def of_process(*spans: bytes, deployment: str = "") -> Batch:
    more = {names.RAY_SERVE_DEPLOYMENT: deployment, names.RAY_SERVE_APPLICATION: "app"} if deployment else {}
    return Batch(encode.resource({**RESOURCE, **more}), encode.scope(names.SCOPE), [*spans])


def of_serve(number: int, parent: int, name: str, kind: Any, caller: str = "") -> bytes:
    """A span of a request to Serve; that of a call which another process has made is below a remote one."""
    made = span(
        number,
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        flags=0x300 if kind == Span.SPAN_KIND_CONSUMER else 0x100,
        name=name,
        kind=kind,
    )
    return made + encode.attributes({names.SKYWALKING_CALLER: caller} if caller else {})


def deliver(sink: Sink, batches: Sequence[Batch]) -> None:
    """As the shipper does, with less patience."""
    for _ in range(1000):
        with contextlib.suppress(DeliveryError):
            sink.deliver(batches)
            return
    raise AssertionError("it is never delivered")


def test_protocol_3_by_grpc(make: Made) -> None:
    """The whole trace is one tree below the span of the agent."""
    backend = make.backend()
    make.sink(backend.endpoint).deliver([batch(a_call())])
    request, call, task = (peers.read(peers.of_3("SegmentObject"), each) for each in backend.wait_for(3))
    for each in (request, call, task):
        assert (each.traceId, each.service, each.serviceInstance) == ("a trace", "shop", "2026")
        assert len(each.spans) == 1
        assert (each.spans[0].spanId, each.spans[0].parentSpanId) == (0, -1)
    (of_request,) = request.spans[0].refs
    assert (of_request.parentTraceSegmentId, of_request.parentSpanId) == ("a segment", 3)
    assert (of_request.parentService, of_request.parentServiceInstance) == ("gateway", "gw-1")
    assert (of_request.parentEndpoint, of_request.networkAddressUsedAtPeer) == ("/api", "10.0.0.5:8000")
    (of_call,) = call.spans[0].refs
    assert (of_call.parentTraceSegmentId, of_call.refType) == (request.traceSegmentId, 1)
    (of_task,) = task.spans[0].refs
    assert (of_task.parentTraceSegmentId, of_task.refType) == (call.traceSegmentId, 0)
    assert of_task.networkAddressUsedAtPeer == call.spans[0].peer == "ray:shop/f2"
    assert [each.spans[0].spanType for each in (request, call, task)] == [0, 1, 0]
    assert [each.spans[0].isError for each in (request, call, task)] == [False, False, True]
    assert request.spans[0].spanLayer == 3
    assert make.counted == {}
    assert make.problems == []


SERVED = [
    of_process(
        of_serve(1, 0, "GET /", Span.SPAN_KIND_SERVER),
        of_serve(2, 1, "Front.__call__ serve.remote", Span.SPAN_KIND_PRODUCER),
    ),
    of_process(
        of_serve(3, 2, "Front.__call__ serve.replica", Span.SPAN_KIND_CONSUMER, "shop"),
        of_serve(4, 3, "offer", Span.SPAN_KIND_INTERNAL),
        of_serve(5, 4, "Model.infer serve.remote", Span.SPAN_KIND_PRODUCER),
        of_serve(6, 4, "mine.count ray.remote", Span.SPAN_KIND_PRODUCER),
        deployment="Front",
    ),
    of_process(
        of_serve(7, 5, "Model.infer serve.replica", Span.SPAN_KIND_CONSUMER, "shop-Front (app)"), deployment="Model"
    ),
    of_process(of_serve(8, 6, "mine.count ray.remote_worker", Span.SPAN_KIND_CONSUMER)),
]
"""A request that the deployment ``Front`` answers with one of ``Model`` and a task."""


@pytest.mark.parametrize("is_http", [False, True], ids=["grpc", "http"])
def test_each_deployment_is_a_service_where_asked_for(make: Made, is_http: bool) -> None:
    """Each reference names the service of its parent, and a call goes to the same address on both sides."""
    backend = make.http() if is_http else make.backend()
    transport = "http" if is_http else "grpc"
    template = "{service}-{deployment} ({application})"
    make.sink(backend.endpoint, transport=transport, deployment_service=template).deliver(SERVED)
    found = {each.spans[0].operationName: each for each in segments_of(backend, 8)}
    assert {name: each.service for name, each in found.items()} == {
        "GET /": "shop",
        "Front.__call__ serve.remote": "shop",
        "Front.__call__ serve.replica": "shop-Front (app)",
        "offer": "shop-Front (app)",
        "Model.infer serve.remote": "shop-Front (app)",
        "mine.count ray.remote": "shop",
        "Model.infer serve.replica": "shop-Model (app)",
        "mine.count ray.remote_worker": "shop",
    }
    by_id = {each.traceSegmentId: each for each in found.values()}
    references = [(each, reference) for each in found.values() for reference in each.spans[0].refs]
    assert len(references) == 7
    for _, reference in references:
        parent = by_id[reference.parentTraceSegmentId]
        assert (reference.parentService, reference.parentServiceInstance) == (parent.service, parent.serviceInstance)
        if reference.refType == 0:
            assert reference.networkAddressUsedAtPeer == parent.spans[0].peer
    assert all(names.SKYWALKING_CALLER not in {tag.key for tag in each.spans[0].tags} for each in found.values())
    assert make.problems == []


def test_a_cluster_is_one_service_by_default_and_for_6(make: Made) -> None:
    backend = make.backend()
    make.sink(backend.endpoint).deliver(SERVED)
    assert {each.service for each in segments_of(backend, 8)} == {"shop"}
    backend = make.backend()
    sink = make.sink(backend.endpoint, protocol="sw6", deployment_service="{deployment}")
    assert "RAY_TRACING_SKYWALKING_DEPLOYMENT_SERVICE is ignored: with SkyWalking 6.x" in make.problems[0]
    deliver(sink, SERVED)
    assert {segment.serviceId for _, segment in map(peers.read_upstream, backend.wait_for(8))} == {3}


@pytest.mark.parametrize("template", ["model", "{service}", "{deployment}-{node}", "{deployment"])
def test_a_service_for_each_deployment_has_to_name_it(template: str, make: Made) -> None:
    make.sink("localhost:1", deployment_service=template)
    (problem,) = make.problems
    assert problem.startswith(f"RAY_TRACING_SKYWALKING_DEPLOYMENT_SERVICE={template!r}")
    assert "{service}-{deployment}" in problem


def segments_of(backend: Backend | HttpBackend, count: int) -> list[Any]:
    """The segments that arrive, as SkyWalking's own definitions read them."""
    if isinstance(backend, Backend):
        return [peers.read(peers.of_3("SegmentObject"), each) for each in backend.wait_for(count)]
    from google.protobuf import json_format

    while True:
        path, _, body = backend.requests.get(timeout=60)
        if path == "/v3/segments":
            return [json_format.ParseDict(each, peers.of_3("SegmentObject")()) for each in body]


def test_the_instance_says_that_it_is_there(make: Made) -> None:
    backend = make.backend()
    make.sink(backend.endpoint).deliver([batch([span(1)])])
    method, body = backend.told.get(timeout=60)
    assert method == peers.PROPERTIES_3
    told = peers.read(peers.of_3("InstanceProperties"), body)
    assert (told.service, told.serviceInstance) == ("shop", "2026")
    assert {each.key: each.value for each in told.properties}[names.RESOURCE_RAY_VERSION] == "2.60.0"
    assert backend.told.get(timeout=60)[0] == peers.PING_3


def test_protocol_3_by_http(make: Made) -> None:
    backend = make.http()
    sink = make.sink(backend.endpoint, transport="http", token="open sesame")
    sink.deliver([batch(a_call())])
    found: dict[str, Any] = {}
    while len(found) < 3:
        path, given, body = backend.requests.get(timeout=60)
        assert given["authentication"] == "open sesame"
        found[path] = body
    assert set(found) == {"/v3/segments", "/v3/management/reportProperties", "/v3/management/keepAlive"}
    from google.protobuf import json_format

    segments = [json_format.ParseDict(each, peers.of_3("SegmentObject")()) for each in found["/v3/segments"]]
    assert [each.spans[0].operationName for each in segments] == ["GET /", "f2 ray.remote", "f2 ray.remote_worker"]
    assert segments[0].spans[0].refs[0].parentService == "gateway"
    assert found["/v3/management/keepAlive"] == {"service": "shop", "serviceInstance": "2026"}


def test_protocol_2_registers_first(make: Made) -> None:
    """The back end gives out ids when it likes; until then everything waits."""
    backend = make.backend(registers_after=2)
    sink = make.sink(backend.endpoint, protocol="sw6")
    batches = [batch([span(1), span(2, parent_span_id=(1).to_bytes(8, "big"))])]
    with pytest.raises(DeliveryError, match="not registered"):
        sink.deliver(batches)
    deliver(sink, batches)
    found = [peers.read_upstream(each) for each in backend.wait_for(2)]
    parent, child = (segment for _, segment in found)
    assert {trace_id for trace_id, _ in found} == {ids.trace_numbers(b"\1" * 16)}
    assert {(each.serviceId, each.serviceInstanceId) for each in (parent, child)} == {(3, 9)}
    (reference,) = child.spans[0].refs
    assert reference.parentTraceSegmentId == parent.traceSegmentId
    assert (reference.parentServiceInstanceId, reference.entryServiceInstanceId) == (9, 9)
    assert (reference.entryEndpointId, reference.parentEndpointId) == (-1, -1)
    methods = [backend.told.get(timeout=60)[0] for _ in range(4)]
    assert methods == [peers.SERVICE_2, peers.SERVICE_2, peers.SERVICE_2, peers.INSTANCE_2]


def test_protocol_2_pings_and_registers_again_where_it_is_asked_to(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skywalking, "HEARTBEAT_SECONDS", 0.01)
    backend = make.backend()
    sink = make.sink(backend.endpoint, protocol="sw6")
    sink.deliver([batch([span(1)])])
    assert sink.checkpoint() == {"registered": [["shop", "2026", 3, 9]]}

    def until(wanted: str) -> bytes:
        while True:
            method, body = backend.told.get(timeout=60)
            if method == wanted:
                return body

    ping = peers.read(peers.of_2("ServiceInstancePingPkg"), until(peers.PING_2))
    assert ping.serviceInstanceId == 9
    with contextlib.suppress(queue.Empty):
        while True:
            backend.told.get_nowait()
    backend.reset = True
    until(peers.INSTANCE_2)
    until(peers.PING_2)
    sink.deliver([batch([span(2)])])
    _, segment = peers.read_upstream(backend.wait_for(2)[-1])
    assert segment.serviceInstanceId == 10
    assert sink.checkpoint() == {"registered": [["shop", "2026", 3, 10]]}


def test_the_next_shipper_goes_on_with_the_ids_of_protocol_2(make: Made) -> None:
    backend = make.backend()
    state = {"registered": [["shop", "2026", 5, 7]]}
    make.sink(backend.endpoint, state, protocol="sw6").deliver([batch([span(1)])])
    ((_, segment),) = (peers.read_upstream(each) for each in backend.wait_for(1))
    assert (segment.serviceId, segment.serviceInstanceId) == (5, 7)
    # A malformed state counts as none.
    make.sink(backend.endpoint, {"registered": [1]}, protocol="sw6").deliver([batch([span(2)])])
    assert peers.read_upstream(backend.wait_for(2)[-1])[1].serviceInstanceId == 9


def test_with_ids_that_are_given_nothing_is_registered(make: Made) -> None:
    backend = make.backend()
    make.sink(backend.endpoint, protocol="sw6", service_id="5", instance_id="7").deliver([batch([span(1)])])
    ((_, segment),) = (peers.read_upstream(each) for each in backend.wait_for(1))
    assert (segment.serviceId, segment.serviceInstanceId) == (5, 7)
    assert backend.told.get(timeout=60)[0] == peers.PING_2


def test_a_token(make: Made) -> None:
    backend = make.backend(token="open sesame")
    make.sink(backend.endpoint, token="open sesame").deliver([batch([span(1)])])
    backend.wait_for(1)
    with pytest.raises(DeliveryError, match="refuses the token: PERMISSION_DENIED: wrong token"):
        make.sink(backend.endpoint).deliver([batch([span(2)])])
    with pytest.raises(DeliveryError, match="wrong token"):
        make.sink(backend.endpoint, protocol="sw6").deliver([batch([span(2)])])
    assert make.counted == {}, "spans wait, and can be replayed with the right one"


@pytest.mark.parametrize(
    ("protocol", "transport", "expected"),
    [
        ("sw8", "grpc", "UNIMPLEMENTED.*6.x or 7.x.*PROTOCOL=sw6"),
        ("sw6", "grpc", "UNIMPLEMENTED.*8.0 or newer.*PROTOCOL=sw8"),
        ("sw8", "http", "HTTP 404.*HTTP API.*8.0 or newer"),
    ],
)
def test_spans_wait_where_the_back_end_is_of_the_other_generation(
    make: Made, protocol: str, transport: str, expected: str
) -> None:
    """With what to do about it: nothing is at fault that would be lost, and a replay sends them."""
    backend: Backend | HttpBackend
    if transport == "http":
        backend = make.http(status=404)
    else:
        backend = make.backend(only=peers.COLLECT_2 if protocol == "sw8" else peers.COLLECT_3)
    with pytest.raises(DeliveryError, match=expected):
        make.sink(backend.endpoint, protocol=protocol, transport=transport).deliver([batch([span(1)])])
    assert make.counted == {}


def test_a_back_end_may_ask_for_a_certificate_of_the_client(make: Made, tmp_path: Path) -> None:
    """By the variables of SkyWalking's Java agent too."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    client = authority.issue_cert("client")
    client.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    client.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    backend = make.backend(authority=authority, asks_for_certificate=True)
    endpoint, trusted = f"https://{backend.endpoint}", str(tmp_path / "ca.pem")
    with pytest.raises(DeliveryError, match="does it ask for a client certificate"):
        make.sink(endpoint, certificate=trusted).deliver([batch([span(1)])])
    files = {"client_certificate": str(tmp_path / "cert.pem"), "client_key": str(tmp_path / "key.pem")}
    make.sink(endpoint, certificate=trusted, **files).deliver([batch([span(1)])])
    of_agent = {
        "SW_AGENT_SSL_TRUSTED_CA_PATH": trusted,
        "SW_AGENT_SSL_CERT_CHAIN_PATH": files["client_certificate"],
        "SW_AGENT_SSL_KEY_PATH": files["client_key"],
    }
    make.sink(endpoint, None, of_agent).deliver([batch([span(2)])])
    backend.wait_for(2)


def test_of_several_back_ends_one_that_answers_is_used(make: Made) -> None:
    backend = make.backend()
    sink, batches = make.sink(f"localhost:{free_port()},{backend.endpoint}"), [batch([span(1)])]
    with pytest.raises(DeliveryError):
        sink.deliver(batches)
    sink.deliver(batches)
    assert len(backend.wait_for(1)) == 1


def test_names_are_those_of_the_settings(make: Made) -> None:
    backend = make.backend()
    sink = make.sink(backend.endpoint, service="x" * 60, instance="i", namespace="ns")
    sink.deliver([batch([span(1)])])
    found = peers.of_3("SegmentObject").FromString(backend.wait_for(1)[0])
    assert (found.service, found.serviceInstance) == ("x" * 50, "i")


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({}, "SkyWalking http://localhost:11800"),
        ({"RAY_TRACING_SKYWALKING_TRANSPORT": "http"}, "SkyWalking http://localhost:12800"),
        ({"SW_AGENT_COLLECTOR_BACKEND_SERVICES": "a:1, b"}, "SkyWalking http://a:1, http://b:11800"),
        ({"SW_AGENT_FORCE_TLS": "true"}, "SkyWalking https://localhost:11800"),
        ({"RAY_TRACING_SKYWALKING_ENDPOINT": "https://me:secret@oap"}, "SkyWalking https://oap:11800"),
    ],
)
def test_where_spans_go(environ: dict[str, str], text: str) -> None:
    problems: list[str] = []
    assert destination_of("skywalking", PLAN, environ, problems.append).text == text
    assert problems == []


@pytest.mark.parametrize("is_in_file", [False, True])
def test_a_setting_with_the_value_of_its_default_precedes_the_agents_variable(is_in_file: bool, tmp_path: Path) -> None:
    """In the shipper too, to which defaults are not passed on."""
    environ = {"SW_AGENT_PROTOCOL": "http", "SW_AGENT_FORCE_TLS": "true", "SW_AGENT_NAME": "shop"}
    if is_in_file:
        file = tmp_path / "tracing.yaml"
        file.write_text("skywalking_transport: grpc\nskywalking_tls: false\n")
        environ["RAY_TRACING_CONFIG"] = str(file)
    else:
        environ |= {"RAY_TRACING_SKYWALKING_TRANSPORT": "grpc", "RAY_TRACING_SKYWALKING_TLS": "0"}
    of_shipper = with_settings(environ, table.load(environ, pytest.fail))
    found = skywalking.read(of_shipper, pytest.fail)
    assert [server.address for server in found.servers] == ["http://localhost:11800"]
    assert of_shipper == {"RAY_TRACING_SKYWALKING_SERVICE": "shop"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SW_AGENT_PROTOCOL": "kafka"}, "SW_AGENT_PROTOCOL='kafka' is ignored: expected one of grpc, http, none"),
        ({"RAY_TRACING_SKYWALKING_TOKEN": "sécret"}, "RAY_TRACING_SKYWALKING_TOKEN (not shown) is ignored"),
        ({"SW_AGENT_COLLECTOR_BACKEND_SERVICES": "http://me:secret@a b"}, "(not shown) is ignored"),
        (
            {"RAY_TRACING_SKYWALKING_PROTOCOL": "sw6", "RAY_TRACING_SKYWALKING_TRANSPORT": "http"},
            "accept segments only by gRPC",
        ),
        ({"RAY_TRACING_SKYWALKING_INSTANCE_ID": "0"}, "expected a whole number from 1 to 2147483647"),
        ({"RAY_TRACING_SKYWALKING_SERVICE_ID": "2147483648"}, "expected a whole number from 1 to 2147483647"),
        ({"RAY_TRACING_SKYWALKING_HEADER_PREFIX": "my shop"}, "expected letters, digits, dots, dashes"),
        ({"RAY_TRACING_SKYWALKING_HEADER_PREFIX": "网关"}, "as in the name of a header"),
        ({"RAY_TRACING_SKYWALKING_CERTIFICATE": "/ca.pem"}, "no address uses TLS"),
    ],
)
def test_what_is_wrong_is_said_without_secrets(environ: dict[str, str], expected: str) -> None:
    problems: list[str] = []
    destination_of("skywalking", PLAN, environ, problems.append)
    (problem,) = problems
    assert expected in problem
    assert "cret" not in problem


def test_the_token_is_masked() -> None:
    from ray_tracing_hooks._ship.log import Secrets

    secrets = Secrets({"SW_AGENT_AUTHENTICATION": "open-sesame", "RAY_TRACING_SKYWALKING_TOKEN": "abracadabra"})
    assert "sesame" not in secrets.mask("failed with open-sesame and abracadabra")
    assert "abra" not in secrets.mask("failed with open-sesame and abracadabra")
