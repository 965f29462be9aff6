"""Snapshots of a spool folder: its segments, and which of their processes live, as does the raylet."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import stat
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from ray_tracing_hooks._safety.processes import UNKNOWN, pid_namespace, start_time
from ray_tracing_hooks._spool.layout import TEMPORARY, parse_process_name, parse_segment_name, segment_name
from ray_tracing_hooks._spool.reader import is_locked, segments

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that concern this machine, and not the file that could not be examined."""

_NO_SEGMENT = frozenset({errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM})
"""Errors that say that a file is none of this user's segments: it is not there, a link, or another user's."""

_SEEN_LATELY = 5.0
"""A process that was alive this many seconds ago is assumed to have died when it is first seen dead."""

_began: dict[str, int] = {}
"""When processes that were seen running had begun, in clock ticks since the boot of the machine, by their names."""


class Segment(NamedTuple):
    """One segment file. If ``complete``, its process will not write to it again, and ``size`` is final."""

    sequence: int
    path: str
    size: int
    mtime_ns: int
    complete: bool


class ProcessSnapshot(NamedTuple):
    """One process: its remaining segments from the oldest, whether it holds the lock of one, and its end.

    ``ended_at`` is in nanoseconds since the epoch. It is None for a process that lives, and for one that has closed its
    segments but is still running, as a driver does after ``ray.shutdown()``: it may still end its open spans. With an
    ``error``, one of its segments could not be examined: those from there on are missing, and its end is not known.
    """

    segments: list[Segment]
    alive: bool
    ended_at: int | None
    unlocked_at: float
    """Monotonic time when it was first seen without a lock."""
    error: OSError | None = None


class FolderSnapshot(NamedTuple):
    """A snapshot of the folder. Snapshots are numbered; a snapshot contains everything written before it began."""

    number: int
    processes: dict[str, ProcessSnapshot]

    @property
    def size(self) -> int:
        return sum(segment.size for process in self.processes.values() for segment in process.segments)


@dataclass
class _ProcessState:
    """The state of a process between two snapshots."""

    complete: dict[str, Segment] = field(default_factory=dict)
    alive_at: float | None = None
    unlocked_at: float | None = None
    newest_mtime_ns: int = 0
    ended_at: int | None = None


class Folder:
    """Takes snapshots of a spool folder, cheaply: a complete segment is not examined again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._number = 0
        self._states: dict[str, _ProcessState] = {}

    def snapshot(self, also: set[str]) -> FolderSnapshot:
        """A snapshot, which includes the processes ``also`` even if they have no segment left.

        Raises OSError if the folder cannot be read.
        """
        self._number += 1
        found = segments(self.path)
        self._states = {name: state for name, state in self._states.items() if name in found or name in also}
        return FolderSnapshot(
            self._number, {name: self._process(name, found.get(name, [])) for name in {*found, *also}}
        )

    def _process(self, name: str, files: list[tuple[int, str]]) -> ProcessSnapshot:
        state = self._states.setdefault(name, _ProcessState())
        seen: list[Segment] = []
        try:
            for sequence, path in files:
                if (segment := _segment(sequence, path, state)) is not None:
                    seen.append(segment)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return ProcessSnapshot(seen, alive=False, ended_at=None, unlocked_at=time.monotonic(), error=error)
        state.complete = {segment.path: segment for segment in seen if segment.complete}
        if seen:
            state.newest_mtime_ns = max(state.newest_mtime_ns, seen[-1].mtime_ns)
        alive = any(not segment.complete for segment in seen) or (bool(seen) and self._has_moved_on(name, seen[-1]))
        now = time.monotonic()
        if alive:
            if state.alive_at is None:
                is_running(name)  # so that it is recognized by its beginning from now on
            state.alive_at, state.unlocked_at, state.ended_at = now, None, None
            return ProcessSnapshot(seen, alive=True, ended_at=None, unlocked_at=0.0)
        state.unlocked_at = state.unlocked_at or now
        if state.ended_at is None and not is_running(name):
            lately = state.alive_at is not None and now - state.alive_at < _SEEN_LATELY
            state.ended_at = time.time_ns() if lately or not state.newest_mtime_ns else state.newest_mtime_ns
        return ProcessSnapshot(seen, alive=False, ended_at=state.ended_at, unlocked_at=state.unlocked_at)

    def _has_moved_on(self, name: str, last: Segment) -> bool:
        # A process locks its next segment before it closes the last one. If that happened between listing the folder
        # and checking the lock, the next segment exists by now.
        return os.path.lexists(os.path.join(self.path, segment_name(name, last.sequence + 1)))


def _segment(sequence: int, path: str, state: _ProcessState) -> Segment | None:
    """The segment, or None if there is no such file. Raises OSError where that cannot be found out."""
    known = state.complete.get(path)
    if known is not None:
        return known
    found = examine(path)
    if found is None:
        return None
    status, locked = found
    return Segment(sequence, path, status.st_size, status.st_mtime_ns, complete=not locked)


def examine(path: str) -> tuple[os.stat_result, bool] | None:
    """The status of a segment, and whether its process holds its lock; None if there is no file that can be one.

    Raises OSError where that cannot be found out.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        locked = is_locked(path)
        # If it is not locked, its size is final only now.
        return status if locked else os.lstat(path), locked
    except OSError as error:
        if error.errno in _NO_SEGMENT:
            return None
        error.filename = path  # that of a lock has none
        raise


def is_gone(path: str) -> bool:
    """Whether there is no such file. False where that cannot be found out."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


_namespace = functools.cache(pid_namespace)


def is_running(name: str) -> bool:
    """Whether the process that a segment is named after is running, with or without a lock.

    A process with that pid that began after it was named is a different one. So is one that began at another time than
    the process that an earlier call has seen running: this holds whatever happens to the clock. Of processes in another
    namespace of process ids, only their locks are known: they count as not running here.
    """
    process = parse_process_name(name)
    if process is None or process.namespace not in {UNKNOWN, _namespace()}:
        return False
    began = start_time(process.pid)
    if began is None:
        _began.pop(name, None)
        return False
    if name in _began:
        return _began.get(name) == began
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
    if age <= (time.time_ns() - process.named_at) / 1e9 - 1.0:
        return False
    _began[name] = began
    return True


def remove_abandoned(folder: str) -> None:
    """Remove segments that a process was creating when it was killed. Nothing was written to them but definitions."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(TEMPORARY) and _is_abandoned(path := os.path.join(folder, name)):
                os.unlink(path)


def _is_abandoned(path: str) -> bool:
    parsed = parse_segment_name(os.path.basename(path).removesuffix(TEMPORARY))
    if parsed is None or parse_process_name(parsed[0]) is None or is_running(parsed[0]):
        return False
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and not is_locked(path)
    except OSError:
        return False


_ASK_SECONDS = 1.0
"""Seconds between two checks."""


class Raylet:
    """The raylet that listens on the unix socket ``path``; None if there is no raylet."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._asked = 0.0
        self._is_gone = path is None

    @property
    def is_expected(self) -> bool:
        """Whether there was a raylet to begin with."""
        return self._path is not None

    def is_gone(self) -> bool:
        now = time.monotonic()
        if self._path is not None and not self._is_gone and now - self._asked >= _ASK_SECONDS:
            self._asked = now
            self._is_gone = is_deserted(self._path)
        return self._is_gone


def is_deserted(path: str) -> bool:
    """Whether no process listens on this unix socket any more; False in case of doubt."""
    if _is_listed(path):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            connection.connect(path)
    except OSError as error:
        return error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}
    return False


def _is_listed(path: str) -> bool:
    """Whether the kernel lists a listener at this path in our network namespace.

    A connection attempt would show it too, but the raylet logs each one.
    """
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:
        wanted = os.fsencode(path)
        for line in file:
            # Num RefCount Protocol Flags Type St Inode Path; the flag 0x10000 marks a listener.
            parts = line.rstrip(b"\n").split(maxsplit=7)
            if parts[-1] == wanted and int(parts[3], 16) & 0x10000:
                return True
    return False
