"""Asking the shipper to deliver everything now, and hearing what it has to say.

A request is one line of JSON on the FIFO ``wake``, and its answer one line on a FIFO that the asking process has made:
both shorter than what a pipe takes in one piece. Sockets would not do, since the path of one has at most 107 bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import select
import time
from dataclasses import dataclass, field

from ray_tracing_hooks._private import inside, open_fifo, open_file, open_folder, read_file
from ray_tracing_hooks._ship.files import LOCK, NEWS, WAKE

_LOOK_AGAIN = 0.25
"""Seconds between two looks whether the shipper still lives."""


@dataclass(frozen=True)
class FlushResult:
    """What came of a flush.

    Attributes:
        done: Everything that was in the spool has been delivered to every sink.
        problems: What keeps spans from being delivered, and what has been lost, as sentences for the user.
        waiting: How many spans are still to be delivered, and where they wait, as sentences.
        running: There is a shipper. If not, start one and flush again.
    """

    done: bool
    problems: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    running: bool = True


def flush(spool_dir: str, timeout: float, *, until_writers_end: bool = False) -> FlushResult:
    """Have everything that is in the spool now delivered, and wait for it at most ``timeout`` seconds. Never raises.

    With ``until_writers_end`` it is done only once every other process that writes to this spool has ended, and spans
    that were cut off by that have been closed and delivered: for a driver whose workers are just being killed.
    """
    deadline = time.monotonic() + timeout
    try:
        folder = open_folder(spool_dir, make=False)
    except OSError as error:
        return _unflushed(spool_dir, error)
    within = inside(folder)
    answer = os.path.join(within, f"flush-{secrets.token_hex(8)}")
    descriptor = -1
    try:
        os.mkfifo(answer, 0o600)
        descriptor = os.open(answer, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        request = {
            "answer": os.path.basename(answer),
            "timeout": timeout,
            "until_writers_end": until_writers_end,
            "pid": os.getpid(),
        }
        return _ask(spool_dir, within, request, descriptor, deadline)
    except OSError as error:
        return _unflushed(spool_dir, error)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(answer)
        os.close(folder)


def news(spool_dir: str) -> list[str]:
    """What the shipper has told so far of failures that last and of losses, as sentences for the user."""
    try:
        folder = open_folder(spool_dir, make=False)
        try:
            return [str(text) for text in json.loads(read_file(os.path.join(inside(folder), NEWS)))]
        finally:
            os.close(folder)
    except (OSError, ValueError):
        return []


def _unflushed(spool_dir: str, error: OSError) -> FlushResult:
    return FlushResult(False, [f"the spool {spool_dir!r} cannot be flushed: {error.strerror}"], running=False)


def _ask(spool_dir: str, within: str, request: dict[str, object], answer: int, deadline: float) -> FlushResult:
    """``within`` is the path for the files of the folder ``spool_dir``, which is only told."""
    wake = os.path.join(within, WAKE)
    while not _write(wake, json.dumps(request).encode() + b"\n"):
        if not _is_starting(within):
            return FlushResult(False, [f"no shipper is running for the spool {spool_dir!r}"], running=False)
        if time.monotonic() >= deadline:
            return FlushResult(False, [f"the shipper of the spool {spool_dir!r} is not up yet"])
        time.sleep(0.005)
    while True:
        left = deadline - time.monotonic()
        # A little longer than the shipper was given: at the deadline it says what the problem is.
        ready, _, _ = select.select([answer], [], [], min(_LOOK_AGAIN, max(0.0, left) + 0.1))
        if ready:
            found = json.loads(os.read(answer, select.PIPE_BUF))
            return FlushResult(bool(found["done"]), found["problems"], found["waiting"])
        if left <= 0:
            return FlushResult(False, [f"the shipper of the spool {spool_dir!r} does not answer"])
        if not _write(wake, b"\n"):
            return FlushResult(False, [f"the shipper of the spool {spool_dir!r} has ended"], running=False)


def _write(fifo: str, line: bytes) -> bool:
    """Whether somebody has the FIFO open to read, and so gets this line."""
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


def _is_starting(spool_dir: str) -> bool:
    """Whether a shipper holds its lock."""
    try:
        descriptor = open_file(os.path.join(spool_dir, LOCK), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
