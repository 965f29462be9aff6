"""The claim of one shipper to its spool folder: the open folder, its lock, and the files that other processes use."""

from __future__ import annotations

import os

from ray_tracing_hooks._safety.private import inside, open_folder
from ray_tracing_hooks._ship.files import LOCK, is_file_at, take_lock
from ray_tracing_hooks._ship.flush_requests import Inbox
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems

_PROBLEM = "folder"


class Claim:
    """The spool folder, given by its open descriptor ``folder`` and the descriptor ``lock`` that holds its lock.

    ``spool_dir`` is only for messages, since another folder may be at that path by now.

    Attributes:
        within: A path that always leads to the open folder.
        is_restored: Whether removed files have been created again since this was last set to False.
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
        """Create removed files again, if ``remake``; False if another shipper holds the folder now."""
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
                # In place, since all paths of files lead through this descriptor.
                os.dup2(folder, self._folder, inheritable=False)
                os.close(folder)
            mine = take_lock(self.within)
        except OSError as error:
            self._problems.set(
                _PROBLEM, f"the spool folder {self._path!r} is gone, and cannot be created again: {error.strerror}"
            )
            return True
        if mine is None:
            # That is so too where this shipper holds it, and only looking at the file failed.
            return is_file_at(self._lock, lock)
        os.close(self._lock)
        self._lock = mine
        self._problems.say(f"the spool folder {self._path!r} or files in it were removed; they have been created again")
        self._restore_files()
        return True

    def is_folder_gone(self) -> bool:
        """Whether the folder has been removed. A moved folder has not: its writers continue in it."""
        return not os.fstat(self._folder).st_nlink

    def is_folder_in_place(self) -> bool:
        """Whether the path still names this folder."""
        return is_file_at(self._folder, self._path)

    def free_bytes(self, otherwise: int) -> int:
        """Free bytes on the disk; ``otherwise`` if unknown."""
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
