"""The quarantine of a spool, which keeps segments that could not be read, or not in full, as evidence."""

from __future__ import annotations

import contextlib
import os
from itertools import count

from ray_tracing_hooks._ship.folder import is_gone
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._spool.layout import ASIDE
from ray_tracing_hooks._spool.reader import is_refused


class Quarantine:
    """The folder ``aside`` of the spool ``within``; ``spool_dir`` is only for messages.

    If the files that were read in part exceed ``max_bytes``, the oldest of them are removed. Files of another version,
    and files that are not segments, are never removed.

    Attributes:
        size: Bytes of all files in it.
    """

    def __init__(self, within: str, spool_dir: str, max_bytes: int, problems: Problems) -> None:
        self._path = os.path.join(within, ASIDE)
        self._shown = os.path.join(spool_dir, ASIDE)
        self._max_bytes = max_bytes
        self._problems = problems
        self.size = sum(size for _, _, size in self._files())

    def keep(self, path: str) -> bool:
        """Move a segment here; False if that is not possible now."""
        try:
            os.makedirs(self._path, mode=0o700, exist_ok=True)
            name = os.path.basename(path)
            names = (name if not number else f"{number}-{name}" for number in count())
            os.rename(path, next(free for name in names if not os.path.lexists(free := os.path.join(self._path, name))))
        except FileNotFoundError:
            return is_gone(path)
        except OSError as error:
            self._problems.set("aside", f"cannot move {os.path.basename(path)!r} to {self._shown!r}: {error.strerror}")
            return False
        self._problems.clear("aside")
        self._problems.count(
            f"{{count}} files of the spool could not be read, or not in full, and are kept in {self._shown}", 1
        )
        self._make_room()
        return True

    def _files(self) -> list[tuple[int, str, int]]:
        found = []
        with contextlib.suppress(OSError), os.scandir(self._path) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, entry.path, status.st_size))
        return found

    def _make_room(self) -> None:
        files = sorted(self._files())
        self.size = sum(size for _, _, size in files)
        removed = 0
        for _, path, size in files:
            if self.size <= self._max_bytes:
                break
            with contextlib.suppress(OSError):
                if not is_refused(path):
                    os.unlink(path)
                    self.size -= size
                    removed += 1
        self._problems.count(
            f"{{count}} of the oldest damaged files in {self._shown} were removed, since together they reached "
            f"{self._max_bytes} bytes (a tenth of RAY_TRACING_SPOOL_MAX_BYTES)",
            removed,
        )
