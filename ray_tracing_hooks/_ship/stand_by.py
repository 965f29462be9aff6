"""A second shipper that takes over at once where Ray is going to kill the first.

A shipper belongs to no process that Ray ends: whoever starts it leaves it to init. But with
``RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper`` Ray takes init's place. What a worker leaves becomes a
child of that worker, which kills its children when it exits, and then one of the raylet, which kills those that it does
not know, every ten seconds. Grandchildren are spared until they are children. So a shipper below a raylet has a child
that waits for its lock, and that has one in turn as soon as it ships: as long as the raylet lives there is a shipper.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from ray_tracing_hooks._ship.problems import logger

if TYPE_CHECKING:
    import subprocess

STAND_BY = "--stand-by"
"""The option of a shipper that waits until there is no other."""

_RETRY_SECONDS = 5.0
"""How soon another one is started where one has ended for no reason."""


class StandBy:
    """The stand-by of this process, which ships ``spool_dir``."""

    def __init__(self, spool_dir: str) -> None:
        self._spool_dir = spool_dir
        self._parent = -1
        self._is_wanted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0

    def keep(self) -> None:
        """See that there is one where one is needed. To be called again and again: who adopts us may change."""
        parent = os.getppid()
        if parent != self._parent:
            if parent == os.getsid(0):
                return  # the shell that starts shippers: it is about to end
            self._parent, self._is_wanted = parent, _is_below_raylet(parent)
        if self._is_wanted and (self._process is None or self._process.poll() is not None):
            self._start()

    def end(self) -> None:
        """Nobody needs to take over."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        import subprocess  # noqa: PLC0415  rarely needed

        if time.monotonic() < self._start_at:
            return
        self._start_at = time.monotonic() + _RETRY_SECONDS
        command = [sys.executable, "-m", __package__, STAND_BY, self._spool_dir]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  the arguments are ours
        except OSError as error:
            logger.warning("no other shipper could be started to stand by: %s", error.strerror)


def _is_below_raylet(pid: int) -> bool:
    """Whether this process, or one that it descends from, is a raylet."""
    try:
        while pid:  # in a container process 1 may be one
            with open(f"/proc/{pid}/stat", "rb") as file:
                # pid (name) state ppid ...; a name may have blanks and parentheses in it.
                head, _, rest = file.read().rpartition(b")")
            if head.partition(b"(")[2] == b"raylet":
                return True
            pid = int(rest.split()[1])
    except OSError:
        pass  # it has just ended, and we have another parent by now
    return False
