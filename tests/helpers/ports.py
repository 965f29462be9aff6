"""Ports for servers that take some seconds to listen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket

NEXT = "RTH_NEXT_PORT"
"""The variable that names the file with the next port to try, which all processes of a test run share."""

_RANGE = range(11000, 20000)
"""Below the ephemeral ports of the system, which Ray workers use, so no other process takes one by chance."""


def free_port() -> int:
    """A port on which no process listens, and which no other test has reserved."""
    while True:
        port = _RANGE[_next() % len(_RANGE)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


def _next() -> int:
    path = os.environ.get(NEXT)
    if not path:
        return secrets.randbelow(len(_RANGE))
    with open(path, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        number = int(file.read() or secrets.randbelow(len(_RANGE)))
        file.seek(0)
        file.write(str(number + 1))
        file.flush()
    return number
