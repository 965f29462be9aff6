"""Requests by gRPC, as bytes: neither generated code nor protobuf is needed. Proxies are those of the environment."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import grpc

from ray_tracing_hooks import __version__
from ray_tracing_hooks._formats.wire import FormatError, fields
from ray_tracing_hooks._ship.sinks import DeliveryError
from ray_tracing_hooks._ship.transport import Refused, Tls

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
"""Of https://opentelemetry.io/docs/specs/otlp/#failures; RESOURCE_EXHAUSTED is one only with a RetryInfo."""

_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"
_MOST_TEXT = 200

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that comes back is found again soon: the wait between attempts is the caller's business.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.primary_user_agent", f"ray-tracing-hooks/{__version__}"),
    # Errors are told by the caller; one channel is enough for the one request at a time.
    ("grpc.enable_retries", 0),
]


class GrpcTransport:
    """Calls one unary method of one server. ``timeout`` is in seconds, for a whole call. Without ``tls`` plaintext."""

    def __init__(
        self,
        target: str,
        method: str,
        *,
        address: str,
        headers: Mapping[str, str],
        timeout: float,
        gzip: bool,
        tls: Tls | None,
    ) -> None:
        self.address = address
        self._timeout = timeout
        self._tls = tls is not None
        self._metadata = tuple(headers.items())
        compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        if tls is None:
            self._channel = grpc.insecure_channel(target, options=_OPTIONS, compression=compression)
        else:
            self._channel = grpc.secure_channel(target, _credentials(tls), options=_OPTIONS, compression=compression)
        self._call: Any = self._channel.unary_unary(method, request_serializer=None, response_deserializer=None)

    def send(self, body: bytes) -> bytes:
        try:
            answer: bytes = self._call(body, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._sorted(error) from None
        return answer

    def close(self) -> None:
        self._channel.close()

    def _sorted(self, error: Any) -> Exception:
        code: grpc.StatusCode = error.code()
        details: str = error.details() or ""
        said = f"{code.name}: {' '.join(details.split())[:_MOST_TEXT]}".removesuffix(": ")
        retry = _retry_info(error)
        if code in _RETRYABLE:
            return DeliveryError(f"cannot reach {self.address}: {self._why(code, details, said)}", retry)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            if retry is not None:
                return DeliveryError(f"{self.address} does not take spans at present: {said}", retry)
            return Refused(said, too_large="larger than" in details or "too large" in details)
        return Refused(said, request=code is grpc.StatusCode.INVALID_ARGUMENT)

    def _why(self, code: grpc.StatusCode, details: str, said: str) -> str:
        """What went wrong, in words that stay the same from one attempt to the next."""
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {self._timeout:g} s"
        if "CERTIFICATE_VERIFY_FAILED" in details:
            return (
                "its certificate is not trusted; name the authority that signed it in the CERTIFICATE variable of this "
                "exporter"
            )
        if "Hostname Verification" in details or "No match found for server name" in details:
            return "its certificate is for another name"
        if "WRONG_VERSION_NUMBER" in details:
            return "it does not speak TLS; should the endpoint begin with http://?"
        if "Ssl handshake failed" in details or "SSL_ERROR" in details:
            return "the TLS handshake failed; does it ask for a client certificate?"
        if "Connection refused" in details:
            return "connection refused"
        if "DNS" in details or "name resolution" in details.lower() or "Domain name not found" in details:
            return "its name cannot be resolved"
        if "Socket closed" in details or "Connection reset" in details or "GOAWAY" in details:
            hint = "" if self._tls else "; does it expect TLS (https://), or HTTP instead of gRPC?"
            return f"it closed the connection{hint}"
        if "failed to connect" in details or "connections to all backends failing" in details:
            return "no connection"
        return said


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=_contents(tls.certificate),
        private_key=_contents(tls.client_key),
        certificate_chain=_contents(tls.client_certificate),
    )


def _contents(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def _retry_info(error: Any) -> float | None:
    """The seconds of a ``google.rpc.RetryInfo`` in the status details; 0 if it names no time."""
    try:
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                # google.rpc.Status: details = 3, of google.protobuf.Any: type_url = 1, value = 2.
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
    return float(delay.get(0x08, 0)) + float(delay.get(0x10, 0)) / 1e9
