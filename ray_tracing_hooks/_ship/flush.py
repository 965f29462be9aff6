"""Asks the shipper of a spool to deliver everything now, and waits for its answer.

The shipper listens on the unix socket :data:`SOCKET` in the spool folder. A connection has one request and one answer,
each a packet of JSON: the fields of :class:`FlushRequest` and of :class:`FlushResult`. On a volume without sockets,
there is an empty file in its place: nobody can wait for a delivery there.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from dataclasses import asdict, dataclass, field

from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._safety.private import inside, open_folder
from ray_tracing_hooks._safety.processes import UNKNOWN, pid_namespace
from ray_tracing_hooks._ship.files import SOCKET, is_shipper_running

_PAUSE = 0.005
"""Seconds between two attempts to connect to a shipper that is starting."""

_LATER = 0.1
"""Seconds that a flush waits longer than the shipper, which answers at its own deadline with the problem."""

_LONGEST = 1 << 17
"""Most bytes of an answer."""

_MOST_TEXTS, _MOST_TEXT = 15, 700
"""Most texts of each kind, and characters of one, each at most six bytes in JSON: an answer has room for them."""

_ABSENT = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN})
"""Errors of connecting to a shipper that does not listen yet, or that many others are connecting to."""


@dataclass(frozen=True)
class FlushRequest:
    """Deliver everything that is in the spool now.

    Attributes:
        timeout: How many seconds the requesting process waits.
        until_writers_end: Wait until every other process that writes to this spool has ended.
        namespace: Where the ``pid`` of the requesting process counts, as in the names of processes.
    """

    timeout: float
    until_writers_end: bool
    pid: int
    namespace: str = UNKNOWN

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, packet: bytes) -> FlushRequest:
        """Raises ValueError, TypeError or KeyError for a malformed request."""
        found = json.loads(packet)
        return cls(
            float(found["timeout"]), bool(found["until_writers_end"]), int(found["pid"]), str(found["namespace"])
        )


@dataclass(frozen=True)
class FlushResult:
    """The result of a flush.

    Attributes:
        done: Everything that was in the spool has been delivered to every sink.
        problems: Conditions that prevent delivery, and losses, as sentences for the user.
        waiting: How many spans are still to be delivered, and where they wait, as sentences.
        running: Whether a shipper is running. If not, start one and flush again.
        written: How many spans the shippers of this spool have written to local files so far; None if unknown.
    """

    done: bool
    problems: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    running: bool = True
    written: int | None = field(default=None, compare=False)

    def encode(self) -> bytes:
        """A packet, in which long texts are cut, and the last of many left out."""
        texts = {
            name: [text[:_MOST_TEXT] for text in getattr(self, name)[:_MOST_TEXTS]] for name in ("problems", "waiting")
        }
        return json.dumps({**asdict(self), **texts}, ensure_ascii=False).encode(errors="replace")

    @classmethod
    def decode(cls, packet: bytes) -> FlushResult:
        return cls(**json.loads(packet))


def flush(spool_dir: str, timeout: float, *, until_writers_end: bool = False) -> FlushResult:
    """Have everything that is in the spool now delivered, waiting at most ``timeout`` seconds. Never raises.

    With ``until_writers_end``, it is done only once every other process that writes to this spool has ended, and the
    spans that this interrupted have been closed and delivered: for a driver whose workers are just being killed.
    """
    deadline = monotonic() + timeout
    try:
        folder = open_folder(spool_dir, make=False)
        try:
            return _ask(spool_dir, inside(folder), deadline, until_writers_end=until_writers_end)
        finally:
            os.close(folder)
    except OSError as error:
        return FlushResult(False, [f"the spool {spool_dir!r} cannot be flushed: {error.strerror}"], running=False)


def _ask(spool_dir: str, within: str, deadline: float, *, until_writers_end: bool) -> FlushResult:
    """``within`` is the path for the files of the folder; ``spool_dir`` is only for messages. Raises OSError."""
    shipper = f"the shipper of the spool {spool_dir!r}"
    path = os.path.join(within, SOCKET)
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.setblocking(False)
            while not _connect(connection, path):
                if not is_shipper_running(within):
                    return FlushResult(False, [f"no shipper is running for the spool {spool_dir!r}"], running=False)
                if _is_empty_file(path):
                    problem = (
                        f"the volume of the spool {spool_dir!r} has no sockets, so the delivery of its spans is not "
                        "waited for; set RAY_TRACING_SPOOL_DIR to a folder on another one"
                    )
                    return FlushResult(False, [problem])
                if monotonic() >= deadline:
                    return FlushResult(False, [f"{shipper} is not up yet"])
                time.sleep(_PAUSE)
            left = max(0.0, deadline - monotonic())
            connection.settimeout(left + _LATER)
            try:
                # A shipper that was still starting has the time that is left.
                connection.send(FlushRequest(left, until_writers_end, os.getpid(), pid_namespace()).encode())
                answer = connection.recv(_LONGEST)
            except TimeoutError:
                return FlushResult(False, [f"{shipper} does not answer"])
            except ConnectionError:
                answer = b""
        if answer:
            return FlushResult.decode(answer)
        if monotonic() >= deadline:
            return FlushResult(False, [f"{shipper} has ended"], running=False)
        # No other one can be started before it has released its lock.
        time.sleep(_PAUSE)


def _connect(connection: socket.socket, path: str) -> bool:
    """False if no shipper listens there. Raises OSError."""
    try:
        # In place of the socket there may be a link, to that of somebody else.
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
        connection.connect(path)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise
    return True


def _is_empty_file(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and not found.st_size
