"""Requests to Ray Serve by gRPC and WebSocket are one trace each, and so are calls of deployments in rarer ways."""

from __future__ import annotations

import pytest
from conftest import Cluster
from support import CLIENT, Served, by_name, serve_route, spans_in, text_of_serve

pytestmark = pytest.mark.slow  # a server of its own


@pytest.fixture(scope="module")
def served(serving: Cluster) -> Served:
    run = serving.run("serve_protocols")
    return Served(run.result, spans_in(serving.spans))


def test_a_call_by_grpc_is_one_trace_from_the_proxy_to_the_last_deployment(served: Served) -> None:
    assert served.result["unary"] == '["hello", 4, "vendor=value", {"user": "me"}]', "what the client sent along"
    assert served.tree("unary") == (
        "test.Words/say\n"
        "  Words.say serve.remote\n"
        "    Words.say serve.replica\n"
        "      say\n"
        "        Model.predict serve.remote\n"
        "          Model.predict serve.replica\n"
        "            predict 2"
    )
    proxy = served.proxy("unary")
    assert proxy.parent_id == CLIENT
    assert {key: value for key, value in proxy.attributes.items() if key.startswith(("rpc.", "client.", "error."))} == {
        "rpc.system": "grpc",
        "rpc.service": "test.Words",
        "rpc.method": "say",
        "rpc.grpc.status_code": 0,
        "client.address": "127.0.0.1",
    }
    (replica,) = by_name(served.trace("unary"), "Words.say serve.replica")
    for span in (proxy, replica):
        assert span.attributes["ray.serve.application"] == "words"
    assert replica.attributes["ray.serve.request_id"] == proxy.attributes["ray.serve.request_id"]


def test_streams_by_grpc_are_traced_until_their_end(served: Served) -> None:
    assert served.result["server stream"] == ["0", "1", "2"]
    assert served.tree("server stream") == (
        "test.Words/count\n"
        "  Words.count serve.remote\n"
        "    Words.count serve.replica\n"
        "      item 0\n"
        "      item 1\n"
        "      item 2"
    )
    (last,) = by_name(served.trace("server stream"), "item 2")
    (replica,) = by_name(served.trace("server stream"), "Words.count serve.replica")
    assert last.end_ns <= replica.end_ns <= served.proxy("server stream").end_ns


def test_streams_from_the_client_are_traced_too(served: Served) -> None:
    if "stream_unary" not in text_of_serve("_private/grpc_util"):
        pytest.skip("this Ray's Serve takes no streams by gRPC")
    assert served.result["client stream"] == "a b"
    assert served.tree("client stream") == (
        "test.Words/join\n  Words.join serve.remote\n    Words.join serve.replica\n      join"
    )
    assert served.result["both streams"] == ["a", "b"]
    assert served.tree("both streams") == (
        "test.Words/echo\n  Words.echo serve.remote\n    Words.echo serve.replica\n      echo a\n      echo b"
    )


@pytest.mark.parametrize(
    ("name", "code", "proxy", "replica"),
    [
        ("failed", "INTERNAL", "INTERNAL", "KeyError"),
        ("refused", "INVALID_ARGUMENT", None, "ValueError"),
        ("not found", "NOT_FOUND", None, None),
        ("too long", "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "ray.exceptions.TaskCancelledError"),
        ("deadline", "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "ray.exceptions.TaskCancelledError"),
        ("cancelled", "CANCELLED", "CANCELLED", "ray.exceptions.TaskCancelledError"),
    ],
)
def test_codes_of_grpc_are_told_and_errors_where_the_server_is_at_fault(
    served: Served, name: str, code: str, proxy: str | None, replica: str | None
) -> None:
    if name == "refused" and "class gRPCStatusError" not in text_of_serve("exceptions"):
        code = proxy = "INTERNAL"
    numbers = {"CANCELLED": 1, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "INTERNAL": 13}
    assert served.result[name] == code
    span = served.proxy(name)
    assert span.attributes["rpc.grpc.status_code"] == numbers[code]
    assert (span.status_code, span.attributes.get("error.type")) == (2 if proxy else 0, proxy)
    (inner,) = (span for span in served.trace(name) if span.name.endswith(" serve.replica"))
    assert inner.attributes.get("error.type") == replica


def test_a_call_of_no_application_is_known_at_the_proxy_alone(served: Served) -> None:
    assert served.result["nowhere"] == "NOT_FOUND"
    assert served.tree("nowhere") == "test.Words/say", "the fault of the client is no error of the server"


def test_a_web_socket_is_one_trace_until_it_is_closed(served: Served) -> None:
    assert served.result["socket"] == ["lobby: 4", "lobby: 10", 1000]
    route = serve_route("/sockets", "/chat/{room}")
    assert served.tree("socket") == (
        f"GET {route}\n"
        "  Sockets.__call__ serve.remote\n"
        "    Sockets.__call__ serve.replica\n"
        "      message hi\n"
        "        Model.predict serve.remote\n"
        "          Model.predict serve.replica\n"
        "            predict 2\n"
        "      message there\n"
        "        Model.predict serve.remote\n"
        "          Model.predict serve.replica\n"
        "            predict 5"
    )
    proxy = served.proxy("socket")
    assert proxy.parent_id == CLIENT
    attributes = {key: proxy.attributes[key] for key in ("http.route", "url.path", "url.scheme")}
    assert attributes == {"http.route": route, "url.path": "/sockets/chat/lobby", "url.scheme": "ws"}
    (last,) = by_name(served.trace("socket"), "message there")
    (replica,) = by_name(served.trace("socket"), "Sockets.__call__ serve.replica")
    assert last.end_ns <= replica.end_ns
    assert last.end_ns <= proxy.end_ns


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [
        ("socket", 1000, None),
        ("socket 1000", 1000, None),
        ("socket 4001", 4001, None),
        ("socket 1011", 1011, "1011"),
    ],
)
def test_how_a_web_socket_was_closed_is_told(served: Served, name: str, code: int, error: str | None) -> None:
    """It is an error where the server failed."""
    span = served.proxy(name)
    assert span.attributes["ray.serve.close_code"] == code
    assert (span.status_code, span.attributes.get("error.type")) == (2 if error else 0, error)


@pytest.mark.parametrize(("room", "status"), [("closed", 403), ("unknown", 401)])
def test_a_web_socket_that_is_refused_has_the_status_that_its_client_gets(
    served: Served, room: str, status: int
) -> None:
    assert served.result[f"socket {room}"] == status
    span = served.proxy(f"socket {room}")
    assert span.attributes["http.response.status_code"] == status
    assert "ray.serve.close_code" not in span.attributes
    assert span.status_code == 0


def test_a_web_socket_whose_client_vanishes_while_it_is_sent_to_is_an_error(served: Served) -> None:
    assert served.result["socket left"] == ["more", None]
    span = served.proxy("socket left")
    assert (span.status_code, span.attributes["error.type"]) == (2, "1006")
    assert span.attributes["ray.serve.close_code"] == 1006


def test_the_spans_of_a_web_socket_end_where_its_client_vanishes(served: Served) -> None:
    assert by_name(served.trace("socket gone"), "Sockets.__call__ serve.replica")
    assert served.proxy("socket gone").attributes["ray.serve.close_code"] in {1005, 1006}


def test_an_exception_in_a_web_socket_is_an_error_of_both_spans(served: Served) -> None:
    assert served.proxy("socket fail").attributes["error.type"] == "500"
    (replica,) = by_name(served.trace("socket fail"), "Sockets.__call__ serve.replica")
    assert replica.attributes["error.type"] == "KeyError"


def test_calls_by_value_are_in_the_trace(served: Served) -> None:
    """They go by gRPC, and not by an actor call."""
    if "RAY_SERVE_USE_GRPC_BY_DEFAULT" not in text_of_serve("_private/constants"):
        pytest.skip("this Ray's Serve calls actors alone")
    assert served.result["by value"] == [200, "6"]
    assert "    Model.predict serve.remote\n        Model.predict serve.replica\n          predict 3" in served.tree(
        "by value"
    )


def test_a_call_of_every_replica_is_one_submission(served: Served) -> None:
    if "all" not in served.result:
        pytest.skip("this Ray's Serve has no broadcast")
    assert served.result["all"] == [200, '["everywhere","everywhere"]']
    assert "    Store.put serve.remote\n        Store.put serve.replica x2\n          put everywhere" in served.tree(
        "all"
    )


def test_a_call_of_a_chosen_replica_is_in_the_trace(served: Served) -> None:
    if "chosen" not in served.result:
        pytest.skip("this Ray's Serve cannot choose a replica first")
    assert served.result["chosen"] == [200, '"chosen"']
    assert (
        "      Store.put serve.choose_replica\n"
        "      Store.put serve.remote\n"
        "        Store.put serve.replica\n"
        "          put chosen"
    ) in served.tree("chosen")
    (choice,) = by_name(served.trace("chosen"), "Store.put serve.choose_replica")
    (call,) = by_name(served.trace("chosen"), "Store.put serve.remote")
    assert choice.end_ns <= call.start_ns
    assert (choice.attributes["ray.serve.deployment"], choice.attributes["ray.serve.method"]) == ("Store", "put")
