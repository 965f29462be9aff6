"""A second shipper that takes over at once where Ray may kill the first one.

A shipper is not a child of a process that Ray ends: it is reparented to init. But with
``RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper``, Ray takes the place of init. An orphan of a worker
becomes a child of that worker, which kills its children when it exits, and then a child of the raylet, which kills
unknown children every ten seconds. Grandchildren are spared until they become children. So a shipper below a raylet has
a child that waits for its lock, and that in turn has one as soon as it ships: as long as the raylet lives, there is a
shipper. Until the first one has a child, two shells above it are killed instead (see ``start``).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._processes import name_and_parent
from ray_tracing_hooks._ship.problems import logger

if TYPE_CHECKING:
    import subprocess

STAND_BY = "--stand-by"
"""The option of a shipper that waits until no other one is running."""

_RETRY_SECONDS = 5.0
"""How soon another one is started if one has ended unexpectedly."""


class StandBy:
    """The stand-by of this shipper of ``spool_dir``."""

    def __init__(self, spool_dir: str) -> None:
        self._spool_dir = spool_dir
        self._parent = -1
        self._is_wanted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0

    def keep(self) -> None:
        """Start one if it is needed and not running. Called repeatedly, since our parent may change."""
        parent = os.getppid()
        if parent != self._parent:
            if parent == os.getsid(0):
                return  # the shell that starts shippers is about to end
            is_wanted = _is_below_raylet(parent)
            if is_wanted is None:
                return
            self._parent, self._is_wanted = parent, is_wanted
        if self._is_wanted and (self._process is None or self._process.poll() is not None):
            self._start()

    def end(self) -> None:
        """End the stand-by."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        import subprocess  # noqa: PLC0415  rarely needed

        if monotonic() < self._start_at:
            return
        self._start_at = monotonic() + _RETRY_SECONDS
        command = [sys.executable, "-m", __package__, STAND_BY, self._spool_dir]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  the arguments are ours
        except OSError as error:
            logger.warning("a stand-by shipper could not be started: %s", error.strerror)


def _is_below_raylet(pid: int) -> bool | None:
    """Whether this process, or one of its ancestors, is a raylet; None if one of them has just ended."""
    try:
        while pid:  # in a container, process 1 may be a raylet
            name, pid = name_and_parent(pid)
            if name == b"raylet":
                return True
    except OSError:
        return None
    return False
