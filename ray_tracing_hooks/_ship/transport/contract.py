"""The contract of a transport: one request to a server, its response, and its errors."""

from __future__ import annotations

from typing import NamedTuple, Protocol

_LONGEST_WAIT = 3600.0
"""The longest ``Retry-After`` in seconds that is respected."""


class Refused(Exception):  # noqa: N818  a response, not an error
    """The server will never accept this request.

    Attributes:
        reason: What the server said, for the user.
        too_large: Whether a smaller request might be accepted.
        request: Whether this request is at fault, and not missing permissions.
        credentials: Whether it refuses the credentials, or asks for some.
        method: Whether nothing at this address takes such requests.
    """

    def __init__(
        self,
        reason: str,
        *,
        too_large: bool = False,
        request: bool = False,
        credentials: bool = False,
        method: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_large = too_large
        self.request = request
        self.credentials = credentials
        self.method = method


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
