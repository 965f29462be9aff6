"""The writing end of the spool: one file a process, one ``os.write`` a record."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
import time
import zlib
from collections.abc import Callable

from ray_tracing_hooks._private import open_file, open_folder
from ray_tracing_hooks._spool.layout import (
    DROPPED,
    FRAME,
    MAGIC,
    RESOURCE,
    SCOPE,
    SPAN,
    START,
    TWO_U16,
    U16,
    U64,
    segment_name,
)

DEFAULT_SEGMENT_BYTES = 16 * 1024 * 1024

WATCH_SECONDS = 10.0
"""How often a process that writes looks, at most, whether there is somebody who reads."""

_pack_frame = FRAME.pack
_crc32 = zlib.crc32
_monotonic = time.monotonic
_SPAN_KIND = _crc32(bytes([SPAN]))


class SpoolWriter:
    """Appends the records of this process to its own segment files in ``directory``.

    The first segment is made at the first record, so a process that records nothing leaves nothing. A forked child
    starts files of its own: its inherited descriptor is closed, so that the lock tells of the parent alone.

    ``watch`` is called every :data:`WATCH_SECONDS` at most, in a thread that has just written. It must not raise.
    """

    def __init__(
        self,
        directory: str,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        on_problem: Callable[[str], None] = lambda _message: None,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._on_problem = on_problem
        self._watch = watch
        self._watch_at = time.monotonic() + WATCH_SECONDS
        self._lock = threading.RLock()
        self._resources: list[bytes] = []
        self._scopes: list[tuple[int, bytes]] = []
        self._scope_ids: dict[tuple[bytes, bytes], int] = {}
        self._descriptor = -1
        self._written = 0
        self._sequence = 0
        self._process = ""
        self._dropped = 0
        self._refused_until = 0.0
        _writers.append(self)

    def scope(self, resource: bytes, scope: bytes) -> int:
        """The id under which spans of this encoded resource and scope are written."""
        key = (resource, scope)
        known = self._scope_ids.get(key)
        if known is not None:
            return known
        with self._lock:
            known = self._scope_ids.get(key)
            if known is None:
                definitions = b""
                if resource not in self._resources:
                    self._resources.append(resource)
                    definitions = self._define_resource(len(self._resources) - 1)
                self._scopes.append((self._resources.index(resource), scope))
                known = len(self._scopes) - 1
                definitions += self._define_scope(known)
                if self._descriptor >= 0:
                    self._append(definitions, 0)
                self._scope_ids[key] = known
        return known

    def span(self, prefix: bytes, span: bytes) -> None:
        """Write a span that has ended. ``prefix`` is the scope id as two little-endian bytes."""
        payload = prefix + span
        self._append(_pack_frame(len(payload), _crc32(payload, _SPAN_KIND), SPAN) + payload, 1)
        # Here, where no lock is held: who watches may log, and a log may record a span.
        if (now := _monotonic()) > self._watch_at:
            self._watch_at = now + WATCH_SECONDS
            self._watch()

    def start(self, prefix: bytes, span: bytes) -> None:
        """Write that a span has begun, so that it is known even if this process is killed before it ends."""
        payload = prefix + span
        self._append(_frame(START, payload), 0)

    @property
    def is_open(self) -> bool:
        """Whether there is a segment that this process is writing to."""
        return self._descriptor >= 0

    def close(self) -> None:
        """Let go of the current segment; the next record would start another one."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _append(self, record: bytes, spans: int) -> None:
        # One write on an O_APPEND descriptor is atomic among the threads of this process, so the lock is taken only
        # where the descriptor may change. `_written` may lose a racing update: it only decides when to roll over.
        descriptor = self._descriptor
        if descriptor < 0 or self._written > self._segment_bytes:
            descriptor = self._open()
        if descriptor < 0:
            self._dropped += spans
            return
        try:
            _write_whole(descriptor, record)
        except OSError as error:
            # A full disk may take part of a record. The part fails its checksum and is skipped by the reader.
            self._refused(error, spans)
            return
        self._written += len(record)
        if self._dropped:
            self._report_dropped()

    def _report_dropped(self) -> None:
        with self._lock:
            count, self._dropped = self._dropped, 0
            if count:
                self._append(_frame(DROPPED, U64.pack(count)), 0)

    def _refused(self, error: OSError, spans: int) -> None:
        self._dropped += spans
        self._on_problem(
            f"spans of this process are being dropped: writing to the spool {self.directory!r} failed: {error.strerror}"
        )

    def _open(self) -> int:
        with self._lock:
            if self._descriptor >= 0 and self._written <= self._segment_bytes:
                return self._descriptor
            if time.monotonic() < self._refused_until:
                return -1
            if not self._process:
                self._process = f"{os.getpid()}-{time.time_ns():x}-{secrets.token_hex(2)}"
            name = segment_name(self._process, self._sequence)
            try:
                # The shipper removes the folder when everything is delivered, and a last span may come after that.
                folder = open_folder(self.directory)
                try:
                    descriptor, size = self._make_segment(folder, name)
                finally:
                    os.close(folder)
            except OSError as error:
                # Try again later rather than at every span.
                self._refused_until = time.monotonic() + 1.0
                self._on_problem(
                    "spans of this process are being dropped: the spool file "
                    f"{os.path.join(self.directory, name)!r} cannot be made: {error.strerror}"
                )
                return -1
            self._written = size
            self._sequence += 1
            if self._descriptor >= 0:
                # In place, so that a thread which is about to write to the old number writes to the new segment, never
                # to a file that somebody else opened meanwhile. The old segment's lock goes only now that the new
                # one is held: there is no moment in which this process looks dead.
                os.dup2(descriptor, self._descriptor, inheritable=False)
                os.close(descriptor)
            else:
                self._descriptor = descriptor
            return self._descriptor

    def _make_segment(self, folder: int, name: str) -> tuple[int, int]:
        """A new segment, locked and with its definitions before anybody can see it: its descriptor and size."""
        head = MAGIC
        head += b"".join(self._define_resource(index) for index in range(len(self._resources)))
        head += b"".join(self._define_scope(index) for index in range(len(self._scopes)))
        unseen = name + ".new"
        descriptor = open_file(unseen, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, folder=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_whole(descriptor, head)
            os.rename(unseen, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.close(descriptor)
            os.unlink(unseen, dir_fd=folder)
            raise
        return descriptor, len(head)

    def _define_resource(self, index: int) -> bytes:
        return _frame(RESOURCE, U16.pack(index) + self._resources[index])

    def _define_scope(self, index: int) -> bytes:
        resource, scope = self._scopes[index]
        return _frame(SCOPE, TWO_U16.pack(index, resource) + scope)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._written = 0
        self._sequence = 0
        self._process = ""
        self._dropped = 0


def _write_whole(descriptor: int, data: bytes) -> None:
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _frame(kind: int, payload: bytes) -> bytes:
    return _pack_frame(len(payload), _crc32(payload, _crc32(bytes([kind]))), kind) + payload


_writers: list[SpoolWriter] = []


def _close_inherited() -> None:
    for writer in _writers:
        writer._after_fork_in_child()  # noqa: SLF001  one module, and a child must not keep its parent's lock


os.register_at_fork(after_in_child=_close_inherited)
