"""A process with all that it has started: how much processor time they took, and holding them still. Linux alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

DRIVER, WORKERS, SHIPPER, RAY = "driver", "workers", "shipper", "Ray"
ROLES = (DRIVER, WORKERS, SHIPPER, RAY)
"""The last one is all that is left: the raylet, the head, the agents."""

QUIET_WINDOW, QUIET_SHARE = 0.02, 0.25
"""Who takes no more than this share of a processor for so many seconds has nothing left to do."""


class Family:
    """The descendants of the process ``ancestor``, which has called :func:`be_ancestor`: none of them gets away."""

    def __init__(self, ancestor: int) -> None:
        self._ancestor = ancestor
        self._times: dict[int, int] = {}
        self._roles: dict[int, str] = {}

    def members(self) -> list[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return [process.pid for process in psutil.Process(self._ancestor).children(recursive=True)]
        return []

    def processor_time(self) -> float:
        """Seconds of all that there are and were. What one took between the last look and its end is not in it."""
        return sum(self.processor_times().values())

    def processor_times(self) -> dict[str, float]:
        """The same by what they are, one of :data:`ROLES`."""
        for pid in self.members():
            with contextlib.suppress(OSError):
                self._times[pid] = processor_time_of(pid)
            if pid not in self._roles:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._roles[pid] = role_of(psutil.Process(pid).cmdline())
        found = dict.fromkeys(ROLES, 0.0)
        for pid, spent in self._times.items():
            found[self._roles.get(pid, RAY)] += spent / 1e9
        return found

    def pause(self) -> None:
        stopped: set[int] = set()
        # Again, until none has been started meanwhile.
        while found := set(self.members()) - stopped:
            _signal(found, signal.SIGSTOP)
            stopped |= found

    def go_on(self) -> None:
        _signal(self.members(), signal.SIGCONT)

    def wait_until_quiet(self, seconds: float) -> None:
        """Until they do next to nothing, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        before, since = self.processor_time(), time.monotonic()
        while since < deadline:
            time.sleep(QUIET_WINDOW)  # nothing tells that a process has become idle
            spent, now = self.processor_time(), time.monotonic()
            if spent - before < QUIET_SHARE * (now - since):
                return
            before, since = spent, now

    def end(self) -> None:
        while found := self.members():
            _signal(found, signal.SIGKILL)
            psutil.wait_procs([psutil.Process(pid) for pid in found if psutil.pid_exists(pid)], timeout=5)


def role_of(command: list[str]) -> str:
    """What the process of this command line is."""
    if "--driver" in command:
        return DRIVER
    if any(each.startswith("ray_tracing_hooks._ship") for each in command):
        return SHIPPER
    is_worker = any(
        each.startswith("ray::") or each.endswith(("default_worker.py", "setup_worker.py")) for each in command
    )
    return WORKERS if is_worker else RAY


def processor_time_of(pid: int) -> int:
    """Nanoseconds, by the clock of that process, see clock_getcpuclockid(3): the times in /proc count in hundredths."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def be_ancestor() -> None:
    """Become the parent of every descendant that loses its own; all of them end when this process's parent does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) or libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    signal.signal(signal.SIGTERM, _end_all)
    signal.signal(signal.SIGALRM, _end_all)


def reap(seconds: int) -> None:
    """Wait until every descendant has ended; those that have not after ``seconds`` are killed."""
    signal.alarm(seconds)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _end_all(number: int, _frame: object) -> None:
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if number == signal.SIGTERM:
        sys.exit(1)


def _signal(pids: list[int] | set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
