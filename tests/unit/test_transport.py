"""Requests by HTTP and gRPC, against servers that run in this process."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_server import grpc_server as serving_grpc
from http_server import Answer, Request, port_of
from http_server import http_server as serving
from ports import free_port

from ray_tracing_hooks import __version__
from ray_tracing_hooks._formats.protobuf import field, varint
from ray_tracing_hooks._ship.sink import DeliveryError, Tls
from ray_tracing_hooks._ship.transport.contract import Refused, ServerSettings, Transport
from ray_tracing_hooks._ship.transport.grpc import GrpcTransport
from ray_tracing_hooks._ship.transport.http import HttpTransport, _default_authorities

METHOD = "/test.Service/Export"
BODY = b"spans " * 2000
GrpcAnswer = Callable[[bytes, grpc.ServicerContext], bytes]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy nor certificates of the machine take part."""
    for variable in os.environ:
        if variable.lower().endswith("_proxy") or variable.endswith(("_CA_BUNDLE", "_SSL_ROOTS_FILE_PATH")):
            monkeypatch.delenv(variable)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closed in the reverse order: clients before their servers."""
    with ExitStack() as opened:
        yield opened


class HttpServer:
    """Answers in turn what ``answers`` holds, then 200, and keeps what it has received."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.received: list[Request] = []
        self.server_port = 0

    @property
    def connections(self) -> int:
        return len({request.port for request in self.received})

    def answer(self, request: Request) -> Answer:
        self.received.append(request)
        return self.answers.popleft() if self.answers else Answer()


@contextmanager
def http_server(context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[HttpServer]:
    server = HttpServer()
    with serving(server.answer, tls=context, port=port, keeps_alive=True) as url:
        server.server_port = port_of(url)
        yield server


def answering(answer: bytes) -> GrpcAnswer:
    return lambda *_: answer


def aborting(code: grpc.StatusCode, words: str) -> GrpcAnswer:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, words)
        raise AssertionError("abort raises")

    return answer


class GrpcServer:
    """Answers by ``answer``, and keeps what it has received."""

    def __init__(self) -> None:
        self.answer: GrpcAnswer = answering(b"")
        self.received: list[tuple[bytes, dict[str, Any]]] = []
        self.server_port = 0

    def export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self.received.append((body, dict(context.invocation_metadata())))
        return self.answer(body, context)


@contextmanager
def grpc_server(credentials: grpc.ServerCredentials | None = None, port: int = 0) -> Iterator[GrpcServer]:
    server = GrpcServer()
    with serving_grpc(METHOD, server.export, credentials=credentials, port=port) as server.server_port:
        yield server


@contextmanager
def raw_server(answer: bytes | None, greeting: bytes = b"", until: bytes = b"") -> Iterator[int]:
    """The port of a server that answers whatever comes with these bytes, or with None never answers.

    It sends ``greeting`` at once, and answers when ``until`` has come.
    """
    held = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.sendall(greeting)
                    received = connection.recv(1 << 16)
                    while until not in received and (more := connection.recv(1 << 16)):
                        received += more
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in held:
        connection.close()


def server_settings(target: str, address: str = "the collector", **more: Any) -> ServerSettings:
    return ServerSettings(
        **{"protocol": "", "target": target, "address": address, "headers": {}, "timeout": 10, **more}
    )


def http(stack: ExitStack, port: int, **more: Any) -> HttpTransport:
    scheme, over = more.pop("scheme", "http"), {name: more.pop(name) for name in ("over_grpc",) if name in more}
    target = f"{scheme}://127.0.0.1:{port}/v1/traces?tenant=1"
    transport = HttpTransport(server_settings(target, **more), "application/x-protobuf", **over)
    stack.callback(transport.close)
    return transport


def by_grpc(stack: ExitStack, port: int, **more: Any) -> GrpcTransport:
    over = {name: more.pop(name) for name in ("over_http", "parts") if name in more}
    transport = GrpcTransport(server_settings(f"127.0.0.1:{port}", **more), METHOD, **over)
    stack.callback(transport.close)
    return transport


def trouble(transport: Transport) -> str:
    """The description of a failure, which must be the same each time."""
    texts = set()
    for _ in range(3):
        with pytest.raises(DeliveryError) as caught:
            transport.send(BODY)
        texts.add(str(caught.value))
    (text,) = texts
    assert "\n" not in text
    return text


# What is sent, and what comes back.


def test_http_posts_the_body_to_the_url(stack: ExitStack) -> None:
    server = stack.enter_context(http_server())
    server.answers.append(Answer(body=b"answer"))
    transport = http(stack, server.server_port, headers={"x-api-key": "secret"})
    assert transport.send(BODY) == b"answer"
    (received,) = server.received
    assert received.path == "/v1/traces?tenant=1"
    assert received.body == BODY
    assert received.headers["content-type"] == "application/x-protobuf"
    assert "content-encoding" not in received.headers
    assert received.headers["user-agent"] == f"ray-tracing-hooks/{__version__}"
    assert received.headers["x-api-key"] == "secret"


def test_http_uses_one_connection_for_all_requests(stack: ExitStack) -> None:
    """A failed request does not change that."""
    server = stack.enter_context(http_server())
    server.answers += [Answer(), Answer(503, b"x" * 100_000)]
    transport = http(stack, server.server_port)
    transport.send(BODY)
    with pytest.raises(DeliveryError):
        transport.send(BODY)
    transport.send(BODY)
    assert server.connections == 1


def test_http_compresses_where_asked_to(stack: ExitStack) -> None:
    server = stack.enter_context(http_server())
    http(stack, server.server_port, gzip=True).send(BODY)
    (received,) = server.received
    assert received.headers["content-encoding"] == "gzip"
    assert len(received.body) < len(BODY) / 10
    assert zlib.decompress(received.body, 31) == BODY


def test_netrc_adds_no_credentials(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of a person for another program."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server = stack.enter_context(http_server())
    http(stack, server.server_port).send(BODY)
    assert "authorization" not in server.received[0].headers


def test_grpc_calls_the_method_with_the_body(stack: ExitStack) -> None:
    server = stack.enter_context(grpc_server())
    server.answer = answering(b"answer")
    transport = by_grpc(stack, server.server_port, headers={"x-api-key": "secret"})
    assert transport.send(BODY) == b"answer"
    ((body, metadata),) = server.received
    assert body == BODY
    assert metadata["x-api-key"] == "secret"
    assert metadata["user-agent"].startswith(f"ray-tracing-hooks/{__version__} ")


@pytest.mark.parametrize("gzip", [False, True])
def test_grpc_compresses_where_asked_to(stack: ExitStack, gzip: bool) -> None:
    """Counted on the wire, since a server's library does not tell."""
    server = stack.enter_context(grpc_server())
    relay = stack.enter_context(silencing_relay(server.server_port))
    by_grpc(stack, relay.port, gzip=gzip).send(BODY)
    assert server.received[0][0] == BODY
    assert (relay.sent < len(BODY) / 4) is gzip


class SilencingRelay:
    """A port whose connections are handed on to another port, until one is ``lost``: then nothing of it arrives.

    Neither end hears about that, as where a load balancer or a NAT has forgotten a connection.
    """

    def __init__(self, port: int) -> None:
        self.connections = 0
        self.lost: set[int] = set()
        self.sent = 0
        """Bytes that have gone to the other port."""
        self._to = port
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._run(self._accept)

    def _run(self, target: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):  # the end
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [client, server]
                number = self.connections
                self.connections += 1  # before anything can arrive by it
                self._run(self._pump, client, server, number, True)
                self._run(self._pump, server, client, number, False)

    def _pump(self, source: socket.socket, to: socket.socket, number: int, is_there: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.sent += len(data) if is_there else 0
                if number not in self.lost:
                    to.sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in [self._listener, *self._sockets]:
            each.close()


@contextmanager
def silencing_relay(port: int) -> Iterator[SilencingRelay]:
    relay = SilencingRelay(port)
    try:
        yield relay
    finally:
        relay.close()


# Answers that are no success.


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_http_statuses_that_mean_later(stack: ExitStack, status: int) -> None:
    server = stack.enter_context(http_server())
    server.answers += [Answer(status)] * 3
    text = trouble(http(stack, server.server_port))
    assert text.startswith(f"the collector accepts nothing at present: HTTP {status} ")


def test_a_web_page_is_no_answer_of_a_collector(stack: ExitStack) -> None:
    """As of the login of a proxy, or of a port for people: the spans wait."""
    server = stack.enter_context(http_server())
    server.answers += [Answer(200, b"<html>log in</html>", {"Content-Type": "text/html; charset=utf-8"})] * 3
    text = trouble(http(stack, server.server_port))
    assert text.startswith("the collector answers with a web page, as no collector does")
    server.answers.clear()
    server.answers.append(Answer(200, b"", {"Content-Type": "text/html"}))
    assert http(stack, server.server_port).send(BODY) == b"", "some servers say so of an empty answer"


@pytest.mark.parametrize("status", [302, 400, 401, 404, 405, 408, 413, 422, 425, 431, 500, 501, 505, 520, 599])
def test_http_statuses_that_refuse_a_request(stack: ExitStack, status: int) -> None:
    """Some may be over later, and of 413 a smaller request may be accepted."""
    server = stack.enter_context(http_server())
    server.answers.append(Answer(status))
    with pytest.raises(Refused) as caught:
        http(stack, server.server_port).send(BODY)
    assert caught.value.reason.startswith(f"HTTP {status}")
    assert caught.value.too_large is (status == 413)
    assert caught.value.transient is (status in {408, 425, 500, 505, 520, 599})


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("-3", 0),
        ("1e300", 3600),
        ("inf", 3600),
        ("nan", 0),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
        (formatdate(4e9, usegmt=True), 3600),
    ],
)
def test_retry_after_is_heeded_up_to_an_hour(stack: ExitStack, header: str, seconds: float | None) -> None:
    """What makes no sense counts as not said."""
    server = stack.enter_context(http_server())
    server.answers.append(Answer(429, b"", {"Retry-After": header}))
    with pytest.raises(DeliveryError) as caught:
        http(stack, server.server_port).send(BODY)
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("application/x-protobuf", b"\x08\x03" + field(0x12, b"no such tenant"), ": no such tenant"),
        ("application/x-protobuf", b"\xff\xff", ""),
        ("application/json", b'{"code": 3, "message": "no such\\n tenant"}', ": no such tenant"),
        ("application/json; charset=utf-8", b'{"error": {"message": "no such tenant"}}', ": no such tenant"),
        ("application/json", b'{"error": "no such tenant"}', ": no such tenant"),
        ("application/json", b"[1]", ""),
        ("application/json", b"{", ""),
        ("application/json", b"[" * 100_000, ""),
        ("text/plain; charset=utf-8", b"no such tenant\n", ": no such tenant"),
        ("text/plain", b"x" * 5000, ": " + "x" * 200),
        ("text/plain", b"\xff", ": \ufffd"),
        ("text/html", b"<html><head><TITLE lang=en>no\nsuch &lt;tenant&gt;</title><p>it", ": no such <tenant>"),
        ("text/html", b"<title>400 Bad Request</title>", ""),
        ("text/html", b"<html>no such tenant", ""),
        ("", b"no such tenant", ": no such tenant"),
    ],
)
def test_what_an_http_server_says_is_told(stack: ExitStack, kind: str, body: bytes, said: str) -> None:
    """A google.rpc.Status, as OTLP wants it, or what other servers write; of a page its title. One line, cut short."""
    server = stack.enter_context(http_server())
    server.answers.append(Answer(400, body, {"Content-Type": kind}))
    with pytest.raises(Refused) as caught:
        http(stack, server.server_port).send(BODY)
    assert caught.value.reason == "HTTP 400 Bad Request" + said


def test_a_redirect_is_not_followed_but_told(stack: ExitStack) -> None:
    """Following it could turn the request into another one, or take its headers elsewhere."""
    server = stack.enter_context(http_server())
    server.answers.append(Answer(301, b"", {"Location": "https://elsewhere/v1/traces"}))
    with pytest.raises(
        Refused, match="301 Moved Permanently to 'https://elsewhere/v1/traces'; set the endpoint to that address"
    ):
        http(stack, server.server_port).send(BODY)
    assert len(server.received) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_a_request_that_was_taken_is_taken_even_if_the_body_does_not_come(stack: ExitStack, answer: bytes) -> None:
    """Sending it again would double its spans."""
    port = stack.enter_context(raw_server(answer))
    assert http(stack, port).send(BODY) == b""


LATER = {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_grpc_codes(stack: ExitStack, code: grpc.StatusCode) -> None:
    """As the table of the OTLP specification has them."""
    server = stack.enter_context(grpc_server())
    server.answer = aborting(code, "the words of the server")
    transport = by_grpc(stack, server.server_port)
    if code.name in LATER:
        text = trouble(transport)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            assert text == "cannot reach the collector: no response within 10 s"
        else:
            assert text == f"the collector accepts nothing at present: {code.name}: the words of the server"
        return
    with pytest.raises(Refused) as caught:
        transport.send(BODY)
    assert caught.value.reason == f"{code.name}: the words of the server"
    assert not caught.value.too_large
    assert caught.value.transient is (code.name in {"UNKNOWN", "INTERNAL", "RESOURCE_EXHAUSTED"})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (5000000 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (5000000 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "gRPC message exceeds maximum size 4194304: 5000000"),
        ("RESOURCE_EXHAUSTED", "Received message exceeds the maximum configured message size."),
        ("OUT_OF_RANGE", "Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes"),
        ("INTERNAL", "grpc: error unmarshalling request: string field contains invalid UTF-8"),
        ("INTERNAL", "Exception deserializing request!"),
    ],
)
def test_grpc_servers_that_find_a_request_too_large_or_cannot_read_it(stack: ExitStack, code: str, words: str) -> None:
    """Each library has words of its own, and Rust's has a code that otherwise means later. A part of it may be fine."""
    server = stack.enter_context(grpc_server())
    server.answer = aborting(grpc.StatusCode[code], words)
    with pytest.raises(Refused) as caught:
        by_grpc(stack, server.server_port).send(BODY)
    assert caught.value.too_large == (code != "INTERNAL")
    assert not caught.value.transient


def retry_info(seconds: int, nanos: int = 0) -> bytes:
    """A google.rpc.Status with a RetryInfo among its details."""
    duration = b"\x08" + varint(seconds) + b"\x10" + varint(nanos)
    info = field(0x0A, b"type.googleapis.com/google.rpc.RetryInfo") + field(0x12, field(0x0A, duration))
    other = field(0x0A, b"type.googleapis.com/google.rpc.ErrorInfo") + field(0x12, b"\x0a\x01x")
    return b"\x08\x08" + field(0x12, b"busy") + field(0x1A, other) + field(0x1A, info)


@pytest.mark.parametrize(
    ("code", "details", "seconds"),
    [
        ("UNAVAILABLE", retry_info(3, 500_000_000), 3.5),
        ("RESOURCE_EXHAUSTED", retry_info(2), 2),
        ("RESOURCE_EXHAUSTED", retry_info(0), 0),
        ("UNAVAILABLE", retry_info(1 << 62), 3600),
        ("UNAVAILABLE", b"\xff\xff", None),
    ],
)
@pytest.mark.parametrize("text", ["busy", "request rate exceeds the max rate"])
def test_retry_info_is_heeded_up_to_an_hour(
    stack: ExitStack, code: str, details: bytes, seconds: float | None, text: str
) -> None:
    """With it RESOURCE_EXHAUSTED means later, and without it never."""

    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(grpc.StatusCode[code], text)
        raise AssertionError

    server = stack.enter_context(grpc_server())
    server.answer = answer
    with pytest.raises(DeliveryError) as caught:
        by_grpc(stack, server.server_port).send(BODY)
    assert caught.value.retry_after == seconds


# Servers that are not there, or are something else.


@pytest.mark.parametrize("make", [http, by_grpc])
def test_a_refused_connection(stack: ExitStack, make: Callable[..., Transport]) -> None:
    assert trouble(make(stack, free_port())) == "cannot reach the collector: connection refused"


@pytest.mark.parametrize("make", [http, by_grpc])
def test_a_black_hole_takes_no_longer_than_the_timeout(stack: ExitStack, make: Callable[..., Transport]) -> None:
    """It takes the connection and never says a word."""
    taken = []
    for _ in range(3):
        # Another one: transports by gRPC to the same address share what they know of it.
        transport = make(stack, stack.enter_context(raw_server(None)), timeout=0.5)
        began = time.monotonic()
        with pytest.raises(DeliveryError, match=r"^cannot reach the collector: no response within 0\.5 s$"):
            transport.send(BODY)
        taken.append(time.monotonic() - began)
    assert 0.4 < min(taken) < 0.9, "on a busy machine the others may take longer"


def test_a_name_that_does_not_exist(stack: ExitStack) -> None:
    by_http = HttpTransport(server_settings("http://collector.invalid/", "it", timeout=30), "x/y")
    grpc_transport = GrpcTransport(server_settings("collector.invalid:4317", "it", timeout=30), METHOD)
    for transport in (by_http, grpc_transport):
        stack.callback(transport.close)
        assert trouble(transport) == "cannot reach it: its name cannot be resolved"


def test_a_host_that_cannot_be_a_name_keeps_the_spans(stack: ExitStack) -> None:
    """It is a mistake in a setting, which can be mended; the spans cannot."""
    transport = HttpTransport(server_settings(f"http://{'a' * 70}.b/", "it", timeout=5), "x/y")
    stack.callback(transport.close)
    assert trouble(transport).startswith("cannot reach it: ")


def test_a_grpc_server_that_comes_back_is_used_again_within_two_seconds(stack: ExitStack) -> None:
    """However long it was away."""
    with grpc_server() as server:
        port = server.server_port
        transport = by_grpc(stack, port)
        transport.send(BODY)
    for _ in range(6):
        with pytest.raises(DeliveryError):
            transport.send(BODY)
        time.sleep(0.25)  # the outage
    assert trouble(transport) == "cannot reach the collector: connection refused"
    server = stack.enter_context(grpc_server(port=port))
    deadline = time.monotonic() + 2
    while not server.received:
        assert time.monotonic() < deadline
        try:
            transport.send(BODY)
        except DeliveryError:
            time.sleep(0.02)
    assert len(server.received) == 1


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_connection_that_dies_without_a_word_is_replaced_after_one_timeout(stack: ExitStack, protocol: str) -> None:
    server: HttpServer | GrpcServer
    make: Callable[..., Transport]
    if protocol == "http":
        server, make = stack.enter_context(http_server()), http
    else:
        server, make = stack.enter_context(grpc_server()), by_grpc
    relay = stack.enter_context(silencing_relay(server.server_port))
    transport = make(stack, relay.port, timeout=1)
    transport.send(BODY)
    relay.lost.add(0)
    with pytest.raises(DeliveryError, match="no response within 1 s"):
        transport.send(BODY)
    transport.send(BODY)
    assert (len(server.received), relay.connections) == (2, 2)


def test_grpc_where_http_is_spoken(stack: ExitStack) -> None:
    server = stack.enter_context(http_server())
    text = trouble(by_grpc(stack, server.server_port))
    assert "does not speak gRPC" in text
    assert "PROTOCOL=http/protobuf" in text


def test_grpc_where_only_http_2_is_spoken(stack: ExitStack) -> None:
    settings, status_404 = bytes.fromhex("000000 04 00 00000000"), bytes.fromhex("000001 01 05 00000001 8d")
    transport = by_grpc(stack, stack.enter_context(raw_server(status_404, greeting=settings, until=BODY)))
    with pytest.raises(Refused, match=r"UNIMPLEMENTED: .* 404; is this its port for HTTP, which is PROTOCOL=http"):
        transport.send(BODY)


def test_http_where_grpc_is_spoken(stack: ExitStack) -> None:
    server = stack.enter_context(grpc_server())
    text = trouble(http(stack, server.server_port))
    assert "does not speak HTTP" in text
    assert "PROTOCOL=grpc" in text


@pytest.mark.parametrize("make", [http, by_grpc])
def test_a_server_that_hangs_up(stack: ExitStack, make: Callable[..., Transport]) -> None:
    port = stack.enter_context(raw_server(b""))
    text = trouble(make(stack, port))
    assert "it closed the connection" in text
    assert make is by_grpc or "is this its port for gRPC, which is PROTOCOL=grpc" in text


# TLS.


class Certificates:
    """Files of a private authority, of another one, and of a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.server = self.authority.issue_cert("127.0.0.1")
        self.misnamed = self.authority.issue_cert("elsewhere.example")
        now, day = datetime.now(timezone.utc), timedelta(days=1)
        self.expired = self.authority.issue_cert("127.0.0.1", not_before=now - 2 * day, not_after=now - day)
        self.future = self.authority.issue_cert("127.0.0.1", not_before=now + day, not_after=now + 2 * day)
        client = self.authority.issue_cert("me@example.org")
        self.authority.cert_pem.write_to_path(self.path("authority"))
        trustme.CA().cert_pem.write_to_path(self.path("other"))
        client.cert_chain_pems[0].write_to_path(self.path("client"))
        client.private_key_pem.write_to_path(self.path("key"))
        client.private_key_and_cert_chain_pem.write_to_path(self.path("both"))
        (folder / "junk.pem").write_text("junk\n")
        self.trusting = Tls(self.path("authority"))

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def http(self, certificate: trustme.LeafCert, *, mutual: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        if mutual:
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def grpc(self, certificate: trustme.LeafCert, *, mutual: bool = False) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())],
            root_certificates=self.authority.cert_pem.bytes() if mutual else None,
            require_client_auth=mutual,
        )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Secured:
    """A server with TLS, and transports to it, by one protocol."""

    def __init__(self, protocol: str, stack: ExitStack, certificates: Certificates) -> None:
        self.protocol = protocol
        self._stack = stack
        self._certificates = certificates

    def transport(self, tls: Tls, *, server: str = "server", mutual: bool = False) -> Transport:
        certificate = getattr(self._certificates, server)
        if self.protocol == "grpc":
            port = self._stack.enter_context(
                grpc_server(self._certificates.grpc(certificate, mutual=mutual))
            ).server_port
            return by_grpc(self._stack, port, tls=tls)
        port = self._stack.enter_context(http_server(self._certificates.http(certificate, mutual=mutual))).server_port
        return http(self._stack, port, tls=tls, scheme="https")


@pytest.fixture(params=["http", "grpc"])
def secured(request: pytest.FixtureRequest, stack: ExitStack, certificates: Certificates) -> Secured:
    return Secured(request.param, stack, certificates)


def test_the_default_authorities_are_trusted_when_their_package_is_gone(
    stack: ExitStack, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray removes the environments of workers that have ended, and a shipper that one of them started continues."""
    bundle = tmp_path / "cacert.pem"
    certificates.authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", str(bundle))
    _default_authorities.cache_clear()
    stack.callback(_default_authorities.cache_clear)
    server = stack.enter_context(http_server(certificates.http(certificates.server)))
    transport = http(stack, server.server_port, scheme="https")
    transport.send(BODY)
    bundle.unlink()
    transport.close()  # the connection
    transport.send(BODY)
    assert len(server.received) == server.connections == 2
    # The variable of the environment still counts, and before it what the exporter's own names.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificates.path("other"))
    assert "its certificate is not trusted" in trouble(http(stack, server.server_port, scheme="https"))
    http(stack, server.server_port, scheme="https", tls=certificates.trusting).send(BODY)


def test_a_private_authority_is_trusted(
    secured: Secured, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever other programs of this machine trust."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificates.path("other"))
    assert secured.transport(certificates.trusting).send(BODY) == b""


@pytest.mark.parametrize("certificate", ["other", None])
def test_an_authority_that_is_not_trusted(
    secured: Secured, certificates: Certificates, certificate: str | None
) -> None:
    """The system's authorities do not know a private one."""
    text = trouble(secured.transport(Tls(certificates.path(certificate) if certificate else None)))
    assert text == (
        "cannot reach the collector: its certificate is not trusted; set the CERTIFICATE variable of this exporter "
        "to the CA certificate that signed it"
    )


def test_certificates_that_are_replaced_are_read_again(
    secured: Secured, certificates: Certificates, tmp_path: Path
) -> None:
    """They expire after hours, and a shipper lives for weeks."""
    file = tmp_path / "authorities.pem"
    file.write_bytes(Path(certificates.path("other")).read_bytes())
    transport = secured.transport(Tls(str(file)))
    assert "its certificate is not trusted" in trouble(transport)
    file.write_bytes(Path(certificates.path("authority")).read_bytes())
    assert transport.send(BODY) == b""


def test_a_certificate_for_another_name(secured: Secured, certificates: Certificates) -> None:
    text = trouble(secured.transport(certificates.trusting, server="misnamed"))
    assert text == "cannot reach the collector: its certificate is for another name"


@pytest.mark.parametrize(("server", "why"), [("expired", "has expired"), ("future", "is not valid yet")])
def test_a_certificate_at_the_wrong_time(secured: Secured, certificates: Certificates, server: str, why: str) -> None:
    """No other CA certificate would help."""
    text = trouble(secured.transport(certificates.trusting, server=server))
    assert text.startswith(f"cannot reach the collector: its certificate {why}")
    assert "CERTIFICATE" not in text


@pytest.mark.parametrize(("certificate", "key"), [("client", "key"), ("both", "both"), ("both", None)])
def test_a_client_certificate(secured: Secured, certificates: Certificates, certificate: str, key: str | None) -> None:
    """Its key may stand in the same file."""
    tls = Tls(certificates.path("authority"), certificates.path(certificate), key and certificates.path(key))
    assert secured.transport(tls, mutual=True).send(BODY) == b""


def test_a_client_certificate_that_is_asked_for_and_missing(secured: Secured, certificates: Certificates) -> None:
    text = trouble(secured.transport(certificates.trusting, mutual=True))
    assert "does it ask for a client certificate" in text


@pytest.mark.parametrize(
    ("authority", "certificate", "key", "named"),
    [
        ("junk", None, None, ["junk"]),
        ("gone", None, None, ["gone"]),
        (None, "client", None, ["client"]),
        (None, "junk", "key", ["junk", "key"]),
        (None, "client", "gone", ["client", "gone"]),
        (None, "both", "junk", ["both", "junk"]),
    ],
)
def test_files_that_cannot_be_used_are_named(
    secured: Secured,
    certificates: Certificates,
    authority: str | None,
    certificate: str | None,
    key: str | None,
    named: list[str],
) -> None:
    """Left to gRPC, a certificate without a key would end the process."""
    with pytest.raises(DeliveryError) as caught:
        secured.transport(Tls(*(name and certificates.path(name) for name in (authority, certificate, key))))
    text = str(caught.value)
    assert text.startswith("cannot use TLS: expected ")
    assert " and ".join(certificates.path(name) for name in named) in text


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
    secured: Secured, certificates: Certificates, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    plain = load_pem_private_key(Path(certificates.path("key")).read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(DeliveryError, match="which must not be encrypted"):
        secured.transport(Tls(None, certificates.path("client"), str(locked)))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tls_where_none_is_spoken(stack: ExitStack, certificates: Certificates, protocol: str) -> None:
    if protocol == "grpc":
        port = stack.enter_context(grpc_server()).server_port
        text = trouble(by_grpc(stack, port, tls=certificates.trusting))
    else:
        port = stack.enter_context(http_server()).server_port
        text = trouble(http(stack, port, tls=certificates.trusting, scheme="https"))
    assert text == "cannot reach the collector: it does not speak TLS; should the endpoint begin with http://?"


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_no_tls_where_it_is_spoken(stack: ExitStack, certificates: Certificates, protocol: str) -> None:
    if protocol == "grpc":
        port = stack.enter_context(grpc_server(certificates.grpc(certificates.server))).server_port
        text = trouble(by_grpc(stack, port))
    else:
        port = stack.enter_context(http_server(certificates.http(certificates.server))).server_port
        text = trouble(http(stack, port))
    assert "https://" in text


@pytest.mark.parametrize(
    "answer",
    [
        b"\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
        b"\r\nContent-Type: text/html\r\n\r\n<title>400 The plain HTTP request was sent to HTTPS port</title>",
        b"\r\nContent-Type: text/html\r\n\r\nReason: You're speaking plain HTTP to an SSL-enabled server port.<br />",
    ],
    ids=["Go", "nginx", "Apache"],
)
def test_servers_with_tls_that_answer_requests_without_it(stack: ExitStack, answer: bytes) -> None:
    port = stack.enter_context(raw_server(b"HTTP/1.0 400 Bad Request" + answer))
    with pytest.raises(Refused) as caught:
        http(stack, port).send(BODY)
    assert caught.value.reason == ("HTTP 400 Bad Request: the server speaks TLS; begin the endpoint with https://")


def test_grpc_writes_nothing_to_stderr(stack: ExitStack, certificates: Certificates) -> None:
    """It is another library's log; the error says what went wrong. Tested in a process that has not imported it."""
    port = stack.enter_context(grpc_server(certificates.grpc(certificates.misnamed))).server_port
    program = f"""
from ray_tracing_hooks._ship.sink import DeliveryError
from ray_tracing_hooks._ship.sink import Tls
from ray_tracing_hooks._ship.transport.contract import ServerSettings
from ray_tracing_hooks._ship.transport.grpc import GrpcTransport
for authority in ({certificates.path("authority")!r}, {certificates.path("other")!r}):
    transport = GrpcTransport(ServerSettings("", "127.0.0.1:{port}", "it", {{}}, 10.0, Tls(authority)), "/a/b")
    try:
        transport.send(b"")
    except DeliveryError as error:
        print(error)
    transport.close()
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""
