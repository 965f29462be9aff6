"""The contract of a transport: one request to a server, its response, and its errors, among them those of TLS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ray_tracing_hooks._ship.sink import DeliveryError, Tls

_LONGEST_WAIT = 3600.0
"""The longest ``Retry-After`` in seconds that is respected."""

_TOO_LARGE_TRACE = re.compile(r"TRACE_TOO_LARGE|trace (is )?too large|max size of trace", re.IGNORECASE)
"""The texts of Grafana Tempo."""


class Refused(Exception):  # noqa: N818  a response, not an error
    """The server has refused this request: because of its contents, or because it refuses everything.

    Attributes:
        reason: What the server said, for the user.
        too_large: Whether a smaller request might be accepted.
        too_large_trace: Whether the server holds as much as it accepts of a trace in this request.
        transient: Whether the same request might be accepted later: the server reports a failure of its own.
        credentials: Whether it refuses the credentials, or asks for some.
        method: Whether nothing at this address takes such requests.
    """

    def __init__(
        self,
        reason: str,
        *,
        too_large: bool = False,
        transient: bool = False,
        credentials: bool = False,
        method: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_large_trace = _TOO_LARGE_TRACE.search(reason) is not None
        self.too_large = too_large and not self.too_large_trace
        self.transient = transient and not self.is_of_size
        self.credentials = credentials
        self.method = method

    @property
    def is_of_size(self) -> bool:
        """Whether there is only too much in the request, or of a trace."""
        return self.too_large or self.too_large_trace


class ServerSettings(NamedTuple):
    """How a server is reached.

    Attributes:
        protocol: One of those of the sink; transports do not read it.
        target: The URL for HTTP, the target for gRPC, ``host:port`` for UDP.
        address: The same for messages, without credentials.
        headers: Headers or metadata of each request, with names in lower case.
        timeout: Seconds for one request and its response.
        tls: The files for TLS. None is plaintext, which matters only for gRPC.
        max_spans: The most spans per request, or None for as many as its size allows.
        delay: Seconds that spans may wait to be sent in one batch.
        gzip: Whether requests are compressed.
    """

    protocol: str
    target: str
    address: str
    headers: Mapping[str, str]
    timeout: float
    tls: Tls | None = None
    max_spans: int | None = None
    delay: float = 0.0
    gzip: bool = False

    def __repr__(self) -> str:
        """Without headers and target, which may contain credentials."""
        return f"ServerSettings({self.protocol}, {self.address})"


class Transport(Protocol):
    """Sends requests to a server, one at a time. ``address`` is the server in messages, without credentials."""

    @property
    def address(self) -> str: ...

    def send(self, body: Any) -> bytes:
        """Send a request; returns the body of the response.

        Raises :class:`Refused`, or DeliveryError if the same request may be accepted later. The message of the latter
        stays the same as long as the cause does.
        """

    def close(self) -> None:
        """Close the connection, and end its threads. A later :meth:`send` opens another one."""


LONGEST_ANSWER = (1 << 20) + 1
"""Most bytes of a response that are read. Correct servers send some hundreds.

It is an unusual number, so that the text of an error shows that this was our limit and not the server's.
"""

_MOST_TEXT = 200


def one_line(text: str) -> str:
    """The text of a server on one line, truncated."""
    return " ".join(text.split())[:_MOST_TEXT]


def bounded_wait(seconds: float) -> float:
    """How long to wait for a server that asks for ``seconds``."""
    return min(seconds, _LONGEST_WAIT) if seconds > 0 else 0.0


def check(tls: Tls) -> None:
    """Raises DeliveryError, which names the file, if one cannot be used.

    Without this check, gRPC ends the process for some invalid files, and the errors of ``requests`` are not helpful.
    """
    import ssl  # noqa: PLC0415  only the shipper and `doctor` need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.certificate is not None:
        try:
            context.load_verify_locations(tls.certificate)
        except OSError as error:  # includes ssl.SSLError
            raise DeliveryError(_text("CA certificates", tls.certificate, error)) from error
    if tls.client_certificate is not None:
        key = tls.client_key or tls.client_certificate
        try:
            # Without a password, OpenSSL would prompt for that of an encrypted key on the terminal.
            context.load_cert_chain(tls.client_certificate, key, password="")
        except OSError as error:
            files = " and ".join(dict.fromkeys((tls.client_certificate, key)))
            raise DeliveryError(
                _text("the client certificate and its key, which must not be encrypted,", files, error)
            ) from error


def distrust(error: str) -> str | None:
    """Why OpenSSL or BoringSSL does not accept the certificate of a server; None if the error is another one."""
    if "CERTIFICATE_VERIFY_FAILED" not in error:
        return None
    if "has expired" in error:
        return "its certificate has expired, or that of its CA"
    if "not yet valid" in error:
        return "its certificate is not valid yet; is the clock of this machine right?"
    return (
        "its certificate is not trusted; set the CERTIFICATE variable of this exporter to the CA certificate that "
        "signed it"
    )


def _text(what: str, files: str, error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror  # an SSLError has the first
    return f"cannot use TLS: expected {what} as PEM in {files}" + (
        f" ({reason.lower().replace('_', ' ')})" if reason else ""
    )
