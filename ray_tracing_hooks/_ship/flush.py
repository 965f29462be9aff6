"""Asks the shipper to deliver everything now, and waits for its answer.

The messages are described in :mod:`~ray_tracing_hooks._ship.flush_messages`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from dataclasses import dataclass, field, replace

from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._private import inside, open_fifo, open_folder, read_file, write_atomically
from ray_tracing_hooks._processes import pid_namespace
from ray_tracing_hooks._ship.files import is_shipper_running
from ray_tracing_hooks._ship.flush_messages import ANSWER, NO_FIFOS, REQUEST, WAKE, Answer, Request

_LOOK_AGAIN = 0.25
"""Seconds between two checks that the shipper still lives."""

_PAUSE = 0.005
"""Seconds between two checks for an answer. `select` is no alternative: it accepts no descriptor above 1023, and
programs patch it."""


@dataclass(frozen=True)
class FlushResult:
    """The result of a flush.

    Attributes:
        done: Everything that was in the spool has been delivered to every sink.
        problems: What prevents delivery, and what has been lost, as sentences for the user.
        waiting: How many spans are still to be delivered, and where they wait, as sentences.
        running: Whether a shipper is running. If not, start one and flush again.
        written: How many spans the shippers of this spool have written to local files so far; None if unknown.
    """

    done: bool
    problems: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    running: bool = True
    written: int | None = field(default=None, compare=False)


def flush(spool_dir: str, timeout: float, *, until_writers_end: bool = False) -> FlushResult:
    """Have everything that is in the spool now delivered, waiting at most ``timeout`` seconds. Never raises.

    With ``until_writers_end``, it is done only once every other process that writes to this spool has ended, and the
    spans that this interrupted have been closed and delivered: for a driver whose workers are just being killed.
    """
    deadline = monotonic() + timeout
    try:
        folder = open_folder(spool_dir, make=False)
    except OSError as error:
        return _unflushed(spool_dir, error)
    within = inside(folder)
    channel: _Fifos | _Files | None = None
    try:
        channel = _open(within)
        request = Request(channel.name, timeout, until_writers_end, os.getpid(), pid_namespace())
        return _ask(spool_dir, within, channel, request, deadline)
    except OSError as error:
        return _unflushed(spool_dir, error)
    finally:
        if channel is not None:
            channel.close()
        os.close(folder)


def _unflushed(spool_dir: str, error: OSError) -> FlushResult:
    return FlushResult(False, [f"the spool {spool_dir!r} cannot be flushed: {error.strerror}"], running=False)


class _Fifos:
    """The request FIFO of the shipper, and a FIFO for its answer. Raises OSError if FIFOs cannot be created."""

    def __init__(self, within: str) -> None:
        self._wake = os.path.join(within, WAKE)
        self.name = _name(ANSWER)
        self._path = os.path.join(within, self.name)
        os.mkfifo(self._path, 0o600)
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            os.unlink(self._path)
            raise

    def ask(self, request: Request) -> bool:
        """Send a request; False if no shipper is listening."""
        return _write(self._wake, request.encode())

    def answer(self) -> bytes | None:
        try:
            return os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return None

    def is_served(self) -> bool:
        """Whether the shipper is still listening."""
        return _write(self._wake, b"\n")

    def close(self) -> None:
        os.close(self._descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class _Files:
    """The same with files, for volumes without FIFOs. A shipper that holds its lock polls for them."""

    def __init__(self, within: str) -> None:
        self._within = within
        self.name = _name(ANSWER)
        self._path = os.path.join(within, self.name)
        self._request = os.path.join(within, _name(REQUEST))

    def ask(self, request: Request) -> bool:
        if not self.is_served():
            return False
        write_atomically(self._request, request.encode())
        return True

    def answer(self) -> bytes | None:
        try:
            return read_file(self._path).encode()
        except FileNotFoundError:
            return None

    def is_served(self) -> bool:
        return is_shipper_running(self._within)

    def close(self) -> None:
        for path in (self._request, self._path):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _open(within: str) -> _Fifos | _Files:
    try:
        return _Fifos(within)
    except OSError as error:
        if error.errno not in NO_FIFOS:
            raise
        return _Files(within)


def _name(kind: str) -> str:
    return kind + secrets.token_hex(8)


def _ask(spool_dir: str, within: str, channel: _Fifos | _Files, request: Request, deadline: float) -> FlushResult:
    """``within`` is the path for the files of the folder; ``spool_dir`` is only for messages."""
    # A shipper that is still starting has what is left of the time.
    while not channel.ask(replace(request, timeout=max(0.0, deadline - time.monotonic()))):
        if not is_shipper_running(within):
            return FlushResult(False, [f"no shipper is running for the spool {spool_dir!r}"], running=False)
        if monotonic() >= deadline:
            return FlushResult(False, [f"the shipper of the spool {spool_dir!r} is not up yet"])
        time.sleep(_PAUSE)
    # A little longer than the shipper's own deadline, at which it answers with the problem.
    deadline += 0.1
    look_at = monotonic() + _LOOK_AGAIN
    while True:
        is_late = (now := monotonic()) >= deadline
        is_served = now < look_at or channel.is_served()
        # Only after that check: a shipper that has ended may have answered before.
        if (line := channel.answer()) is not None:
            found = Answer.decode(line)
            return FlushResult(found.done, found.problems, found.waiting, written=found.written)
        if not is_served:
            return FlushResult(False, [f"the shipper of the spool {spool_dir!r} has ended"], running=False)
        if is_late:
            return FlushResult(False, [f"the shipper of the spool {spool_dir!r} does not answer"])
        if now >= look_at:
            look_at = now + _LOOK_AGAIN
        time.sleep(_PAUSE)


def _write(fifo: str, line: bytes) -> bool:
    """Write a line to a FIFO; False if it has no reader."""
    try:
        descriptor = open_fifo(fifo)
    except OSError as error:
        if error.errno in {errno.ENXIO, errno.ENOENT}:
            return False
        raise
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    return True
