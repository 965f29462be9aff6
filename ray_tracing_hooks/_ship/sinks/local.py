"""Local files: OTLP-JSON lines by the OTLP file exporter specification, which can be read while they grow.

Each file belongs to one shipper, which alone appends to it: a random part of the name is the shipper's. Its progress
contains the length of what is delivered. After a failure, or by the next shipper after a kill, the file is truncated to
that length, and files begun since are removed. Log records have their own subfolder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit
from typing import Any

from ray_tracing_hooks._formats.otlp import LOGS, TRACES
from ray_tracing_hooks._formats.otlp_json import FormatError, resource_json, scope_json
from ray_tracing_hooks._safety.private import open_file, open_folder, share
from ray_tracing_hooks._ship.files import PASSING, is_file_at
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Destination, Sink, SinkContext

LINE_SPANS = 512
LINE_BYTES = 512 * 1024
"""Limits per line: the Collector's receiver truncates lines at 1 MiB. A larger span gets its own line."""

_OURS = re.compile(r"(.+-[0-9a-f]{15})-(\d{4,})\.jsonl")
"""The names of these files, which no program gives to its own: ``train-00000-of-00010.jsonl``, for one, is not one."""

_FRAME_BYTES = 80
"""The bytes of a line besides resource, scope and spans."""

_NEXT_STEP = "set RAY_TRACING_LOCAL_DIR to a folder of your own"

_resource = lru_cache(maxsize=1024)(resource_json)
_scope = lru_cache(maxsize=1024)(scope_json)


def check_folder(path: str, group: int | None = None) -> str | None:
    """Create the folder, for this user and the ``group`` only, if it does not exist. Returns what prevents spans from
    being written to it, or None.

    A folder that exists stays as it is, since it may hold something else. Whatever others may put into it, files are
    made anew for this user alone, and only those are written to and removed.
    """
    try:
        if group is not None:
            with contextlib.suppress(DeliveryError):
                os.close(_open_folder(path, group=group))
                return None
        os.close(_open_folder(path))
    except DeliveryError as error:
        return str(error)
    return None


def _open_folder(path: str, what: str = "spans", group: int | None = None) -> int:
    """A descriptor of the folder. Raises DeliveryError."""
    try:
        return open_folder(path, given=True, group=group)
    except OSError as error:
        raise DeliveryError(f"cannot write {what} to {path!r}: {error.strerror}; {_NEXT_STEP}") from error


SIGNALS = frozenset({TRACES, LOGS})


def destination(plan: ShipPlan, _environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
    """The folder, which the check creates if it does not exist."""
    folder, group = plan.settings.local_dir, plan.settings.group
    if group is not None and not _is_ours(group):
        problem(
            f"RAY_TRACING_GROUP={group} is not a group of this user (uid {os.geteuid()}), so files stay private: "
            f"expected one of {', '.join(map(str, _groups()))}; in Kubernetes, set `fsGroup` of the pod to it"
        )
    return Destination(folder, (folder,), check=partial(check_folder, folder, group))


def _is_ours(group: int) -> bool:
    return os.geteuid() == 0 or group in _groups()


def _groups() -> list[int]:
    return sorted({os.getegid(), *os.getgroups()})


class LocalSink(Sink):
    """Writes ``<label>-<random>-<number>.jsonl`` in the plan's ``local_dir``, or in its folder ``logs`` or ``metrics``.

    The state of a checkpoint is the ``name`` of this sink's files up to the number, the ``number`` of the last file
    with delivered lines, its ``size`` at that time, and how many ``items`` were delivered in total.
    """

    def __init__(self, context: SinkContext) -> None:
        settings = context.plan.settings
        self._signal = signal = context.signal
        self._path = os.path.join(settings.local_dir, signal.name) if signal is not TRACES else settings.local_dir
        label = re.sub(r"[^\w.@+-]", "_", context.plan.label) or "spans"
        # By the time first, so that names sort by age.
        self._name = f"{label}-{time.time_ns() // 10**6:011x}{os.urandom(2).hex()}"
        self._max_bytes = settings.local_max_bytes
        # At least two files, so that the cap can be enforced by removing whole ones.
        self._file_max_bytes = min(settings.local_file_max_bytes, self._max_bytes // 2)
        limit, _ = getrlimit(RLIMIT_FSIZE)
        if limit != RLIM_INFINITY:
            self._file_max_bytes = min(self._file_max_bytes, limit)
        self._remember = context.remember
        self._count: Callable[[str, int], None] = context.count
        self._problem = context.problem
        self._group = settings.group
        self._lose = context.lose
        if signal is not TRACES:
            os.close(self._open_folder(settings.local_dir))  # checks its permissions too
        self._folder = self._open_folder(self._path)
        self._file = -1
        self._number = self._size = 0
        self._delivered = 0, 0  # the number and the size of the last file with delivered lines
        self._items = self._uncounted = 0
        self._failed = False
        try:
            self._clean_up_after(context.state)
        except OSError as error:
            self.close()
            raise DeliveryError(f"cannot write {self._signal.items} to {self._path!r}: {error.strerror}") from error

    def deliver(self, batches: Sequence[Batch]) -> None:
        self._uncounted = 0
        self.append(line for batch in batches for line in self._lines(batch))
        self._items += self._uncounted

    def append(self, lines: Iterable[bytes]) -> None:
        """Write all of these lines, each with its line feed, or none of them. Raises DeliveryError."""
        try:
            if self._failed:
                self._return()
            self._look_after_folder()
            self._failed = True
            for line in lines:
                self._write(line)
            if self._file >= 0 and not os.fstat(self._file).st_nlink:
                raise OSError(errno.ENOENT, "the file has been removed meanwhile")  # noqa: TRY301  as a failed write
            self._failed = False
        except OSError as error:
            with contextlib.suppress(OSError):
                self._return()
            raise DeliveryError(f"cannot write {self._signal.items} to {self._path!r}: {error.strerror}") from error
        rotated = self._number != self._delivered[0]
        self._delivered = self._number, self._size
        if rotated:
            # The lines are written: a failure here, which the next file tries again, must not have them written twice.
            with contextlib.suppress(OSError):
                self._keep_below_cap()

    def checkpoint(self) -> Mapping[str, Any]:
        number, size = self._delivered
        return {"name": self._name, "number": number, "size": size, "items": self._items}

    def close(self) -> None:
        self._close_file()
        os.close(self._folder)

    def _lines(self, batch: Batch) -> Iterator[bytes]:
        resource, scope = self._text(_resource, batch.resource), self._text(_scope, batch.scope)
        for spans in _lines(self._texts(batch.spans), len(resource) + len(scope) + _FRAME_BYTES):
            self._uncounted += len(spans)
            yield self._signal.line(resource, scope, spans).encode()

    def _text(self, write: Callable[[bytes], str], message: bytes) -> str:
        try:
            return write(message)
        except FormatError:
            self._count("{count} resources or scopes could not be decoded, and their spans have none", 1)
            return "{}"

    def _texts(self, spans: list[bytes]) -> list[str]:
        item_json = self._signal.item_json
        try:
            return [item_json(span) for span in spans]
        except FormatError:
            good = []
        for span in spans:
            with contextlib.suppress(FormatError):
                good.append(item_json(span))
        bad = len(spans) - len(good)
        self._lose(f"{{count}} {self._signal.items} could not be decoded and were skipped", bad)
        return good

    def _write(self, line: bytes) -> None:
        if self._file < 0 or (self._size and self._size + len(line) > self._file_max_bytes):
            self._next_file()
        while line:
            # One write takes the whole line, unless the disk is full; then the next one raises.
            written = os.write(self._file, line)
            self._size += written
            line = line[written:]

    def _next_file(self) -> None:
        self._close_file()
        if not self._number:
            # Before the first byte, so that the next shipper truncates these files after a kill.
            self._remember(self.checkpoint())
        while True:
            self._number += 1
            try:
                name = self._file_name(self._number)
                file = open_file(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, folder=self._folder)
                break
            except FileExistsError:
                continue
        # Other shippers that share the folder do not remove a locked file to enforce their cap.
        _lock(file)
        if self._group is not None:
            with contextlib.suppress(OSError):  # the folder could be given to the group; a file that cannot is private
                share(file, self._group)
        self._file, self._size = file, 0

    def _file_name(self, number: int) -> str:
        return f"{self._name}-{number:04d}.jsonl"

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _return(self) -> None:
        """Undo everything since the last delivery. Raises OSError."""
        number, size = self._delivered
        if self._file >= 0 and self._number == number and size:
            os.ftruncate(self._file, size)
            self._size = size
        else:
            self._close_file()
            self._cut(self._name, number, size)
        self._failed = False

    def _clean_up_after(self, state: Mapping[str, Any]) -> None:
        """Truncate the files of an earlier shipper to what it has delivered. Raises OSError."""
        match state:
            case {"name": str() as name, "number": int() as number, "size": int() as size} if size >= 0:
                self._cut(name, number, size)
        if isinstance(items := state.get("items"), int):
            self._items = items

    def _cut(self, name: str, number: int, size: int) -> None:
        """Truncate the file with this number to ``size``, and remove those with higher numbers. Raises OSError."""
        for file_name in os.listdir(self._folder):
            if (found := _OURS.fullmatch(file_name)) is None or found[1] != name or int(found[2]) < number:
                continue
            try:
                # Open for writing: NFS requires that for an exclusive lock.
                file = open_file(file_name, os.O_RDWR, folder=self._folder)
            except OSError as error:
                if error.errno in PASSING:
                    raise  # it still exists, perhaps with a partial line that has to be removed
                continue
            try:
                if not _lock(file):
                    continue  # a shipper that has been replaced may not have noticed yet
                if not size or int(found[2]) > number:
                    os.unlink(file_name, dir_fd=self._folder)
                elif os.fstat(file).st_size > size:
                    os.ftruncate(file, size)
            finally:
                os.close(file)

    def _open_folder(self, path: str) -> int:
        """A descriptor of the folder, for the group too if it can be given to it. Raises DeliveryError."""
        if self._group is not None:
            try:
                return _open_folder(path, self._signal.items, self._group)
            except DeliveryError as error:
                folder = _open_folder(path, self._signal.items)  # raises if that was not because of the group
                reason = getattr(error.__cause__, "strerror", error)
                self._problem(f"files in {path!r} stay private, despite RAY_TRACING_GROUP: {reason}")
                self._group = None
                return folder
        return _open_folder(path, self._signal.items)

    def _look_after_folder(self) -> None:
        """Start a new file if the folder or the file has been removed."""
        moved = not is_file_at(self._folder, self._path)
        if moved:
            folder = self._open_folder(self._path)
            os.close(self._folder)
            self._folder = folder
        if moved or (self._file >= 0 and not os.fstat(self._file).st_nlink):
            self._close_file()
            self._delivered = self._number, 0
            self._items = 0

    def _keep_below_cap(self) -> None:
        """Remove the oldest files until the current one has room to grow to its full size."""
        files = []
        current = self._file_name(self._number)
        for name in os.listdir(self._folder):
            if not _OURS.fullmatch(name):
                continue
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                is_mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and name != current
                if is_mine and found.st_size:
                    files.append((found.st_mtime_ns, name, found.st_size))
        excess = sum(size for _, _, size in files) + self._file_max_bytes - self._max_bytes
        removed = 0
        for _, name, size in sorted(files):
            if excess <= 0:
                break
            if self._remove(name):
                excess -= size
                removed += 1
        self._count(
            f"{{count}} of the oldest files of {self._signal.items} in {self._path!r} were removed, since together "
            f"they reached {self._max_bytes} bytes (RAY_TRACING_LOCAL_MAX_BYTES)",
            removed,
        )

    def _remove(self, name: str) -> bool:
        """Remove a file unless a shipper is writing to it."""
        try:
            # Open for writing: NFS requires that for an exclusive lock.
            file = open_file(name, os.O_WRONLY, folder=self._folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=self._folder)
            finally:
                os.close(file)
        except OSError:
            return False
        return True


def make(context: SinkContext) -> LocalSink:
    return LocalSink(context)


def _lines(spans: list[str], frame: int) -> Iterator[list[str]]:
    """The spans in groups that each fit into a line with ``frame`` further bytes, and commas."""
    room = LINE_BYTES - LINE_SPANS - frame
    places = list(accumulate(map(len, spans), initial=0))
    begin = 0
    while begin < len(spans):
        fit = bisect_right(places, places[begin] + room, lo=begin + 1) - 1
        end = min(max(fit, begin + 1), begin + LINE_SPANS)
        yield spans[begin:end]
        begin = end


def _lock(file: int) -> bool:
    """Lock the file; False if another shipper holds its lock. True where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
