"""Requests as datagrams. They are not acknowledged: losses in the network or at a full receiver go unnoticed."""

from __future__ import annotations

import errno
import os
import socket
import time

from ray_tracing_hooks._ship.sink import DeliveryError
from ray_tracing_hooks._ship.transport.contract import Refused

DATAGRAM_BYTES = 65_000
"""The longest datagram that a Jaeger agent accepts, and that Jaeger's clients send."""

_PAUSE = 0.002
"""Seconds between datagrams. A receiver's buffer holds about three of the longest: without a pause, a receiver on the
same machine lost 297 of 300, and with 1 ms none."""


class UdpTransport:
    """Sends each body as one datagram, and refuses bodies that are too long for that.

    A missing listener is detected only if the receiver's machine reports it: at once for the local machine, so that
    nothing is lost, and for another machine with the next datagram.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address = f"udp://{f'[{host}]' if ':' in host else host}:{port}"
        self._place = (host, port)
        self._socket: socket.socket | None = None
        self._next = 0.0

    def send(self, body: bytes) -> bytes:
        if len(body) > DATAGRAM_BYTES:
            raise Refused(f"larger than a datagram, which has {DATAGRAM_BYTES:,} bytes at most", too_large=True)
        time.sleep(max(0.0, self._next - time.monotonic()))
        try:
            if self._socket is None:
                self._socket = self._connected()
            self._socket.send(body)
            _raise_error_of(self._socket)
        except OSError as error:
            self.close()
            if error.errno == errno.EMSGSIZE:
                raise Refused("larger than a datagram of this network", too_large=True) from error
            raise DeliveryError(f"cannot reach {self.address}: {_why(error)}") from error
        self._next = time.monotonic() + _PAUSE
        return b""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        # Only a connected socket gets the error that no process listens.
        family, kind, protocol, _, place = socket.getaddrinfo(*self._place, type=socket.SOCK_DGRAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.connect(place)
        except OSError:
            made.close()
            raise
        return made


def _raise_error_of(connected: socket.socket) -> None:
    number = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, os.strerror(number))


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "no process listens there"
    return error.strerror or type(error).__name__
