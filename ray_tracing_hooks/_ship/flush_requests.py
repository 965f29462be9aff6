"""The shipper's end of flush requests: the socket that it listens on, and when each request is answered."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from dataclasses import dataclass

from ray_tracing_hooks._safety.private import inside, open_file
from ray_tracing_hooks._safety.processes import UNKNOWN
from ray_tracing_hooks._ship.files import SOCKET
from ray_tracing_hooks._ship.flush import FlushRequest, FlushResult
from ray_tracing_hooks._ship.folder import FolderSnapshot
from ray_tracing_hooks._ship.log import Problems, logger
from ray_tracing_hooks._ship.stages import Stages
from ray_tracing_hooks._spool.layout import FORKED, parse_process_name

_NO_SOCKETS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors by which a volume reports that it does not support sockets, as SMB shares and mounted object stores do."""

_LONGEST = 1 << 12
"""Most bytes of a request."""

_COUNTING = 0.1
"""Seconds for counting what is waiting, if a request is answered because of its time-out."""

_TO_ANSWER = 0.5
"""Seconds before the end of its time-out at which a request is answered: this process has a low priority."""

_EXITING = 0.3
"""A process that released its lock this many seconds ago or less may be one that is just being killed."""


class Inbox:
    """Listens for requests in the open folder ``folder``, and wakes up the thread that waits for them.

    Raises OSError if the socket cannot be created for another reason than a volume without sockets.
    """

    def __init__(self, folder: int) -> None:
        self._path = os.path.join(inside(folder), SOCKET)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._connections: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.restore()

    def is_in_place(self) -> bool:
        """Whether requesters can find it."""
        try:
            return os.path.samestat(self._made, os.lstat(self._path))
        except OSError:
            return False

    def restore(self) -> None:
        """Create it again after it has been removed. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        if self._listener is not None:
            self._listener.close()
        self._listener = listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.setblocking(False)
            listener.bind(self._path)
            os.chmod(self._path, 0o600)
            listener.listen()
        except OSError as error:
            listener.close()
            self._listener = None
            if error.errno not in _NO_SOCKETS:
                raise
            os.close(open_file(self._path, os.O_WRONLY | os.O_CREAT))
        self._made = os.lstat(self._path)

    def wait(self, seconds: float) -> None:
        """Wait for a request, a call of :meth:`wake_up`, or the time-out."""
        poll = select.poll()  # `select` takes no descriptor above 1023
        for each in (self._wake, self._listener, *self._connections):
            if each is not None:
                poll.register(each, select.POLLIN)
        poll.poll(seconds * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def wake_up(self) -> None:
        """End a :meth:`wait`, from another thread or a signal handler."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake, 1)

    def take(self) -> list[tuple[socket.socket, bytes]]:
        """The requests since the last call, each with the connection for its answer."""
        with contextlib.suppress(OSError):
            while self._listener is not None:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                self._connections.append(connection)
        connections, self._connections = self._connections, []
        found = []
        for connection in connections:
            try:
                packet = connection.recv(_LONGEST)
            except BlockingIOError:
                self._connections.append(connection)
                continue
            except OSError:
                packet = b""
            if packet:
                found.append((connection, packet))
            else:
                connection.close()
        return found

    def remove(self) -> None:
        """Remove the socket, so that no further requests arrive."""
        if self.is_in_place():  # and not that of a shipper that has taken over
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def close(self) -> None:
        for each in (self._listener, *self._connections):
            if each is not None:
                each.close()
        os.close(self._wake)


@dataclass
class _Waiting:
    """A pending request. ``snapshot`` is the number of the snapshot that contains everything it asks for."""

    connection: socket.socket
    request: FlushRequest
    deadline: float
    snapshot: int | None = None


class FlushRequests:
    """The requests from ``inbox``, answered once ``stages`` are done. ``spool_dir`` is only for messages.

    Attributes:
        flush: Whether a request has arrived since this was last set to False: the next snapshot is delivered at once.
    """

    def __init__(self, spool_dir: str, inbox: Inbox, stages: Stages, problems: Problems) -> None:
        self.flush = False
        self._path = spool_dir
        self._inbox = inbox
        self._stages = stages
        self._problems = problems
        self._waiting: list[_Waiting] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def are_for_writers(self) -> bool:
        """Whether a request waits for processes to end."""
        return any(each.snapshot is None for each in self._waiting)

    @property
    def deadline(self) -> float:
        """The monotonic time at which the first pending request has to be answered."""
        return min(each.deadline for each in self._waiting)

    def take(self) -> None:
        for connection, packet in self._inbox.take():
            try:
                request = FlushRequest.decode(packet)
            except (ValueError, TypeError, KeyError) as error:
                logger.warning("a request is malformed: %r", error)
                connection.close()
                continue
            seconds = request.timeout - max(_COUNTING, min(_TO_ANSWER, request.timeout / 10))
            self._waiting.append(_Waiting(connection, request, time.monotonic() + max(0.0, seconds)))
            self.flush = True

    def answer(self, snapshot: FolderSnapshot, *, seen: bool) -> None:
        """Answer the requests whose spans are delivered, and those that time out.

        ``seen`` says that the ``snapshot`` is up to date.
        """
        for each in list(self._waiting):
            ended = not each.request.until_writers_end or not _is_writing(snapshot, each.request)
            if seen and each.snapshot is None and ended:
                each.snapshot = snapshot.number
                # Again, for spans that came after the request: they must not wait for a batch either.
                self.flush = True
            done = each.snapshot is not None and self._stages.is_done(each.snapshot)
            if done or time.monotonic() >= each.deadline:
                self._waiting.remove(each)
                waiting = [] if done else self._stages.waiting(snapshot, self._path, time.monotonic() + _COUNTING)
                self._send(each.connection, waiting, done=done)

    def answer_all(self) -> None:
        """Answer all pending requests, since everything is delivered."""
        for each in self._waiting:
            self._send(each.connection, [], done=True)

    def _send(self, connection: socket.socket, waiting: list[str], *, done: bool) -> None:
        with contextlib.suppress(OSError), connection:
            # If the requester is gone, the next answer contains the messages that are reported only once.
            if not _is_gone(connection):
                problems = self._problems.take_unreported()
                connection.send(FlushResult(done, problems, waiting, written=self._stages.written).encode())


def _is_gone(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _is_writing(snapshot: FolderSnapshot, request: FlushRequest) -> bool:
    """Whether a process other than the requester holds a segment, or closed one a moment ago and is still running.

    A process that was forked from one of Ray's does not count: it may run for any time.
    """
    now = time.monotonic()
    return any(
        process.alive or (process.ended_at is None and now - process.unlocked_at < _EXITING)
        for name, process in snapshot.processes.items()
        if not _is_of(request, name) and not name.endswith(FORKED)
    )


def _is_of(request: FlushRequest, name: str) -> bool:
    """Whether this is the name of the requesting process."""
    process = parse_process_name(name)
    if process is None or process.pid != request.pid:
        return False
    return process.namespace == request.namespace or UNKNOWN in {process.namespace, request.namespace}
