"""Runs a program as a child process, as transparently as if it ran without a parent."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

_PASSED_ON = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGWINCH,
    }
)
"""Signals that are meant for the program, whichever of the two processes receives them."""

_WITNESS_SECONDS = 0.25
"""How long to wait for the witness to receive a signal that was sent to the whole process group."""


def run(command: list[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end, with this process's files and in its process group; returns its exit code.

    Negative for the signal that ended it, as in :mod:`subprocess`. A signal that this process receives meanwhile is
    forwarded to the program, unless the program has received it too: Ctrl-C in a terminal goes to all processes of the
    group, and so do signals from ``timeout`` and a shell's ``kill %1``. Raises OSError if the program cannot start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        witness = _Witness(before)
        try:
            # Not subprocess: it closes further files that the shell has opened for the program.
            child = os.posix_spawn(
                command[0],
                command,
                environ,
                setsigmask=before,
                # Python ignores them, and the program would inherit that.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
            # Our parent may have set it to be ignored, and then the end of the child would not be signalled.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            while True:
                number = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD}).si_signo
                if number == signal.SIGCHLD:
                    ended, status = os.waitpid(child, os.WNOHANG)
                    if ended:
                        return os.waitstatus_to_exitcode(status)
                else:
                    must_forward = not witness.has_received(number)
                    # `timeout` signals the process and then the group; the kernel merges pending signals.
                    signal.sigtimedwait({number}, 0)
                    if must_forward:
                        os.kill(child, number)
        finally:
            witness.end()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Witness:
    """A process that does nothing but note which signals the whole process group receives.

    A signal tells its sender (``si_pid``), but not whether it was sent to one process or to the group.
    """

    def __init__(self, mask: set[signal.Signals | int]) -> None:
        self._received, receive = os.pipe()
        os.set_blocking(receive, False)
        alive, self._alive = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            with suppress(BaseException):
                _witness(receive, alive, self._alive, mask)
            os._exit(0)
        os.close(receive)
        os.close(alive)
        self._pending: set[int] = set()

    def has_received(self, number: int) -> bool:
        """Whether it has received this signal since the last call."""
        until = time.monotonic() + _WITNESS_SECONDS
        while number not in self._pending:
            ready, _, _ = select.select([self._received], [], [], max(0.0, until - time.monotonic()))
            if not ready or not (received := os.read(self._received, 4096)):
                return False  # nothing in this time, or the witness has died
            self._pending.update(received)
        self._pending.remove(number)
        return True

    def end(self) -> None:
        os.close(self._alive)
        os.close(self._received)
        os.waitpid(self._pid, 0)


def _witness(receive: int, alive: int, others: int, mask: set[signal.Signals | int]) -> None:
    os.close(others)
    # A reader of the program's output must not wait for this process to close it too.
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    signal.set_wakeup_fd(receive, warn_on_full_buffer=False)
    for number in _PASSED_ON:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask - _PASSED_ON)
    os.read(alive, 1)  # until the parent closes the other end, or dies


def end_as(code: int) -> NoReturn:
    """End this process as the program ended: with its exit code, or by the same signal."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        # Only the program's core dump is of interest.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError):  # SIGKILL has no other effect
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        code = 128 - code  # as a shell reports it, where the signal has no effect on this process
    sys.exit(code)
