"""The claim of one shipper to its spool folder: the open folder, the lock in it, and the files that others look for."""

from __future__ import annotations

import os

from ray_tracing_hooks._private import inside, open_folder
from ray_tracing_hooks._ship.files import LOCK, is_file_at, take_lock
from ray_tracing_hooks._ship.inbox import Inbox
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems

_PROBLEM = "house"


class Claim:
    """The folder ``spool_dir`` by its open descriptor ``folder``, with the descriptor ``lock`` that holds its lock.

    What is at the path by now may be something else: it is only for messages.

    Attributes:
        within: A path for the files in the folder that nobody can lead elsewhere.
        is_restored: Some of our files had been removed and were made anew, since this was last set to False.
    """

    def __init__(
        self, spool_dir: str, folder: int, lock: int, plan: ShipPlan, inbox: Inbox, problems: Problems
    ) -> None:
        self.within = inside(folder)
        self.is_restored = False
        self._path = spool_dir
        self._folder = folder
        self._lock = lock
        self._plan = plan
        self._inbox = inbox
        self._problems = problems

    def keep(self, *, remake: bool) -> bool:
        """Make anew what somebody has removed, if ``remake``; False if another shipper has the folder now."""
        lock = os.path.join(self.within, LOCK)
        if is_file_at(self._lock, lock):
            if not self._inbox.is_in_place():
                self._restore_files()
            return True
        if not remake:
            return not os.path.lexists(lock)
        try:
            if self.is_folder_gone():
                folder = open_folder(self._path)
                # In place: all paths of files lead through its number.
                os.dup2(folder, self._folder, inheritable=False)
                os.close(folder)
            mine = take_lock(self.within)
        except OSError as error:
            self._problems.set(
                _PROBLEM, f"the spool folder {self._path!r} is gone, and cannot be made: {error.strerror}"
            )
            return True
        if mine is None:
            return False
        os.close(self._lock)
        self._lock = mine
        self._problems.say(f"somebody has removed the spool folder {self._path!r} or files in it; it was made anew")
        self._restore_files()
        return True

    def is_folder_gone(self) -> bool:
        """Whether the folder has been removed. One that was moved is not: its writers continue in it."""
        return not os.fstat(self._folder).st_nlink

    def is_folder_in_place(self) -> bool:
        """Whether the folder is what its path names now."""
        return is_file_at(self._folder, self._path)

    def free_bytes(self, otherwise: int) -> int:
        """How many bytes the disk can still take; ``otherwise`` if it does not say."""
        try:
            found = os.fstatvfs(self._folder)
        except OSError:
            return otherwise
        return found.f_bavail * found.f_frsize

    def release(self) -> None:
        """Remove the lock. Raises OSError."""
        lock = os.path.join(self.within, LOCK)
        if is_file_at(self._lock, lock):
            os.unlink(lock)

    def _restore_files(self) -> None:
        try:
            os.pwrite(self._lock, b"started", 0)
            self._plan.store(self.within)
            self._inbox.restore()
        except OSError as error:
            self._problems.set(_PROBLEM, f"cannot write to the spool folder {self._path!r}: {error.strerror}")
            return
        self._problems.clear(_PROBLEM)
        self.is_restored = True
