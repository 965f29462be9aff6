"""Ports for servers that take some seconds to listen."""

from __future__ import annotations

import contextlib
import secrets
import socket

_RANGE = range(11000, 20000)
"""Below those that the system gives to whoever asks for any, as workers of Ray do: nobody comes between by chance."""


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """A port that nobody listens at."""
    while True:
        port = secrets.choice(_RANGE)
        with socket.socket(type=kind) as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
