"""Checks whether the raylet of this node, which a shipper outlives, is still running."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time

_ASK_SECONDS = 1.0
"""Seconds between two checks."""

_LONGEST_ADDRESS = 107
"""Longest path of a unix socket address, in bytes."""


class Raylet:
    """The raylet that listens on the unix socket ``path``; None if there is no raylet."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._asked = 0.0
        self._is_gone = path is None

    @property
    def is_expected(self) -> bool:
        """Whether there was a raylet to begin with."""
        return self._path is not None

    def is_gone(self) -> bool:
        """Whether the raylet has ended."""
        now = time.monotonic()
        if self._path is not None and not self._is_gone and now - self._asked >= _ASK_SECONDS:
            self._asked = now
            self._is_gone = is_deserted(self._path)
        return self._is_gone


def is_deserted(path: str) -> bool:
    """Whether no process listens on this unix socket any more; False in case of doubt."""
    if _is_listed(path):
        return False
    folder = -1
    try:
        address = path
        if len(os.fsencode(path)) > _LONGEST_ADDRESS:
            # Use a short path through a descriptor of its folder.
            folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
            address = f"/proc/self/fd/{folder}/{os.path.basename(path)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            connection.connect(address)
    except OSError as error:
        return error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}
    finally:
        if folder >= 0:
            os.close(folder)
    return False


def _is_listed(path: str) -> bool:
    """Whether the kernel lists a listener at this path in our network namespace.

    A connection attempt would show it too, but the raylet logs each one.
    """
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:
        wanted = os.fsencode(path)
        for line in file:
            # Num RefCount Protocol Flags Type St Inode Path; the flag 0x10000 marks a listener.
            parts = line.rstrip(b"\n").split(maxsplit=7)
            if parts[-1] == wanted and int(parts[3], 16) & 0x10000:
                return True
    return False
