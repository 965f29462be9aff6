"""Requests as datagrams. Nobody answers: what is lost on the way, or by a receiver that is not there, is lost."""

from __future__ import annotations

import errno
import socket

from ray_tracing_hooks._ship.sinks import DeliveryError
from ray_tracing_hooks._ship.transport import Refused

DATAGRAM_BYTES = 65_000
"""The longest datagram that a Jaeger agent takes, by its own default."""


class UdpTransport:
    """Sends each body as one datagram. A body that is too long is refused."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"udp://{f'[{host}]' if ':' in host else host}:{port}"
        self._place = (host, port)
        self._socket: socket.socket | None = None

    def send(self, body: bytes) -> bytes:
        if len(body) > DATAGRAM_BYTES:
            raise Refused(f"larger than a datagram of {DATAGRAM_BYTES:,} bytes", too_large=True)
        try:
            if self._socket is None:
                self._socket = self._connected()
            self._socket.send(body)
        except OSError as error:
            self.close()
            if error.errno == errno.EMSGSIZE:
                raise Refused("larger than a datagram on this network", too_large=True) from error
            raise DeliveryError(f"cannot reach {self.address}: {_why(error)}") from error
        return b""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        # Connected, so that the kernel tells of a port that nobody listens at.
        family, kind, protocol, _, place = socket.getaddrinfo(*self._place, type=socket.SOCK_DGRAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.connect(place)
        except OSError:
            made.close()
            raise
        return made


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    return error.strerror or type(error).__name__
