"""Requests over gRPC, as bytes, without generated code or protobuf. Proxies are those of the environment."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ray_tracing_hooks._formats.protobuf import FormatError, fields
from ray_tracing_hooks._ship.sink import DeliveryError, Tls
from ray_tracing_hooks._ship.transport.contract import (
    LONGEST_ANSWER,
    Refused,
    ServerSettings,
    bounded_wait,
    check,
    distrust,
    one_line,
)
from ray_tracing_hooks._version import __version__

# gRPC reads this when it is loaded. Its messages on stderr are also in the errors that it raises.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

_RETRYABLE = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Of https://opentelemetry.io/docs/specs/otlp/#failures; RESOURCE_EXHAUSTED is retryable only with a RetryInfo."""

_FAILURES = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""What servers answer while their storage fails or their queue is full."""

_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"

_TOO_LARGE = re.compile(r"larger than|too large|exceeds? (the )?max", re.IGNORECASE)
"""The texts of servers in C++, Go, Java, Rust and .NET, with RESOURCE_EXHAUSTED, or in Rust OUT_OF_RANGE."""

_OUR_LIMIT = f"vs. {LONGEST_ANSWER})"
"""The end of gRPC's text if the response exceeds our limit."""

_NOT_GRPC = "Received http2 header with status"
"""A response that is HTTP alone."""

_UNREADABLE = re.compile(r"unmarshal|deseriali[sz]|decod|pars(e|ing)|UTF-8", re.IGNORECASE)
"""The texts of servers, with INTERNAL, that cannot read a request."""

_NOT_CONNECTED = ("failed to connect", "errors resolving", "DNS resolution failed", "all backends failing")
_CLOSED = ("Socket closed", "Connection reset", "Broken pipe", "GOAWAY", "End of TCP stream", "Stream removed")
"""Texts of gRPC itself, not of the server."""


class GrpcTransport:
    """Calls one method of one server. Without TLS files in its settings, in plaintext.

    With ``parts`` the method takes a stream of messages, those that ``parts`` returns for a body. ``over_http`` is the
    setting of the exporter for a server that speaks HTTP, for a message.

    After a call without a response, the next one uses a new connection. A connection can die silently, when a load
    balancer, a NAT or a node drops it, and gRPC would use it for as long as the kernel retransmits.
    """

    def __init__(
        self,
        settings: ServerSettings,
        method: str,
        parts: Callable[[bytes], Iterable[bytes]] | None = None,
        over_http: str = "PROTOCOL=http/protobuf",
    ) -> None:
        target, timeout, tls = settings.target, settings.timeout, settings.tls
        self._parts = parts
        self._over_http = over_http
        self.address = settings.address
        self._timeout = timeout
        self._tls = tls is not None
        self._metadata = tuple(settings.headers.items())
        self._method = method
        compression = grpc.Compression.Gzip if settings.gzip else grpc.Compression.NoCompression
        self._make_channel: Callable[[], grpc.Channel]
        if tls is None:
            self._make_channel = partial(grpc.insecure_channel, target, _options(timeout), compression)
        else:
            self._make_channel = lambda: grpc.secure_channel(target, credentials(tls), _options(timeout), compression)
        self._open()

    def _open(self) -> None:
        self._channel: grpc.Channel | None = self._make_channel()
        call = self._channel.unary_unary if self._parts is None else self._channel.stream_unary
        self._call: Any = call(self._method, request_serializer=None, response_deserializer=None)

    def send(self, body: bytes) -> bytes:
        if self._channel is None:
            self._open()
        try:
            request = body if self._parts is None else iter(self._parts(body))
            answer: bytes = self._call(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            if _OUR_LIMIT in (error.details() or ""):
                return b""  # sending it again would duplicate its spans
            # Keep-alive pings would detect it too, but servers that forbid them, as Go's by default, disconnect.
            is_dead = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            # The next channel reads the certificates again, which expire and are replaced in their files.
            if is_dead or (self._tls and self._unreached(error.code(), error.details() or "") is not None):
                self.close()
            raise self._sorted(error) from None
        return answer

    def close(self) -> None:
        # As long as there is a channel, threads of gRPC wake up several times a second.
        if self._channel is not None:
            self._channel.close()
        self._channel = self._call = None

    def _sorted(self, error: Any) -> Exception:
        code: grpc.StatusCode = error.code()
        details: str = error.details() or ""
        text = f"{code.name}: {one_line(details)}".removesuffix(": ")
        retry = _retry_info(error)
        # A server that asks for a pause means the rate, whatever its text says; the OTLP specification has it retried.
        is_limit = code in {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OUT_OF_RANGE} and retry is None
        if is_limit and _TOO_LARGE.search(details):
            return Refused(text, too_large=True)
        unreached = self._unreached(code, details)
        if unreached is not None:
            return DeliveryError(f"cannot reach {self.address}: {unreached}")
        if code in _RETRYABLE or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and retry is not None):
            return DeliveryError(f"{self.address} accepts nothing at present: {text}", retry)
        if code is grpc.StatusCode.UNIMPLEMENTED and _NOT_GRPC in details:
            text += f"; is this its port for HTTP, which is {self._over_http}?"
        return Refused(
            text,
            transient=code in _FAILURES
            and not (code is grpc.StatusCode.INTERNAL and _UNREADABLE.search(details) is not None),
            credentials=code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED},
            method=code is grpc.StatusCode.UNIMPLEMENTED,
        )

    def _unreached(self, code: grpc.StatusCode, details: str) -> str | None:
        """Why there was no response, in a text that is the same for each attempt; None if there was one."""
        if code is grpc.StatusCode.DEADLINE_EXCEEDED or "connection attempt timed out" in details:
            return f"no response within {self._timeout:g} s"
        if code not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN}:
            return None
        if any(words in details for words in _NOT_CONNECTED):
            return self._unconnected(details)
        if any(words in details for words in _CLOSED):
            return "it closed the connection"
        return None

    def _unconnected(self, details: str) -> str:
        if (reason := distrust(details)) is not None:
            return reason
        if "Hostname Verification" in details:
            return "its certificate is for another name"
        if "WRONG_VERSION_NUMBER" in details:
            return "it does not speak TLS; should the endpoint begin with http://?"
        if "Failed parsing HTTP/2" in details or "ALPN" in details or "HTTP_REQUEST" in details:
            return f"it does not speak gRPC; is this its port for HTTP, which is {self._over_http}?"
        if "Connection refused" in details:
            return "connection refused"
        if "resol" in details or "Domain name not found" in details:
            return "its name cannot be resolved"
        if "HTTP proxy" in details:
            return "the proxy of the environment refuses the connection"
        if any(words in details for words in _CLOSED) or "andshake failed" in details:
            return "it closed the connection; " + (
                "does it ask for a client certificate?" if self._tls else "does it expect TLS, which is https://?"
            )
        return "no connection"


def _options(timeout: float) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", LONGEST_ANSWER),
        # Reconnect soon when a server comes back: the caller handles the wait between attempts.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Despite its name, this is the connect time-out.
        ("grpc.min_reconnect_backoff_ms", int(timeout * 1000)),
        ("grpc.primary_user_agent", f"ray-tracing-hooks/{__version__}"),
        ("grpc.enable_retries", 0),
        # Otherwise channels to the same server share connections, and a new channel would get the dead one.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def credentials(tls: Tls) -> grpc.ChannelCredentials:
    check(tls)
    return grpc.ssl_channel_credentials(
        root_certificates=_contents(tls.certificate),
        # A certificate without a key would end the process.
        private_key=_contents(tls.client_key or tls.client_certificate),
        certificate_chain=_contents(tls.client_certificate),
    )


def _contents(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def _retry_info(error: Any) -> float | None:
    """The seconds of a ``google.rpc.RetryInfo`` in the status details; 0 if it has no time."""
    try:
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                # google.rpc.Status: details = 3; google.protobuf.Any: type_url = 1, value = 2.
                for detail in (part for tag, part in fields(value) if tag == 0x1A):
                    parts = dict(fields(detail))
                    if parts.get(0x0A) == _RETRY_INFO:
                        return _duration(parts.get(0x12, b""))
    except (FormatError, struct.error, TypeError):
        pass
    return None


def _duration(retry_info: bytes) -> float:
    # RetryInfo: retry_delay = 1, a Duration: seconds = 1, nanos = 2.
    delay = dict(fields(dict(fields(retry_info)).get(0x0A, b"")))
    return bounded_wait(float(delay.get(0x08, 0)) + float(delay.get(0x10, 0)) / 1e9)
