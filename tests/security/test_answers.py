"""What a hostile server can do: its responses are limited in size and time, and its text cannot control terminals."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
import psutil
import pytest
from grpc_server import grpc_server

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._safety.guard import report
from ray_tracing_hooks._ship.sink import DeliveryError
from ray_tracing_hooks._ship.transport.contract import LONGEST_ANSWER, Refused, ServerSettings
from ray_tracing_hooks._ship.transport.grpc import GrpcTransport
from ray_tracing_hooks._ship.transport.http import HttpTransport

pytestmark = pytest.mark.timeout(90)

TIMEOUT = 1.0
LONG = 20.0
"""Far more than the time-out, and far less than what each server below would take."""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that does what it likes with each connection, until the client goes."""
    connections: list[socket.socket] = []
    threads = []

    def handle(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.recv(1 << 16)
            serve(connection)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                thread = threading.Thread(target=handle, args=(connection,))
                threads.append(thread)
                thread.start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, args=(listener,))
        accepting.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    for thread in threads:
        thread.join()


@contextmanager
def http(port: int, **headers: str) -> Iterator[HttpTransport]:
    settings = ServerSettings("", f"http://127.0.0.1:{port}/v1/traces", "the collector", headers, TIMEOUT)
    transport = HttpTransport(settings, "application/x-protobuf")
    yield transport
    transport.close()


def drip(first: bytes, part: bytes) -> Callable[[socket.socket], None]:
    """Sends ``first``, and then ``part`` again and again, each well within the time-out of a socket."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(part)
            time.sleep(0.05)

    return serve


@pytest.mark.parametrize(
    ("first", "part"),
    [
        (b"HTTP/1.1 200 O", b"K"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["status", "header", "interim answers"],
)
def test_an_answer_that_never_comes_to_its_body_times_out(first: bytes, part: bytes) -> None:
    """A socket's time-out begins anew with each byte, so one byte a second would hold delivery up for hours."""
    with server(drip(first, part)) as port, http(port) as transport:
        began = time.monotonic()
        with pytest.raises(DeliveryError, match=r"no response within 1 s"):
            transport.send(b"spans")
        assert time.monotonic() - began < LONG


@pytest.mark.parametrize("head", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked", b"Connection: close"])
def test_a_body_that_never_ends_is_left(head: bytes) -> None:
    """The status has said that the spans were taken."""
    part = b"1\r\nx\r\n" if b"chunked" in head else b"x"
    with server(drip(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n", part)) as port, http(port) as transport:
        began = time.monotonic()
        assert len(transport.send(b"spans")) < 1000
        assert time.monotonic() - began < LONG


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip bomb"])
def test_a_huge_body_is_cut_off(packed: bool) -> None:
    size = 300 << 20
    sent = 0

    def serve(connection: socket.socket) -> None:
        nonlocal sent
        body = gzip.compress(bytes(size), 9) if packed else b""
        encoding = b"Content-Encoding: gzip\r\n" if packed else b""
        length = len(body) if packed else size
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (length, encoding) + body)
        while not packed and sent < size:
            sent += connection.send(bytes(1 << 16))

    with server(serve) as port, http(port) as transport:
        transport._timeout = 30.0
        before = psutil.Process().memory_info().rss
        assert len(transport.send(b"spans")) in {LONGEST_ANSWER, 0}
        assert psutil.Process().memory_info().rss - before < 100 << 20
    assert sent < size


def test_a_redirect_takes_no_header_anywhere() -> None:
    """Neither to another server nor to a file."""
    asked: list[socket.socket] = []
    with server(asked.append) as elsewhere:
        for target in (f"http://127.0.0.1:{elsewhere}/steal", "file:///etc/passwd", "//evil/\x1b[2J", "x" * 60000):
            head = f"HTTP/1.1 307 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
            with (
                server(lambda connection, head=head: connection.sendall(head)) as port,  # type: ignore[misc]
                http(port, authorization="Bearer secret") as transport,
                pytest.raises(Refused, match=r"^HTTP 307 Temporary Redirect to ") as caught,
            ):
                transport.send(b"spans")
            assert len(caught.value.reason) < 400
            assert "\x1b" not in caught.value.reason
    assert asked == []


def test_a_thousand_headers_are_too_many() -> None:
    """And an endless line is an error, like anything that is not HTTP."""
    for answer in (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, b"HTTP/1.1 200 " + b"x" * 1_000_000):
        with server(lambda connection, answer=answer: connection.sendall(answer)) as port, http(port) as transport:  # type: ignore[misc]
            with pytest.raises(DeliveryError) as caught:
                transport.send(b"spans")
            assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"partialSuccess":{"rejectedSpans":1e999}}', b'{"partialSuccess":"x"}', b"9" * 10_000]
)
def test_a_hostile_json_answer_says_nothing(body: bytes) -> None:
    assert otlp.decode_json_answer(body) == (0, "")


@pytest.mark.parametrize("packed", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["plain", "gzip bomb"])
def test_a_huge_grpc_answer_is_not_taken_in(packed: grpc.Compression) -> None:
    """The call has succeeded: sending the spans again would double them, so they count as taken.

    Where gRPC finds out while it unpacks the answer, its text does not say whose limit that was.
    """
    with grpc_server("test.Service/Export", lambda *_: bytes(50 << 20), compression=packed) as port:
        transport = grpc_transport(port)
        if packed is grpc.Compression.Gzip:
            with pytest.raises(Refused, match=r"larger than max"):
                transport.send(b"spans")
        else:
            assert transport.send(b"spans") == b""
        transport.close()


def grpc_transport(port: int) -> GrpcTransport:
    settings = ServerSettings("", f"127.0.0.1:{port}", "the collector", {}, 30)
    return GrpcTransport(settings, "/test.Service/Export")


def test_what_a_server_says_cannot_command_the_users_terminal(reports: list[str]) -> None:
    """Escape sequences, links of terminals, letters that turn the text round, and further lines."""
    report("it says: \x1b[2J\x1b]8;;http://evil\x07click\x1b]8;;\x07 \u202egnp.exe \u2066x\nWARNING forged\r")
    (said,) = reports
    assert said == (
        "it says: \\x1b[2J\\x1b]8;;http://evil\\x07click\\x1b]8;;\\x07 \\u202egnp.exe \\u2066x\\nWARNING forged\\r"
    )
