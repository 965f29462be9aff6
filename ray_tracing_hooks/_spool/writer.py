"""The writing end of the spool: one file per process, one ``os.write`` per record."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import threading
import time
import zlib
from collections.abc import Callable
from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit
from weakref import WeakSet

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._formats.encoded_span.encode import SPAN_ID, shorten
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._safety.private import BeingOpened, apart, close_open, inside, open_file, open_folder
from ray_tracing_hooks._safety.processes import pid_namespace
from ray_tracing_hooks._spool.layout import (
    DROPPED,
    EXIT,
    FORKED,
    FRAME,
    LOG,
    MAGIC,
    MAX_PAYLOAD,
    RESOURCE,
    SCOPE,
    SPAN,
    START,
    SUFFIX,
    TEMPORARY,
    TWO_U16,
    U16,
    U64,
    segment_name,
)

DEFAULT_SEGMENT_BYTES = 16 * 1024 * 1024
_LEAST_SEGMENT_BYTES = 64 * 1024
_SEGMENTS = 64

_OPEN_SEGMENTS = 8
"""The open segments of all processes together may take at most this many times the segment size: only a closed segment
can be removed, and a node may have a thousand processes."""

_LOOK_SECONDS = 1.0
"""How often, at most, a writing process checks that its segment still exists and how many other processes write."""

_RETRY_SECONDS = 0.1
"""How long to wait after a failure to create a segment before the next attempt."""

LAST_WORD_SECONDS, _LAST_WORD_RETRY_SECONDS = 1.0, 0.02
"""How long, at most, an ending process waits for room to write how many spans a full disk did not take, and how often
it tries."""

_REPORT_SECONDS = 60.0
"""A disk that is full on and off is reported at most once in this many seconds."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_COPY_BYTES = 1024 * 1024

WATCH_SECONDS = 10.0
"""How often, at most, a writing process checks that a shipper is running."""

_LAST_BYTES = 2 * (MAX_PAYLOAD + 1)
"""Where a record is looked for that something may have interrupted: it may be large, and other threads may have written
since.
"""

_MOST_DEFINITION = MAX_PAYLOAD - TWO_U16.size
"""Most bytes of a resource or a scope."""

_MAX_START = 64 * 1024
"""Most bytes of a start record: it is only used if the span never ends."""

_OPENING = -2
"""In place of a descriptor: the interrupted code in this thread is just opening one."""

_MOST_SCOPES = 4096
"""The most scopes and resources of one process. Each segment defines all of them, and ids have 16 bits."""

_FULL = 1 << 62
"""More than any segment holds, so that the next record begins a new one."""

_write = os.write
_pack_frame = FRAME.pack
_crc32 = zlib.crc32
_SPAN_KIND = _crc32(bytes([SPAN]))
_START_KIND = _crc32(bytes([START]))


class _Definitions:
    """The resources and scopes of a process, by the ids that its records have in their place.

    ``of_child`` turns an inherited resource into that of a forked child.

    A signal handler that interrupts this may define the same scope, or another one: each step leaves all as it must be.
    """

    def __init__(self, of_child: Callable[[bytes], bytes]) -> None:
        self.is_of_child = False
        self._of_child = of_child
        self._ids = itertools.count()
        self.resources: dict[bytes, int] = {}
        self._scopes: dict[tuple[bytes, bytes], int] = {}

    @property
    def known(self) -> tuple[int, int]:
        """How many resources and scopes there are."""
        return len(self.resources), len(self._scopes)

    def add(self, key: tuple[bytes, bytes]) -> int:
        """The id of this resource and scope."""
        if key[0] not in self.resources:
            self.resources.setdefault(key[0], next(self._ids))
        if key not in self._scopes:
            self._scopes.setdefault(key, next(self._ids))
        return self._scopes[key]

    def of(self, key: tuple[bytes, bytes]) -> bytes:
        """The records that define this resource and scope."""
        return self._resource(key[0]) + self._scope(key)

    def since(self, known: tuple[int, int]) -> list[bytes]:
        """The records that define what has been added since :attr:`known` was this."""
        resources, scopes = list(self.resources)[known[0] :], list(self._scopes)[known[1] :]
        return [*map(self._resource, resources), *map(self._scope, scopes)]

    def _resource(self, resource: bytes) -> bytes:
        described = self._of_child(resource) if self.is_of_child else resource
        return frame(RESOURCE, U16.pack(self.resources[resource]) + described)

    def _scope(self, key: tuple[bytes, bytes]) -> bytes:
        return frame(SCOPE, TWO_U16.pack(self._scopes[key], self.resources[key[0]]) + key[1])


class SpoolWriter(_compiled.WriterBase):
    """Appends the records of this process to its own segment files in ``directory``.

    The first segment is created with the first record, so a process that records nothing leaves no file. A forked child
    writes its own files: it closes the inherited descriptor, so that the lock stands for the parent alone, and
    ``of_child`` turns each inherited resource into that of the child.

    Nothing is kept in memory: a span that the disk does not take is dropped and counted, and the count is written as
    soon as the disk takes something again. ``on_problem`` is called when spans begin to be dropped, at most once a
    minute. A segment that another process has removed is written again.

    The writer may be used from all threads, and reentrantly from a signal handler or a finalizer that interrupts a
    call. ``watch`` is called every :data:`WATCH_SECONDS` at most, in a thread that has just written. ``on_problem`` is
    called without any lock held. Neither must raise.
    """

    def __init__(
        self,
        directory: str,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        on_problem: Callable[[str], None] = lambda _message: None,
        watch: Callable[[], None] = lambda: None,
        of_child: Callable[[bytes], bytes] = lambda resource: resource,
    ) -> None:
        self.directory = directory
        self._most_bytes = self._segment_bytes = segment_bytes
        self._on_problem = on_problem
        self._watch = watch
        self._watch_at = monotonic() + WATCH_SECONDS
        self._has_exited = self._has_many_scopes = False
        self._lock = threading.RLock()
        self._definitions = _Definitions(of_child)
        self._scope_ids: dict[tuple[bytes, bytes], int] = {}
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        self._is_open = False
        self._written = _FULL
        self._sequence = self._current = 0
        self._process = ""
        self._look_at = self._share_at = 0.0
        self._refused_until = 0.0
        self._refusal = ""
        self._dropped = 0
        self._failing = False
        self._is_compiled = _compiled.use.is_on
        self._is_full = False
        self._may_wait = True
        self._episodes = 0
        self._silent_until = 0.0
        self._is_changing = self._is_writing_deferred = self._is_replacing = False
        self._deferred: list[tuple[bytes, int]] = []
        _writers.add(self)

    # Records.

    def scope(self, resource: bytes, scope: bytes) -> int:
        """The id under which spans of this encoded resource and scope are written."""
        if max(len(resource), len(scope)) > _MOST_DEFINITION:
            # A reader would take their records for damage.
            resource, scope = (part if len(part) <= _MOST_DEFINITION else b"" for part in (resource, scope))
        key = (resource, scope)
        known = self._scope_ids.get(key)
        if known is not None:
            return known
        is_known = not resource or resource in self._definitions.resources
        if (scope or not is_known) and sum(self._definitions.known) >= _MOST_SCOPES:
            self._report_scopes()
            return self.scope(resource if is_known else b"", b"")
        with self._lock:
            number = self._definitions.add(key)
            if self._is_open:
                try:
                    _write_whole(self._descriptor, self._definitions.of(key))
                except OSError as error:
                    if error.errno is None:
                        raise
                    # Spans of a scope that their segment does not define would be lost. The next one defines them all.
                    self._release()
            # Only now, since other threads use it from now on.
            return self._scope_ids.setdefault(key, number)

    def _report_scopes(self) -> None:
        if not self._has_many_scopes:
            self._has_many_scopes = True
            self._on_problem(
                f"this process has more than {_MOST_SCOPES:,} tracers of different names: spans of further ones are "
                "recorded without the name of their tracer; name tracers after libraries, not after requests"
            )

    def _span(self, prefix: bytes, span: bytes) -> None:
        """Write a span that has ended. ``prefix`` is the scope id as two little-endian bytes."""
        payload = prefix + span
        size = len(payload)
        if size > MAX_PAYLOAD:
            shortened = self._shortened(span)
            if shortened is None:
                return
            payload = prefix + shortened
            size = len(payload)
        self._append(_pack_frame(size, _crc32(payload, _SPAN_KIND), SPAN) + payload, 1)
        # Here, where no lock is held: `watch` may log, and logging may record a span.
        if (now := monotonic()) > self._look_at:
            self._look_around(now)

    def _start(self, prefix: bytes, span: bytes) -> None:
        """Write a start record, so that the span is known even if this process is killed before it ends."""
        payload = prefix + span
        size = len(payload)
        if size > _MAX_START:
            try:
                payload = prefix + shorten(span, _MAX_START)
            except FormatError:
                return  # it is reported when the span ends
            size = len(payload)
        self._append(_pack_frame(size, _crc32(payload, _START_KIND), START) + payload, 0)

    def finish(self, prefix: bytes, span: bytes) -> bool:
        """Write a span, unless :meth:`span` has written it before something interrupted that; whether it was missing.

        Only the file knows: a signal handler may raise right after the system call that has written the record.
        """
        head = bytes((SPAN,)) + prefix + span[: SPAN_ID.stop]
        if any(head in record for record, _ in self._deferred) or self._has_written(head):
            return False
        self._span(prefix, span)
        if not self._is_changing:
            self._write_deferred()  # which may have been interrupted too
        return True

    def _has_written(self, head: bytes) -> bool:
        """Whether one of the last records of the current segment has this beginning."""
        try:
            if not self._is_ours():
                return False
            segment = os.open(inside(self._descriptor), os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(segment).st_size
                last = min(size, _LAST_BYTES)
                return head in os.pread(segment, last, size - last)
            finally:
                os.close(segment)
        except OSError as error:
            if error.errno is None:
                raise
            return False

    def log(self, prefix: bytes, record: bytes) -> None:
        """Write a log record. ``prefix`` is the scope id as two little-endian bytes."""
        payload = prefix + record
        if len(payload) > MAX_PAYLOAD:
            self._drop(1, f"a log record of more than {(MAX_PAYLOAD + 1) >> 20} MiB was dropped")
            return
        self._append(frame(LOG, payload), 1)
        if (now := monotonic()) > self._look_at:
            self._look_around(now)

    def exit(self) -> None:
        """Write, once, that this process ends regularly: spans that are still open were not interrupted."""
        if not self._has_exited:
            self._has_exited = True
            self._append(frame(EXIT, b""), 0)

    def _shortened(self, span: bytes) -> bytes | None:
        try:
            shortened = shorten(span, MAX_PAYLOAD - U16.size)
        except FormatError:
            self._drop(1, f"a span of more than {(MAX_PAYLOAD + 1) >> 20} MiB was dropped, since it is malformed")
            return None
        self._on_problem(
            f"a span of {len(span) >> 20} MiB exceeds the limit of {(MAX_PAYLOAD + 1) >> 20} MiB: "
            "its largest attributes, events and links are left out and counted as dropped"
        )
        return shortened

    def _append(self, record: bytes, spans: int, *, tries: int = 8) -> None:
        # One write on an O_APPEND descriptor is atomic among the threads of this process, so the lock is taken only
        # where the descriptor may change. A lost update of `_written` is harmless: it only decides the roll-over.
        if self._written <= self._segment_bytes:
            descriptor = self._descriptor
        elif (descriptor := self._open()) < 0:
            if descriptor == _OPENING:
                self._deferred.append((record, spans))
            else:
                self._drop(spans, self._refusal)
            return
        try:
            written = _write(descriptor, record)
            if written != len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301  `_write_whole` would cost a call
        except OSError as error:
            if error.errno is None:
                raise
            self._failed(error, record, spans, tries=tries)
            return
        self._written += written
        if self._failing:
            self._recovered()

    def _write_deferred(self) -> None:
        """Write what came while the segment was being changed."""
        # Each may begin a segment, which comes here again: not one within the other, since there may be hundreds.
        while self._deferred and not self._is_writing_deferred:
            self._is_writing_deferred = True
            try:
                while self._deferred:
                    self._append(*self._deferred.pop(0))
            finally:
                self._is_writing_deferred = False

    # What the disk does not take.

    def _failed(self, error: OSError, record: bytes, spans: int, *, tries: int) -> None:
        # If it is open by now, another thread has begun the next segment meanwhile.
        if error.errno == errno.EBADF and (self._is_closed() or tries):
            self._append(record, spans, tries=max(0, tries - 1))
            return
        # A full disk may take part of a record. The part fails its checksum and is skipped by the reader.
        problem = f"writing to the spool {self.directory!r} failed: {error.strerror}"
        self._drop(spans, f"spans of this process are being dropped: {problem}")
        self._is_full = error.errno in _NO_ROOM
        if self._is_full:
            self._make_room()

    def _cut(self, record: bytes, spans: int) -> None:
        """What the compiled part leaves to Python when only a part of a record was written."""
        self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), record, spans, tries=0)

    def _make_room(self) -> None:
        """Close the segment when the disk is full, so that it can be removed once it is delivered."""
        with self._lock, contextlib.suppress(OSError):
            if self._is_open and _LEAST_SEGMENT_BYTES < self._written <= self._segment_bytes:
                self._release()

    def _drop(self, spans: int, problem: str) -> None:
        if not spans:
            return
        now = monotonic()
        with self._lock:
            self._dropped += spans
            must_report = not self._failing and now >= self._silent_until
            self._failing = True
            if must_report:
                self._silent_until = now + _REPORT_SECONDS
                self._episodes += 1
                if self._episodes > 1:
                    problem += f" (occurrence {self._episodes})"
        # Without the lock: handling the report may log, and a thread that logs may be about to write.
        if must_report:
            self._on_problem(problem)

    def _recovered(self) -> None:
        with self._lock:
            count, self._dropped, self._failing = self._dropped, 0, False
        if count:
            self._append(frame(DROPPED, U64.pack(count)), count)

    # The segment that is open.

    @property
    def is_open(self) -> bool:
        """Whether there is a segment that this process is writing to."""
        return self._is_open

    def _is_ours(self) -> bool:
        """Whether the descriptor still belongs to our file: the program may have closed it."""
        try:
            return self._descriptor >= 0 and _identity(self._descriptor) == self._identity
        except OSError as error:
            if error.errno is None:
                raise
            return False

    def _is_closed(self) -> bool:
        """Whether the segment has just been closed: by another thread, or by the program."""
        with self._lock:
            if self._is_open and not self._is_ours():
                self._forget()
            if not self._is_open:
                self._written = _FULL  # another thread may have written back an old value
            return not self._is_open

    def _open(self) -> int:
        """The descriptor to write to, of a new segment if one is due; negative if there is none."""
        with self._lock:
            if self._is_open and self._written <= self._segment_bytes:
                return self._descriptor
            if self._is_changing:
                return _OPENING  # a signal handler or a finalizer has interrupted the code below, in this thread
            if monotonic() >= self._refused_until:
                self._is_changing = True
                try:
                    self._begin_segment()
                except OSError as error:
                    if error.errno is None:
                        raise
                    # Try again later rather than at every span.
                    self._refused_until = monotonic() + _RETRY_SECONDS
                    self._is_full = error.errno in _NO_ROOM
                    self._refusal = (
                        f"spans of this process are being dropped: cannot create a file in the spool "
                        f"{self.directory!r}: {error.strerror}"
                    )
                finally:
                    self._is_changing = False
            # If no new segment can be created, continue with the current one.
            descriptor = self._descriptor if self._is_open else -1
        self._write_deferred()
        return descriptor

    def close(self, until: float = 0.0) -> None:
        """Close the current segment; a further record would begin another one.

        If the disk is too full to write the count of dropped spans, this waits for room until that value of
        ``time.monotonic()``. If that was in vain, later calls do not wait.
        """
        self._watch_at = 0.0  # what comes after a pause may find that the shipper has ended
        self._look_after_segment()
        if self._failing:
            self._recovered()
        while self._failing and self._is_full and self._may_wait and monotonic() < until:
            # Its delivery makes room.
            self._release()
            time.sleep(_LAST_WORD_RETRY_SECONDS)
            self._recovered()
        self._may_wait = not self._failing
        self._release()
        with self._lock:
            self._close_abandoned()

    def _release(self) -> None:
        with self._lock:
            if not self._is_open:
                return
            # A signal handler that interrupts this must not begin a segment, which would be released in its place.
            was_changing, self._is_changing = self._is_changing, True
            try:
                if not self._is_ours():
                    self._forget()
                else:
                    self._written, self._is_open = _FULL, False
                    # Keep the number, but make it refuse writes: a thread that is about to write must not hit a file of
                    # the program that has got the same number meanwhile.
                    nothing = _nothing()
                    if nothing < 0:
                        fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # no descriptor is left
                    else:
                        self._take_place(nothing)
                        self._identity = _identity(self._descriptor)
            finally:
                self._is_changing = was_changing
        if not was_changing:
            self._write_deferred()

    def _forget(self) -> None:
        """Begin another segment next, and leave the descriptor, which is not ours any more."""
        # In this order: a signal handler that interrupts it must not write to a segment that its scope is not in.
        self._written, self._is_open = _FULL, False
        self._descriptor = -1

    def __del__(self) -> None:
        # No reference is left through which it could be written to.
        with contextlib.suppress(Exception):  # during interpreter shutdown, modules may be gone
            if self._is_ours():
                os.close(self._descriptor)
            self._descriptor = -1
            self._close_abandoned()

    # The next segment.

    def _begin_segment(self) -> None:
        if not self._process:
            kind = FORKED if self._definitions.is_of_child else ""
            self._process = f"{os.getpid()}-{now_ns():x}-{secrets.token_hex(2)}-{pid_namespace()}{kind}"
        self._look_after_segment()
        self._close_abandoned()
        known = self._definitions.known
        with BeingOpened(self.directory):
            # Counted first: if something interrupts this, the file may have its name already, and a shipper that has
            # seen it would take another one of the same number for read.
            number = self._sequence
            self._sequence += 1
            try:
                self._replace(number)
            except OSError as error:
                if error.errno is not None:  # a signal handler may raise a TimeoutError
                    self._sequence = number
                raise
            self._current = number
            if (now := monotonic()) >= self._share_at:
                # In a large folder this takes milliseconds, and a busy process begins many segments a second.
                self._share_at = now + _LOOK_SECONDS
                self._segment_bytes = _fair_share(self.directory, self._most_bytes)
        # From here on :meth:`scope` writes what it defines. A signal handler may have defined something before.
        self._is_open = True
        try:
            for definition in self._definitions.since(known):
                _write_whole(self._descriptor, definition)
        except OSError:
            self._release()
            raise
        self._written = 0  # definitions do not count: they may be larger than a segment

    def _make_segment(self, sequence: int, source: int = -1) -> int:
        """Create a segment, locked and with its definitions before it becomes visible; returns its descriptor.

        With a ``source``, the segment begins with what is left to read there instead of definitions.
        """
        head = b"" if source >= 0 else MAGIC + b"".join(self._definitions.since((0, 0)))
        name = segment_name(self._process, sequence)
        temporary = name + TEMPORARY
        # The shipper removes the folder once everything is delivered, and a last span may come after that.
        folder = open_folder(self.directory)
        try:
            descriptor = open_file(temporary, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, folder=folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _write_whole(descriptor, head)
                if source >= 0:
                    _copy(source, descriptor)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.close(descriptor)
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        finally:
            os.close(folder)
        return descriptor

    def _replace(self, sequence: int, source: int = -1) -> None:
        """Make a segment, as :meth:`_make_segment` does, and write to it from now on."""
        self._is_replacing = True
        self._use(self._make_segment(sequence, source))
        self._is_replacing = False

    def _use(self, descriptor: int) -> None:
        is_ours = self._is_ours()
        self._identity = None  # for a signal handler that interrupts this
        if is_ours:
            # In place, so that a thread which is about to write to the old number writes to the new segment, never to a
            # file that the program has opened meanwhile. The lock on the old segment is released only now that the new
            # one is held, so this process never looks dead.
            self._take_place(descriptor)
        else:
            self._descriptor = apart(descriptor)
        self._identity = _identity(self._descriptor)

    def _take_place(self, descriptor: int) -> None:
        """Let our number stand for another open file, of which ``descriptor`` is closed. Raises OSError."""
        os.dup2(descriptor, self._descriptor, inheritable=False)
        os.close(descriptor)

    def _close_abandoned(self) -> None:
        """Close the segments that :meth:`_replace` has left open where something interrupted it.

        As long as one of them is locked, readers wait for its records, and do not read later segments.
        """
        if not self._is_replacing:
            return
        kept = self._descriptor if self._is_ours() else -1
        try:
            close_open(lambda path: os.path.basename(path).startswith(f"{self._process}."), but=kept)
        except OSError as error:
            if error.errno is None:
                raise
            return  # the next segment tries it again
        self._is_replacing = False

    # Others: what they do to the segment, and to this process.

    def _look_around(self, now: float) -> None:
        self._look_at = now + _LOOK_SECONDS
        self._look_after_segment()
        if now > self._watch_at:
            self._watch_at = now + WATCH_SECONDS
            self._watch()

    def _look_after_segment(self) -> None:
        """Write the segment again if it was removed, and close it if it was truncated."""
        with self._lock:
            if not self._is_open:
                return
            try:
                found = os.fstat(self._descriptor)
            except OSError as error:
                if error.errno is None:
                    raise
                # Its file system has gone, as when a volume is mounted again: the next record begins a segment.
                self._forget()
                return
            try:
                if self._identity is not None and self._identity != (found.st_dev, found.st_ino):
                    self._forget()
                elif not found.st_nlink:
                    self._restore()
                elif found.st_size < self._written <= self._segment_bytes:
                    self._release()  # its definitions are gone
            except OSError as error:
                if error.errno is None:
                    raise
                # retried later; until then the open file still takes records

    def _restore(self) -> None:
        """Recreate a removed segment under its name with its contents, so that readers can continue in it.

        Raises OSError.
        """
        source = os.open(inside(self._descriptor), os.O_RDONLY | os.O_CLOEXEC)
        try:
            with BeingOpened(self.directory):
                self._replace(self._current, source)
            # Copy what other threads wrote meanwhile.
            _copy(source, self._descriptor)
        finally:
            os.close(source)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._is_ours():
            os.close(self._descriptor)
        self._descriptor = -1
        self._close_abandoned()  # also those that another thread was making
        self._written, self._is_open = _FULL, False
        self._sequence = 0
        self._process = ""
        self._dropped = 0
        self._failing = False
        self._is_changing = self._is_writing_deferred = self._is_replacing = False
        self._deferred = []
        self._has_exited = False
        self._definitions.is_of_child = True
        # Check at its first span: the shipper may have ended with the parent.
        self._look_at = self._watch_at = 0.0


def segment_bytes(cap: int) -> int:
    """The segment size for a spool of at most ``cap`` bytes: only whole segments can be removed to enforce the cap."""
    return max(_LEAST_SEGMENT_BYTES, min(DEFAULT_SEGMENT_BYTES, cap // _SEGMENTS))


def _identity(descriptor: int) -> tuple[int, int]:
    """The device and inode, which identify an open file."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _nothing() -> int:
    """A descriptor that refuses writes, or -1 if this process has as many as it may."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno is None:
            raise
        return -1


def _fair_share(directory: str, most: int) -> int:
    """The segment size here, at most ``most``: the more processes write, the smaller their segments. A last record
    has room up to the size that files of this process may have (``ulimit -f``).
    """
    limit, _ = getrlimit(RLIMIT_FSIZE)
    if limit != RLIM_INFINITY:
        most = min(most, limit // 2)
    try:
        processes = {name.partition(".")[0] for name in os.listdir(directory) if name.endswith(SUFFIX)}
    except OSError as error:
        if error.errno is None:
            raise
        return most
    return min(most, max(_LEAST_SEGMENT_BYTES, _OPEN_SEGMENTS * most // max(1, len(processes))))


def _write_whole(descriptor: int, data: bytes) -> None:
    if _write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _copy(source: int, descriptor: int) -> None:
    """Copy what is left to read in ``source``. Raises OSError."""
    while data := os.read(source, _COPY_BYTES):
        _write_whole(descriptor, data)


def frame(kind: int, payload: bytes) -> bytes:
    return _pack_frame(len(payload), _crc32(payload, _crc32(bytes([kind]))), kind) + payload


_writers: WeakSet[SpoolWriter] = WeakSet()


def _close_inherited() -> None:
    for writer in list(_writers):
        writer._after_fork_in_child()  # noqa: SLF001  one module, and a child must not keep its parent's lock


os.register_at_fork(after_in_child=_close_inherited)
