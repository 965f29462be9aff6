"""How a traced process notices that its settings are changed, at no cost while they are not.

In the control folder of a node, which is private, :data:`CONTROL` is what is set now, and :data:`CHANGED` is a FIFO.
A process has one thread that opens the FIFO for reading, reads the file, and then waits in ``poll`` until a writer has
come and gone since it has opened the FIFO. So no change is missed between reading and waiting, also by a process that
was stopped meanwhile. The thread does not run until then. Nothing is ever written to the FIFO.
"""

from __future__ import annotations

import _thread
import errno
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from select import POLLIN, poll
from types import BuiltinFunctionType

from ray_tracing_hooks._safety.guard import guarded
from ray_tracing_hooks._safety.private import apart, open_fifo, open_file, open_folder

CONTROL = "control.json"
CHANGED = "changed"

MOST_BYTES = 256 << 10
"""A larger file is not read."""

_LONGEST = 5.0
"""Seconds until the next attempt where the process has no descriptors or threads left, or the disk is full or fails."""

_RENEWAL = 3600.0
"""Seconds after which the FIFO is opened again, and made if it is gone: machines remove what nobody has used for days
from /tmp.
"""

_LAST = 1.0
"""Seconds that ending waits for the thread."""

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
"""Errors of a process or a disk that pass."""


class Listener:
    """Calls ``on_change`` with the contents of the control file, if it has any, and whenever they change.

    It is called in a thread of its own, once at a time; changes that come meanwhile follow as one. Errors of it are
    reported. Nothing is called after :meth:`end`, except what has begun.

    Attributes:
        due: When ``on_change`` is called once more although nothing has changed, in seconds since the epoch, or None.
            Set it before :meth:`start`, or in ``on_change``.
    """

    due: float | None = None

    def __init__(self, folder: str, on_change: Callable[[bytes], None]) -> None:
        self.folder = folder
        self._known = b""
        self._on_change = on_change
        self._has_ended = False
        self._runs = _thread.allocate_lock()

    def start(self) -> bool:
        """Begin to listen; False where threads are not the system's own, since the program would wait with ours."""
        # gevent and eventlet put greenlets in place of threads: a blocked one blocks them all.
        if not isinstance(_thread.start_new_thread, BuiltinFunctionType):
            return False
        # Not a Thread, which the program would see among its own, and the interpreter would know at its exit.
        self._runs.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no more threads
            self._runs.release()
            return False
        return True

    def end(self, *, wakes: bool) -> None:
        """Stop listening. With ``wakes`` its thread ends now, and has its file closed on return unless that takes more
        than a second; otherwise it ends when something changes.

        That wakes the other processes of the node too, which only read a small file.
        """
        self._has_ended = True
        if wakes:
            wake(self.folder)
            if self._runs.acquire(timeout=_LAST):
                self._runs.release()

    def _run(self) -> None:
        # A signal that the kernel delivers to this thread would not interrupt the main one.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._follow()
        finally:
            self._runs.release()

    def _follow(self) -> None:
        while not self._has_ended:
            try:
                self._make()
                self._listen()
            except OSError as error:
                if error.errno in _PASSING:
                    time.sleep(_LONGEST)
                    continue
                if not isinstance(error, FileNotFoundError):
                    return
            # If only the FIFO was removed, it is made again.
            if not os.path.isdir(self.folder):
                return  # with it the session is gone

    def _listen(self) -> None:
        path = os.path.join(self.folder, CHANGED)
        while not self._has_ended:
            fifo = apart(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
            opened = os.fstat(fifo)
            try:
                found = read(self.folder)
                if self._has_ended:  # since it was looked at above, and nobody waited here to be woken
                    return
                due = self.due
                # Looked at once an hour, since the clock may be set.
                left = _RENEWAL if due is None else min(_RENEWAL, due - time.time())
                if left > 0 and (not found or found == self._known):
                    changes = poll()
                    changes.register(fifo, POLLIN)
                    if not changes.poll(left * 1000):
                        return
                    continue
            finally:
                _close(fifo, opened)
            self._known = found
            if left <= 0:
                self.due = None
            if not self._hand_over(found):
                self._known, self.due = b"", due
                time.sleep(_LONGEST)

    def _make(self) -> None:
        # Its parent is there, unless the session has been removed meanwhile.
        os.close(open_folder(os.path.dirname(self.folder), make=False))
        folder = open_folder(self.folder)
        try:
            make_fifo(folder)
        finally:
            os.close(folder)

    def _hand_over(self, found: bytes) -> bool:
        """Call ``on_change`` in a thread that code such as ``logging`` may ask for; False if none can be started, since
        the program has too many, or is ending.
        """
        done = _thread.allocate_lock()
        done.acquire()

        def call() -> None:
            try:
                with guarded("changing the settings of tracing"):
                    if not self._has_ended:
                        self._on_change(found)
            finally:
                done.release()

        try:
            threading.Thread(target=call, name="ray_tracing_hooks-settings", daemon=True).start()
        except RuntimeError:
            return False
        done.acquire()
        return True


def _close(fifo: int, opened: os.stat_result) -> None:
    """Close it, unless the program has done so first, as code for daemons closes whatever it does not know: by now the
    number may be that of a file of the program.
    """
    with suppress(OSError):
        if os.path.samestat(os.fstat(fifo), opened):
            os.close(fifo)


def read(folder: str) -> bytes:
    """The contents of the control file in this folder; empty without one. Raises OSError if the folder is not ours."""
    opened = open_folder(folder, make=False)
    try:
        try:
            file = open_file(CONTROL, os.O_RDONLY, folder=opened)
        except FileNotFoundError:
            return b""
        with open(file, "rb") as stream:
            found = stream.read(MOST_BYTES + 1)
            return found if len(found) <= MOST_BYTES else b""
    finally:
        os.close(opened)


def make_fifo(folder: int) -> None:
    """Create the FIFO in this open folder, unless it is there. Raises OSError."""
    with suppress(FileExistsError):
        os.mkfifo(CHANGED, 0o600, dir_fd=folder)
    if not stat.S_ISFIFO(os.stat(CHANGED, dir_fd=folder, follow_symlinks=False).st_mode):
        raise FileExistsError(f"{CHANGED} is not a FIFO")


def wake(folder: str) -> None:
    """Wake all processes that listen at this folder. Never raises."""
    with suppress(OSError):
        os.close(open_fifo(os.path.join(folder, CHANGED)))
