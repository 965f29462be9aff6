"""A program in a process of its own, to which this one is as good as not there."""

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
"""Signals that are for the program, whichever of the two processes they are sent to."""

_TO_TELL = 0.25
"""Seconds in which a signal that was sent to the whole process group reaches the witness too."""


def run(command: list[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end, with this process's files and in its process group; its exit code.

    Negative for the signal that ended it, as in :mod:`subprocess`. A signal that this process gets meanwhile goes to
    the program, unless the program has got it already: Ctrl-C in a terminal goes to all processes of the group, and so
    does what ``timeout`` and a shell's ``kill %1`` send. Raises OSError where the program cannot be started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        witness = _Witness(before)
        try:
            # Not subprocess: it closes what the shell has opened for the program besides the first three files.
            child = os.posix_spawn(
                command[0],
                command,
                environ,
                setsigmask=before,
                # Python ignores them, and so would what it starts.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
            # Whoever has started us may ignore it, and then nobody would be told of the child's end.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            while True:
                number = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD}).si_signo
                if number == signal.SIGCHLD:
                    ended, status = os.waitpid(child, os.WNOHANG)
                    if ended:
                        return os.waitstatus_to_exitcode(status)
                else:
                    goes_on = not witness.has_got(number)
                    # `timeout` sends it to the process and then to the group: the kernel merges what is pending.
                    signal.sigtimedwait({number}, 0)
                    if goes_on:
                        os.kill(child, number)
        finally:
            witness.end()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Witness:
    """Knows which signals the whole process group has got: a process in it that does nothing else.

    Who has sent a signal is known (``si_pid``), and not to whom.
    """

    def __init__(self, mask: set[signal.Signals | int]) -> None:
        self._told, tell = os.pipe()
        os.set_blocking(tell, False)
        alive, self._alive = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            with suppress(BaseException):
                _witness(tell, alive, self._alive, mask)
            os._exit(0)
        os.close(tell)
        os.close(alive)
        self._got: set[int] = set()

    def has_got(self, number: int) -> bool:
        """Whether it has got this signal since it was last asked."""
        until = time.monotonic() + _TO_TELL
        while number not in self._got:
            ready, _, _ = select.select([self._told], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            self._got.update(os.read(self._told, 4096))
        self._got.remove(number)
        return True

    def end(self) -> None:
        os.close(self._alive)
        os.close(self._told)
        os.waitpid(self._pid, 0)


def _witness(tell: int, alive: int, others: int, mask: set[signal.Signals | int]) -> None:
    os.close(others)
    # Whoever reads what the program writes waits for its end, and not for that of this process.
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in _PASSED_ON:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask - _PASSED_ON)
    os.read(alive, 1)  # until the other end is closed, by whatever ends that process


def end_as(code: int) -> NoReturn:
    """End this process as a program has ended: with its exit code, or by the signal that ended it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        # The program's core is the one that is wanted.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError):  # SIGKILL has no other effect
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        code = 128 - code  # as a shell says it, where the signal has no effect on us
    sys.exit(code)
