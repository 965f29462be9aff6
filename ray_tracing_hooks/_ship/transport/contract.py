"""The contract of a transport: one request to a server, its answer, and how it fails."""

from __future__ import annotations

from typing import NamedTuple, Protocol

_LONGEST_WAIT = 3600.0
"""Seconds: a server that asks for more, or for no sensible time, is asked again then."""


class Refused(Exception):  # noqa: N818  an answer, and no fault
    """The server will never take this request.

    Attributes:
        reason: What it said, for the user.
        too_large: A smaller request might be taken.
        request: It is this request that is wrong, and not that we have no right to send any.
    """

    def __init__(self, reason: str, *, too_large: bool = False, request: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_large = too_large
        self.request = request


class Tls(NamedTuple):
    """Paths of PEM files: the authorities to trust (None: the system's), and our own certificate and its key.

    Without ``client_key`` the key is in the file of the certificate.
    """

    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None


class Transport(Protocol):
    """A server that requests are sent to, one at a time. ``address`` names it in messages, without credentials."""

    address: str

    def send(self, body: bytes) -> bytes:
        """The body of the answer.

        Raises :class:`Refused`, or DeliveryError if the same request may be taken later. The message of the latter does
        not change as long as the trouble is the same.
        """

    def close(self) -> None: ...


LONGEST_ANSWER = (1 << 20) + 1
"""Bytes of an answer that are read at most. Servers that are right send some hundreds.

No server has this very limit for requests, so the text of an error tells whose limit it was.
"""

_MOST_TEXT = 200


def one_line(text: str) -> str:
    """What a server says, on one line and cut short."""
    return " ".join(text.split())[:_MOST_TEXT]


def bounded_wait(seconds: float) -> float:
    """How long to leave a server alone that asks for ``seconds``."""
    return min(seconds, _LONGEST_WAIT) if seconds > 0 else 0.0
