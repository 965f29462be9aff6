"""How a traced process notices that its settings are changed.

In the control folder of a node, which is private, :data:`CONTROL` is what is set now. Whoever changes it replaces the
file. A process has one thread, which looks once a second whether there is another file.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import BuiltinFunctionType

from ray_tracing_hooks._safety.guard import guarded
from ray_tracing_hooks._safety.private import open_file, open_folder

CONTROL = "control.json"

PAUSE = 1.0
"""Seconds between two looks at the file. A look costs a fraction of a millisecond."""


class Listener:
    """Calls ``on_change`` with the contents of the control file, if there is one, and whenever they change.

    It is called in a thread of its own, once at a time; changes that come meanwhile follow as one. Errors of it are
    reported. Nothing is called after :meth:`end`, except what has begun.

    Attributes:
        due: When ``on_change`` is called once more although nothing has changed, in seconds since the epoch, or None.
            Set it before :meth:`start`, or in ``on_change``.
    """

    due: float | None = None

    def __init__(self, folder: str, on_change: Callable[[bytes], None]) -> None:
        self.folder = folder
        self._on_change = on_change
        self._seen: object = None
        """Which file was read last."""
        self._known = b""
        """What was handed over last."""
        self._has_ended = False
        self._until_end = _thread.allocate_lock()

    def start(self) -> bool:
        """Begin to listen; False where threads are not the system's own, since the program would wait with ours."""
        # gevent and eventlet put greenlets in place of threads: a blocked one blocks them all.
        if not isinstance(_thread.start_new_thread, BuiltinFunctionType):
            return False
        self._until_end.acquire()
        # Not a Thread, which the program would see among its own, and the interpreter would know at its exit.
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no more threads
            return False
        return True

    def end(self) -> None:
        """Stop listening. Its thread ends soon."""
        if not self._has_ended:
            self._has_ended = True
            self._until_end.release()

    def _run(self) -> None:
        # A signal that the kernel delivers to this thread would not interrupt the main one.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            with suppress(OSError):  # it may pass, as where the process has no descriptors left
                self._look()
            if self._until_end.acquire(timeout=PAUSE):
                return

    def _look(self) -> None:
        try:
            status = os.stat(os.path.join(self.folder, CONTROL))
            there = status.st_ino, status.st_mtime_ns
        except FileNotFoundError:
            there = None
        due = self.due
        is_due = due is not None and due <= time.time()
        if there == self._seen and not is_due:
            return
        found = read(self.folder) if there is not None else b""
        if is_due:
            self.due = None
        elif found == self._known:
            self._seen = there
            return
        if self._hand_over(found):
            self._seen, self._known = there, found
        else:
            self.due = due

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


def read(folder: str) -> bytes:
    """The contents of the control file in this folder; empty without one. Raises OSError if the folder is not ours."""
    opened = open_folder(folder, make=False)
    try:
        with open(open_file(CONTROL, os.O_RDONLY, folder=opened), "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""
    finally:
        os.close(opened)
