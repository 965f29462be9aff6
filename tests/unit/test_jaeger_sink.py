"""The sink for Jaeger's own protocols: what arrives, read by Jaeger's own definitions, and what becomes of failures."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jaeger_idl
import pytest
from installed import needs
from jaeger_receivers import KINDS, OTLP_EXPORT, POST_SPANS
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from plans import made_plan

from ray_tracing_hooks._formats.protobuf import field
from ray_tracing_hooks._safety.guard import SettingError
from ray_tracing_hooks._ship.registry import make_sink
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Sink, SinkContext

pytestmark = needs("definitions")

START = 1_700_000_000_123_456_789
OWN = ["thrift-udp", "thrift-http", "grpc"]


class Made:
    """Makes sinks and servers, and keeps what was said and counted."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.counted: dict[str, int] = {}
        self._stack = contextlib.ExitStack()

    def server(self, protocol: str, *arguments: Any) -> Any:
        server = KINDS[protocol](*arguments)
        self._stack.callback(server.close)
        return server

    def sink(self, protocol: str, endpoint: str, /, **environ: str) -> Sink:
        plan = made_plan(("jaeger",), "/nowhere", 1, 1, 1)
        environ |= {"RAY_TRACING_JAEGER_PROTOCOL": protocol, "RAY_TRACING_JAEGER_ENDPOINT": endpoint}
        sink = make_sink("jaeger", SinkContext(plan, {}, self.remember, self.count, environ, self.problems.append))
        self._stack.callback(sink.close)
        return sink

    def both(self, protocol: str, **environ: str) -> tuple[Any, Sink]:
        server = self.server(protocol)
        return server, self.sink(protocol, server.endpoint, **environ)

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


def any_value(value: Any) -> AnyValue:
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=attributes(value)))
    fields = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    return AnyValue() if value is None else AnyValue(**{fields[type(value)]: value})


def attributes(found: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in found.items()]


def resource(service: str) -> bytes:
    return Resource(attributes=attributes({"service.name": service, "host.cpus": 8})).SerializeToString()


def scope(name: str = "lib", version: str = "1.2", **more: Any) -> bytes:
    return InstrumentationScope(name=name, version=version, attributes=attributes(more)).SerializeToString()


def span(number: int, size: int = 0, **more: Any) -> bytes:
    """An encoded span that has the number as its ids and name, and a text of this size."""
    parts = {
        "trace_id": number.to_bytes(16, "big"),
        "span_id": number.to_bytes(8, "big"),
        "name": str(number),
        "kind": Span.SPAN_KIND_CONSUMER,
        "start_time_unix_nano": START,
        "end_time_unix_nano": START + 250_000_000,
        "attributes": attributes({"text": "x" * size} if size else {}),
        **more,
    }
    return Span(**parts).SerializeToString()


def batch(numbers: Sequence[int], size: int = 0, service: str = "a") -> Batch:
    return Batch(resource(service), scope(), [span(number, size) for number in numbers])


def only(spans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (found,) = spans
    return found


@pytest.mark.parametrize("protocol", OWN)
def test_a_span_arrives_whole(make: Made, protocol: str) -> None:
    """Ids with their highest bits set, the parent, times, and a tag of its type for everything else that OTLP has."""
    jaeger, sink = make.both(protocol)
    trace_id, span_id, parent_id = b"\xff" + bytes(14) + b"\x01", b"\xfe" + bytes(6) + b"\x02", bytes(7) + b"\x03"
    encoded = Span(
        trace_id=trace_id,
        span_id=span_id,
        trace_state="a=b",
        parent_span_id=parent_id,
        name="näme",
        kind=Span.SPAN_KIND_PRODUCER,
        start_time_unix_nano=START,
        end_time_unix_nano=START + 1_250_000_111,
        attributes=attributes(
            {
                "text": "grüße",
                "empty": "",
                "true": True,
                "false": False,
                "zero": 0,
                "least": -(2**63),
                "most": 2**63 - 1,
                "double": -0.5,
                "bytes": b"\x00\xff",
                "list": ["ä", 1, 2.5, False, b"\x01"],
                "map": {"a": [1], "b": {"c": "d"}},
                "nothing": None,
            }
        ),
        dropped_attributes_count=1,
        events=[
            Span.Event(
                time_unix_nano=START + 1_000,
                name="exception",
                attributes=attributes({"exception.type": "ValueError", "n": 3}),
                dropped_attributes_count=2,
            ),
            Span.Event(time_unix_nano=START + 2_000, name="hidden", attributes=attributes({"event": "shown"})),
        ],
        dropped_events_count=3,
        links=[
            Span.Link(trace_id=b"\xf0" * 16, span_id=b"\xf1" * 8),
            Span.Link(
                trace_id=b"\x0a" * 16,
                span_id=b"\x0b" * 8,
                attributes=attributes({"why": "x"}),
                dropped_attributes_count=5,
            ),
        ],
        dropped_links_count=4,
        status=Status(code=Status.STATUS_CODE_ERROR, message="it broke"),
        flags=0x100,
    ).SerializeToString()
    sink.deliver([Batch(resource("my service"), scope(extra=True), [encoded])])
    (received,) = jaeger.batches(1)
    assert received.service == "my service"
    assert received.tags == [("host.cpus", "LONG", 8)]
    found = only(received.spans)
    tags, logs = found.pop("tags"), found.pop("logs")
    exact = protocol == "grpc"  # Thrift has microseconds
    assert found == {
        "trace": trace_id.hex(),
        "span": span_id.hex(),
        "parent": parent_id.hex(),
        "name": "näme",
        "links": [(1, "f0" * 16, "f1" * 8), (1, "0a" * 16, "0b" * 8)],
        "start": START if exact else START // 1000 * 1000,
        "duration": 1_250_000_111 if exact else 1_250_000_000,
    }
    assert sorted(tags) == sorted(
        [
            ("extra", "BOOL", True),
            ("text", "STRING", "grüße"),
            ("empty", "STRING", ""),
            ("true", "BOOL", True),
            ("false", "BOOL", False),
            ("zero", "LONG", 0),
            ("least", "LONG", -(2**63)),
            ("most", "LONG", 2**63 - 1),
            ("double", "DOUBLE", -0.5),
            ("bytes", "BINARY", b"\x00\xff"),
            ("list", "STRING", '["ä",1,2.5,false,"AQ=="]'),
            ("map", "STRING", '{"a":[1],"b":{"c":"d"}}'),
            ("otel.scope.name", "STRING", "lib"),
            ("otel.scope.version", "STRING", "1.2"),
            ("otel.library.name", "STRING", "lib"),
            ("otel.library.version", "STRING", "1.2"),
            ("span.kind", "STRING", "producer"),
            ("w3c.tracestate", "STRING", "a=b"),
            ("otel.status_code", "STRING", "ERROR"),
            ("otel.status_description", "STRING", "it broke"),
            ("error", "BOOL", True),
            ("otel.dropped_attributes_count", "LONG", 1),
            ("otel.dropped_events_count", "LONG", 3),
            ("otel.dropped_links_count", "LONG", 4),
        ]
    )
    start = START if exact else START // 1000 * 1000
    assert logs == [
        (
            start + 1_000,
            [
                ("event", "STRING", "exception"),
                ("exception.type", "STRING", "ValueError"),
                ("n", "LONG", 3),
                ("otel.event.dropped_attributes_count", "LONG", 2),
            ],
        ),
        (start + 2_000, [("event", "STRING", "shown")]),
        (
            start,
            [
                ("event", "STRING", "link"),
                ("trace_id", "STRING", "0a" * 16),
                ("span_id", "STRING", "0b" * 8),
                ("why", "STRING", "x"),
                ("otel.dropped_attributes_count", "LONG", 5),
            ],
        ),
    ]
    assert (make.problems, make.counted) == ([], {})


@pytest.mark.parametrize("protocol", OWN)
@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (Span.SPAN_KIND_UNSPECIFIED, Status(), {}),
        (Span.SPAN_KIND_INTERNAL, Status(message="ignored"), {}),
        (Span.SPAN_KIND_SERVER, Status(code=Status.STATUS_CODE_OK), {"span.kind": "server", "otel.status_code": "OK"}),
        (
            Span.SPAN_KIND_CLIENT,
            Status(code=Status.STATUS_CODE_ERROR),
            {"span.kind": "client", "otel.status_code": "ERROR", "error": True},
        ),
        (Span.SPAN_KIND_CONSUMER, Status(), {"span.kind": "consumer"}),
    ],
)
def test_kinds_and_status(make: Made, protocol: str, kind: Any, status: Status, expected: dict[str, Any]) -> None:
    """An internal span has no tag for its kind, and an unset status none either. A root has no parent."""
    jaeger, sink = make.both(protocol)
    sink.deliver([Batch(b"", b"", [span(1, kind=kind, status=status)])])
    (received,) = jaeger.batches(1)
    found = only(received.spans)
    assert {key: value for key, _, value in found["tags"]} == expected
    assert (found["parent"], found["links"], found["logs"]) == ("00" * 8, [], [])
    assert received.service == "unknown_service"


@pytest.mark.parametrize("protocol", OWN)
def test_what_the_user_called_error_gives_way_to_the_status(make: Made, protocol: str) -> None:
    """Jaeger marks a trace by a tag that is true, and a span has it once."""
    jaeger, sink = make.both(protocol)
    failed = span(1, attributes=attributes({"error": "text"}), status=Status(code=Status.STATUS_CODE_ERROR))
    sink.deliver([Batch(b"", b"", [failed])])
    assert [tag for tag in only(jaeger.spans(1))["tags"] if tag[0] == "error"] == [("error", "BOOL", True)]


@pytest.mark.parametrize("protocol", OWN)
def test_a_batch_is_of_one_process(make: Made, protocol: str) -> None:
    """Spans of one Resource go together, whatever their scopes; each has the tags of its own."""
    jaeger, sink = make.both(protocol)
    sink.deliver(
        [
            Batch(resource("a"), scope("one"), [span(1), span(2)]),
            Batch(resource("b"), scope("one"), [span(3)]),
            Batch(resource("a"), scope("two"), [span(4)]),
        ]
    )
    found = {batch.service: [item["name"] for item in batch.spans] for batch in jaeger.batches(4)}
    assert found == {"a": ["1", "2", "4"], "b": ["3"]}
    scopes = {item["name"]: {key: value for key, _, value in item["tags"]} for item in jaeger.spans(4)}
    assert {name: tags["otel.scope.name"] for name, tags in scopes.items()} == {
        "1": "one",
        "2": "one",
        "3": "one",
        "4": "two",
    }


def test_a_span_that_fits_into_no_datagram_is_counted(make: Made) -> None:
    """It affects no other span."""
    jaeger, sink = make.both("thrift-udp")
    encoded = [span(1), span(2, size=66_000), span(3), span(4, size=64_000), span(5)]
    sink.deliver([Batch(resource("a"), scope(), encoded)])
    assert sorted(jaeger.names(4)) == ["1", "3", "4", "5"]
    assert make.counted == {
        f"N spans were refused by udp://{jaeger.endpoint} and are lost: larger than a datagram, which has 65,000 bytes "
        "at most": 1
    }


@pytest.mark.parametrize(
    ("protocol", "size", "most"),
    [("thrift-udp", 100, 65_000), ("thrift-http", 1000, 900_000), ("grpc", 1000, 900_000)],
)
def test_requests_are_as_large_as_a_server_takes_and_no_larger(make: Made, protocol: str, size: int, most: int) -> None:
    """A gRPC server takes four megabytes, one in between perhaps one, and an agent 65 kB. All spans arrive, in hardly
    more requests than their size asks for.
    """
    jaeger, sink = make.both(protocol)
    sink.deliver([batch(range(1, 3001), size)])
    assert jaeger.names(3000) == [str(number) for number in range(1, 3001)]
    sizes = [len(body) for body in jaeger.bodies]
    assert max(sizes) <= most
    assert len(sizes) <= sum(sizes) // most + 2
    assert make.counted == {}


def test_nothing_is_lost_while_no_agent_listens_on_this_machine(make: Made) -> None:
    """The kernel says so, though UDP does not."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sink = make.sink("thrift-udp", f"127.0.0.1:{port}")
    batches = [batch(range(2000), size=200)]
    for _ in range(3):
        with pytest.raises(DeliveryError, match=f"^cannot reach udp://127.0.0.1:{port}: no process listens there$"):
            sink.deliver(batches)
    jaeger = make.server("thrift-udp", port)
    sink.deliver(batches)
    assert jaeger.names(2000) == [str(number) for number in range(2000)]


def test_an_agent_without_an_address_is_told(make: Made) -> None:
    sink = make.sink("thrift-udp", "no-such-host.invalid:7")
    with pytest.raises(DeliveryError, match="its name cannot be resolved"):
        sink.deliver([batch([1])])


def test_an_agent_at_an_ipv6_address(make: Made) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as agent:
        try:
            agent.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        agent.settimeout(10)
        make.sink("thrift-udp", f"[::1]:{agent.getsockname()[1]}").deliver([batch([1])])
        assert len(jaeger_idl.decode_datagram(agent.recv(1 << 16)).spans) == 1


def test_a_request_by_http_is_as_a_collector_wants_it(make: Made) -> None:
    jaeger, sink = make.both("thrift-http", OTEL_EXPORTER_JAEGER_USER="me", OTEL_EXPORTER_JAEGER_PASSWORD="secret")
    sink.deliver([batch([1])])
    assert jaeger.paths == ["/api/traces?format=jaeger.thrift"]
    assert jaeger.headers[0]["content-type"] == "application/x-thrift"
    assert jaeger.headers[0]["authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()


def test_a_call_by_grpc_is_as_a_collector_wants_it(make: Made) -> None:
    jaeger, sink = make.both("grpc", OTEL_EXPORTER_JAEGER_USER="me", OTEL_EXPORTER_JAEGER_PASSWORD="secret")
    sink.deliver([batch([1])])
    assert jaeger.paths == [POST_SPANS]
    assert jaeger.headers[0]["authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()


@pytest.mark.parametrize(
    ("protocol", "server", "path"),
    [
        ("otlp-http", "thrift-http", "/v1/traces"),
        ("otlp-grpc", "grpc", OTLP_EXPORT),
    ],
)
def test_otlp_is_sent_with_jaegers_settings(make: Made, protocol: str, server: str, path: str) -> None:
    """Not with those of OTLP, whose headers may be the key to another back end."""
    jaeger = make.server(server)
    sink = make.sink(
        protocol,
        jaeger.endpoint,
        OTEL_EXPORTER_JAEGER_USER="me",
        OTEL_EXPORTER_JAEGER_PASSWORD="secret",
        OTEL_EXPORTER_OTLP_HEADERS="api-key=foreign,authorization=foreign",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
    )
    sink.deliver([batch([1, 2])])
    assert jaeger.paths == [path]
    assert jaeger.headers[0]["authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()
    assert "api-key" not in jaeger.headers[0]
    (received,) = ExportTraceServiceRequest.FromString(jaeger.bodies[0]).resource_spans
    assert [item.name for item in received.scope_spans[0].spans] == ["1", "2"]


@pytest.mark.parametrize("protocol", OWN)
def test_what_is_no_span_is_counted_and_skipped(make: Made, protocol: str) -> None:
    """Invalid bytes, ids longer than Jaeger's, endless values. The other spans are sent, without a Resource."""
    jaeger, sink = make.both(protocol)
    deep = b"\x0a\x01x"
    for _ in range(2000):
        deep = field(0x2A, field(0x0A, deep))
    too_deep = span(4) + field(0x4A, field(0x0A, b"deep") + field(0x12, deep))
    too_long = [span(2, trace_id=b"x" * 17), span(3, links=[Span.Link(trace_id=b"x" * 16, span_id=b"x" * 9)])]
    sink.deliver([Batch(b"\x0a\xff", b"\x0a\xff", [b"\x0a\xff", *too_long, too_deep, span(1)])])
    assert jaeger.names(1) == ["1"]
    assert make.counted == {"N spans could not be decoded and were skipped": 4}
    sink.deliver([Batch(b"", b"", [b"\x0a\xff"])])
    assert len(jaeger.bodies) == 1, "there is no request without spans"


WITHOUT_THRIFT = """
import sys
sys.modules["thrift"] = None  # what Python keeps of a package that is not there
from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import SinkContext
from ray_tracing_hooks._ship.registry import make_sink
plan = ShipPlan(("jaeger",), Settings())
environ = {"RAY_TRACING_JAEGER_PROTOCOL": sys.argv[1]}
try:
    make_sink("jaeger", SinkContext(plan, {}, None, None, environ, print)).close()
    print("made")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("protocol", ["thrift-udp", "thrift-http"])
def test_without_the_package_the_user_learns_how_to_get_it(protocol: str) -> None:
    assert without_thrift(protocol).startswith(
        f"{SettingError.__name__} RAY_TRACING_JAEGER_PROTOCOL={protocol} needs the package 'thrift', which cannot be "
    )
    assert "pip install 'ray-tracing-hooks[jaeger]'" in without_thrift(protocol)


@pytest.mark.parametrize("protocol", ["otlp-grpc", "otlp-http", "grpc"])
def test_the_other_protocols_need_no_package(protocol: str) -> None:
    assert without_thrift(protocol) == "made\n"


def without_thrift(protocol: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THRIFT, protocol], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout
