"""The contract of a transport: one request to a server, its response, and its errors."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

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


class Tls(NamedTuple):
    """Paths of PEM files: the CA certificates to trust (None: the system's), and our client certificate and its key.

    Without ``client_key``, the key is in the file of the client certificate.
    """

    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None


class Transport(Protocol):
    """Sends requests to a server, one at a time. ``address`` is the server in messages, without credentials."""

    address: str

    def send(self, body: bytes) -> bytes:
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
