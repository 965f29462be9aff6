"""How a traced process notices that its settings are changed, at no cost while they are not.

In the control folder of a node, which is private, :data:`CONTROL` is what is set now, and :data:`CHANGED` is a FIFO.
A process has one thread that is blocked in opening the FIFO for reading. It has no open file, only the number for one,
which the kernel reserves before it waits. It does not run until somebody opens the FIFO for writing, which releases all
readers at once; each then reads the file. The writer keeps the FIFO open until the processes have answered. Meanwhile
opening it returns at once, so a process that was just reading the file reads it again, and misses no change.
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
from types import BuiltinFunctionType

from ray_tracing_hooks._guard import guarded
from ray_tracing_hooks._private import open_fifo, open_file, open_folder

CONTROL = "control.json"
CHANGED = "changed"

MOST_BYTES = 256 << 10
"""A larger file is not read."""

_SHORTEST, _LONGEST = 0.05, 5.0
"""Seconds between two looks while the FIFO is open for writing: the first, and at most."""

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of a process that pass."""

_STANDARD_STREAMS = (0, 1, 2)

_AT_ONCE = 0.01
"""Opening the FIFO that takes no longer than this many seconds has not waited for a writer."""


class Listener:
    """Calls ``on_change`` with the contents of the control file, if it has any, and whenever they change.

    It is called in a thread of its own, once at a time; changes that come meanwhile follow as one. Errors of it are
    reported. Nothing is called after :meth:`end`, except what has begun.
    """

    def __init__(self, folder: str, on_change: Callable[[bytes], None]) -> None:
        self.folder = folder
        self._known = b""
        self._on_change = on_change
        self._has_ended = False

    def start(self) -> bool:
        """Begin to listen; False where threads are not the system's own, since the program would wait with ours."""
        # gevent and eventlet put greenlets in place of threads: a blocked one blocks them all.
        if not isinstance(_thread.start_new_thread, BuiltinFunctionType):
            return False
        # Not a Thread, which the program would see among its own, and the interpreter would know at its exit.
        with suppress(RuntimeError):  # no more threads
            _thread.start_new_thread(self._run, ())
            return True
        return False

    def end(self, *, wakes: bool) -> None:
        """Stop listening. With ``wakes`` its thread ends now, otherwise when something changes.

        That wakes the other processes of the node too, which only read a small file.
        """
        self._has_ended = True
        if wakes:
            wake(self.folder)

    def _run(self) -> None:
        # A signal that the kernel delivers to this thread would not interrupt the main one.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._has_ended:
            try:
                self._make()
                self._listen()
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    return  # the folder is gone, and with it the session
                time.sleep(_LONGEST)

    def _listen(self) -> None:
        path = os.path.join(self.folder, CHANGED)
        pause = _SHORTEST
        while not self._has_ended:
            found = read(self.folder)
            if found and found != self._known:
                self._known, pause = found, _SHORTEST
                if not self._hand_over(found):
                    self._known = b""
                    time.sleep(_LONGEST)
                continue
            if not _has_standard_streams():
                time.sleep(_LONGEST)
                continue
            began = time.monotonic()
            _close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), path)
            if time.monotonic() - began > _AT_ONCE:
                pause = _SHORTEST
            else:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)

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


def _close(fifo: int, path: str) -> None:
    """Close it, unless the program has done so first, as code for daemons closes whatever it does not know: by now the
    number may be that of a file of the program.
    """
    with suppress(OSError):
        if os.path.samestat(os.fstat(fifo), os.stat(path, follow_symlinks=False)):
            os.close(fifo)


def _has_standard_streams() -> bool:
    """Whether the numbers of the standard streams are in use.

    If not, the FIFO would get such a number, and while opening it waits, the kernel lets nobody else put a file there:
    a program that has closed its standard input could not replace it with ``dup2``.
    """
    try:
        for number in _STANDARD_STREAMS:
            os.fstat(number)
    except OSError:
        return False
    return True


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
