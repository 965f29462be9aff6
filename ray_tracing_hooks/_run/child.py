"""Runs a program as a child process, as transparently as if it ran without a parent."""

from __future__ import annotations

import os
import resource
import signal
import sys
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

_OF_TERMINAL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
_SI_KERNEL = 0x80
"""The ``si_code`` of a signal that no process has sent. A terminal's go to the whole process group."""


def run(command: list[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end, with this process's files and in its process group; returns its exit code.

    Negative for the signal that ended it, as in :mod:`subprocess`. A signal that this process receives meanwhile is
    forwarded to the program, unless a terminal has sent it (Ctrl-C), which sends it to the program too. Raises OSError
    if the program cannot start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
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
            received = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
            number = received.si_signo
            if number == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)
            elif received.si_code != _SI_KERNEL or number not in _OF_TERMINAL:
                os.kill(child, number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
