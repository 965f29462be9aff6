"""Requests that replicas of Ray Serve take themselves, behind HAProxy, are one trace each.

There is no proxy of Serve's, and the replica's span is that of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import support
from conftest import traced
from ports import free_port
from support import CLIENT, SERVER, Served, spans_in, text_of_serve, tree

pytestmark = [
    pytest.mark.slow,  # servers of its own
    pytest.mark.skipif("def _direct_ingress_asgi" not in text_of_serve("_private/replica"), reason="this Ray has none"),
]


@pytest.fixture(scope="module")
def served(short_tmp: Callable[[], Path]) -> Iterator[Served]:
    folder = short_tmp()
    proxy = folder / "haproxy"
    variables = {
        **support.with_extras(),
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        # Code, router and server share one loop, and deployments call each other by gRPC.
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(proxy / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(proxy / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(proxy),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(proxy / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        # On a busy machine a replica may answer late, and HAProxy would send requests to Serve's own proxy.
        "RAY_SERVE_HAPROXY_HEALTH_CHECK_FALL": "1000",
        "RAY_SERVE_HAPROXY_OBSERVE_MARK_DOWN_ENABLED": "0",
        **{
            f"RAY_SERVE_{name}_PORT": str(free_port())
            for name in ("HAPROXY_METRICS", "HAPROXY_STATS", "FALLBACK_PROXY_HTTP", "FALLBACK_PROXY_GRPC")
        },
        # Seconds that a replica waits before it ends.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
    }
    try:
        with traced(folder, variables) as cluster:
            run = cluster.run("serve_direct")
            yield Served(run.result, spans_in(cluster.spans))
    finally:
        # HAProxy outlives a cluster that was not shut down.
        for process in psutil.process_iter(["cmdline"]):
            if any(str(proxy) in part for part in process.info["cmdline"] or []):
                process.kill()


@pytest.mark.parametrize(("name", "prefix"), [("one loop", "/sockets"), ("threads", "/threads")])
def test_the_span_of_the_replica_is_that_of_the_server(served: Served, name: str, prefix: str) -> None:
    """Whether its code runs in the loop of the server or in a thread of its own."""
    assert served.result[name] == [200, "6"]
    assert served.tree(name) == (
        f"GET {prefix}/by-value\n  Model.predict serve.remote\n    Model.predict serve.replica\n      predict 3"
    )
    span = served.proxy(name)
    assert span.parent_id == CLIENT
    told = {key: value for key, value in span.attributes.items() if key.startswith(("http.", "url.", "ray.serve."))}
    assert told.pop("ray.serve.replica_id")
    assert told.pop("ray.serve.request_id")
    assert told == {
        "http.request.method": "GET",
        "http.route": f"{prefix}/by-value",
        "http.response.status_code": 200,
        "url.path": f"{prefix}/by-value",
        "url.scheme": "http",
        "ray.serve.application": prefix.strip("/"),
        "ray.serve.deployment": "Sockets",
        "ray.serve.method": "__call__",
    }


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [("fail", 500, "KeyError"), ("wait", 408, "408"), ("gone", 499, "499"), ("missing", 404, None)],
)
def test_errors_by_http_are_on_the_span(served: Served, name: str, status: int, error: str | None) -> None:
    assert served.result.get(name, [499])[0] == status
    span = served.proxy(name)
    assert span.attributes["http.response.status_code"] == status
    assert (span.status_code, span.attributes.get("error.type")) == (2 if error else 0, error)


@pytest.mark.parametrize(("name", "error"), [("broken off", "499"), ("second too long", "408")])
def test_a_response_that_has_begun_keeps_its_status_and_tells_how_it_ended(
    served: Served, name: str, error: str
) -> None:
    assert served.result["broken off"] == "first"
    span = served.proxy(name)
    assert span.attributes["http.response.status_code"] == 200
    assert (span.status_code, span.attributes["error.type"]) == (2, error)


def test_the_first_part_of_a_response_is_timed_where_there_are_several(served: Served) -> None:
    assert served.result["parts"] == [200, "first second"]
    for name in ("parts", "server stream", "socket"):
        span = served.proxy(name)
        assert 0 < span.attributes["ray.serve.time_to_first_chunk"] <= (span.end_ns - span.start_ns) / 1e9
        assert span.attributes["ray.serve.items"] > 1
    for name in ("one loop", "unary", "broken off"):
        assert "ray.serve.time_to_first_chunk" not in served.proxy(name).attributes


def test_a_request_that_is_one_too_many_has_a_span(served: Served) -> None:
    assert served.result["full"] == [200, 200, 503]
    assert served.tree("full") == "GET !503\nGET /threads/held\nGET /threads/held"


@pytest.mark.skipif("_with_ingress_request_router" not in text_of_serve("deployment"), reason="this Ray has no routers")
def test_the_choice_of_a_replica_by_a_router_is_in_the_trace_of_its_request(served: Served) -> None:
    """HAProxy adds what the router answers to the request, and tells the router nothing of the client's trace."""
    assert served.result["routed alone"] == [200, '["x-serve-router-own"]'], "and not what this package adds"
    (alone,) = (
        span for span in served.spans if span.attributes.get("ray.serve.request_id") == "alone" and span.kind == SERVER
    )
    inside = [span for span in served.spans if span.trace_id == alone.trace_id]
    assert tree(inside) == ("Router.__call__ serve.route\n  Chat.__call__ serve.choose_replica\n  POST /routed/say")
    request = served.proxy("routed")
    assert (request.name, request.parent_id) == ("POST /routed/say", CLIENT)
    (link,) = request.links
    (route,) = (span for span in served.spans if span.span_id == link.span_id)
    assert (route.name, route.trace_id) == ("Router.__call__ serve.route", link.trace_id)
    for span in (alone, request):
        assert span.attributes["ray.serve.choice_time"] > 0


def test_calls_by_grpc_are_traced(served: Served) -> None:
    assert served.result["unary"] == '["hello", 4, "vendor=value", {"user": "me"}]', "what the client sent along"
    assert served.tree("unary") == (
        "test.Words/say\n  say\n    Model.predict serve.remote\n      Model.predict serve.replica\n        predict 2"
    )
    span = served.proxy("unary")
    assert span.parent_id == CLIENT
    told = {key: value for key, value in span.attributes.items() if key.startswith("rpc.")}
    assert told == {"rpc.system": "grpc", "rpc.service": "test.Words", "rpc.method": "say", "rpc.grpc.status_code": 0}
    assert (span.attributes["ray.serve.deployment"], span.attributes["ray.serve.method"]) == ("Words", "say")


def test_streams_by_grpc_are_traced(served: Served) -> None:
    assert served.result["server stream"] == ["0", "1", "2"]
    assert served.tree("server stream") == "test.Words/count\n  item 0\n  item 1\n  item 2"
    assert served.result["client stream"] == "a b"
    assert served.tree("client stream") == "test.Words/join\n  join"
    assert served.result["both streams"] == ["a", "b"]
    assert served.tree("both streams") == "test.Words/echo\n  echo a\n  echo b"


@pytest.mark.parametrize(
    ("name", "code", "number", "error"),
    [
        ("failed", "INTERNAL", 13, "KeyError"),
        ("refused", "INVALID_ARGUMENT", 3, "ValueError"),
        ("not found", "NOT_FOUND", 5, None),
        ("too long", "DEADLINE_EXCEEDED", 4, "DEADLINE_EXCEEDED"),
        ("deadline", "DEADLINE_EXCEEDED", 4, "DEADLINE_EXCEEDED"),
        ("cancelled", "CANCELLED", 1, "CANCELLED"),
        ("no method", "UNKNOWN", 2, "ray.serve.exceptions.RayServeException"),
    ],
)
def test_errors_by_grpc_are_on_the_span(served: Served, name: str, code: str, number: int, error: str | None) -> None:
    assert served.result[name] == code
    span = served.proxy(name)
    assert span.attributes["rpc.grpc.status_code"] == number
    assert (span.status_code, span.attributes.get("error.type")) == (2 if error else 0, error)


def test_web_sockets_are_traced(served: Served) -> None:
    assert served.result["socket"] == ["lobby: 4", "lobby: 10", 1000]
    assert served.tree("socket") == (
        "GET /sockets/chat/{room}\n"
        "  message hi\n"
        "    Model.predict serve.remote\n"
        "      Model.predict serve.replica\n"
        "        predict 2\n"
        "  message there\n"
        "    Model.predict serve.remote\n"
        "      Model.predict serve.replica\n"
        "        predict 5"
    )
    assert served.proxy("socket").parent_id == CLIENT
    codes = {"socket": 1000, "socket 1000": 1000, "socket 4001": 4001, "socket 1011": 1011}
    assert {name: served.proxy(name).attributes["ray.serve.close_code"] for name in codes} == codes
    errors = {name: served.proxy(name).attributes.get("error.type") for name in (*codes, "socket fail")}
    assert {name: error for name, error in errors.items() if error} == {
        "socket 1011": "1011",
        "socket fail": "KeyError",
    }
    for room, status in (("closed", 403), ("unknown", 401)):
        span = served.proxy(f"socket {room}")
        assert (span.status_code, span.attributes["http.response.status_code"]) == (0, status)
        assert "ray.serve.close_code" not in span.attributes
