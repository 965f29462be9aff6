"""The shipper's end of the channel that :mod:`~ray_tracing_hooks._ship.flush_messages` describes."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable

from ray_tracing_hooks._private import inside, open_fifo, read_file, write_atomically
from ray_tracing_hooks._ship.files import is_file_at
from ray_tracing_hooks._ship.flush_messages import NO_FIFOS, REQUEST, WAKE

_LOOK_FOR_FILES = 0.1
"""Seconds between polls for requests on a volume without FIFOs."""


class Inbox:
    """The FIFO ``wake`` in the open folder ``folder``. Each of its lines is a request.

    Some volumes have no FIFOs, such as SMB shares, FAT, and mounted object stores. There, each request is a file, and
    its answer another one. Raises OSError if neither is possible.

    Attributes:
        answers: The names of the answers that are files, which the requesters remove.
    """

    def __init__(self, folder: int) -> None:
        self._within = inside(folder)
        self._path = os.path.join(self._within, WAKE)
        self._has_fifo = True
        self.answers: set[str] = set()
        self._descriptor = self._make()

    def is_in_place(self) -> bool:
        """Whether requesters can find it."""
        return not self._has_fifo or is_file_at(self._descriptor, self._path)

    def restore(self) -> None:
        """Create it again after it has been removed. Raises OSError."""
        made = self._make()
        # In place: other threads use this descriptor to wake us up.
        os.dup2(made, self._descriptor, inheritable=False)
        os.close(made)

    def wait(self, seconds: float) -> None:
        """Wait for a request, a call of :meth:`wake_up`, or the time-out."""
        until = time.monotonic() + seconds
        # Not `select`, which takes no descriptor above 1023.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while True:
            left = max(0.0, until - time.monotonic())
            step = left if self._has_fifo else min(left, _LOOK_FOR_FILES)
            if poll.poll(step * 1000) or step == left or self._files():
                return

    def wake_up(self) -> None:
        """End a :meth:`wait`, from another thread or a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, b"\n")

    def heard(self) -> list[bytes]:
        """The requests since the last call."""
        lines = []
        with contextlib.suppress(BlockingIOError):
            lines = [line for line in os.read(self._descriptor, 1 << 16).split(b"\n") if line]
        if not self._has_fifo:
            for path in self._files():
                with contextlib.suppress(OSError, ValueError):
                    lines.append(read_file(path).encode())
                with contextlib.suppress(OSError):
                    os.unlink(path)
        return lines

    def answer(self, name: str, line: Callable[[], bytes]) -> None:
        """Answer with the result of ``line``, which is not called if the requester is gone. Raises OSError then."""
        path = os.path.join(self._within, name)
        if not self._has_fifo:
            write_atomically(path, line())
            self.answers.add(name)
            return
        descriptor = open_fifo(path)
        try:
            os.write(descriptor, line())
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Remove the FIFO, so that no further requests arrive."""
        if self._has_fifo:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _files(self) -> list[str]:
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(self._within) if name.startswith(REQUEST)]
            return [os.path.join(self._within, name) for name in names if not name.endswith(".new")]
        return []

    def _make(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        try:
            os.mkfifo(self._path, 0o600)
        except OSError as error:
            if error.errno not in NO_FIFOS:
                raise
            self._has_fifo = False
            return _pipe()
        # Open for writing too, so that reading does not end when a writer closes it.
        return os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


def _pipe() -> int:
    """A pipe with both ends in one descriptor, like a FIFO that only this process can write to."""
    reading, writing = os.pipe()
    try:
        return os.open(inside(reading), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(reading)
        os.close(writing)
