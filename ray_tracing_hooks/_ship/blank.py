"""Frees the disk space of delivered records in a segment that is still being written to.

Such a segment cannot be removed. Its process appends at the end and does not read it; new readers start at the
beginning, and need the definitions and the starts of open spans. So these records stay where they are, and the records
between them are replaced by blank ones, which are holes in the file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ray_tracing_hooks._formats.encoded_span.encode import IDS
from ray_tracing_hooks._spool.layout import BLANK, DROPPED, FRAME, LOG, MAGIC, SPAN, START, in_payload
from ray_tracing_hooks._spool.reader import SegmentReader

_READ_BYTES = 1024 * 1024

_MOST = 512 * 1024
"""Most bytes of one blank record, since a reader reads a record at once."""

_PAGE = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_IDS = in_payload(IDS)

UNABLE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})
"""Errors of a file system, or of a sandbox, that does not support holes."""


def blank(path: str, end: int) -> None:
    """Free the disk space of this segment before ``end``, where a record begins: everything before was delivered.

    If this process is killed meanwhile, all records that a reader may need are intact. Raises OSError, with one of
    :data:`UNABLE` if the file system does not support holes.
    """
    kept = _kept(path, end)
    if kept is None:
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        before = os.fstat(descriptor)
        # From the front: the start of a span is blanked before its end, and never remains without it.
        for begin, stop in _between(kept, end):
            for first, last in _pieces(begin, stop):
                _blank_record(descriptor, first, last)
        # Restore mtime: a process that died unseen is assumed to have ended when it last wrote.
        os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))
    finally:
        os.close(descriptor)


def _kept(path: str, end: int) -> list[tuple[int, int]] | None:
    """The positions of the records to keep, in order; None for a segment that cannot be read in full."""
    kept: dict[Any, tuple[int, int]] = {}
    reader = SegmentReader(path)
    first = -1
    while reader.offset < end:
        before = reader.offset
        for kind, payload, offset in reader.read(limit=_READ_BYTES):
            if offset >= end:
                break
            first = offset if first < 0 else first
            place = offset, offset + FRAME.size + len(payload)
            if kind == START:
                kept[payload[_IDS]] = place
            elif kind == SPAN:
                kept.pop(payload[_IDS], None)
            elif kind not in {LOG, DROPPED}:
                kept[offset] = place
        if reader.damaged or reader.offset == before:
            return None
    return sorted(kept.values()) if first == len(MAGIC) else None


def _between(kept: list[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    position = len(MAGIC)
    for begin, stop in kept:
        if begin > position:
            yield position, begin
        position = stop
    if end > position:
        yield position, end


def _pieces(begin: int, stop: int) -> Iterator[tuple[int, int]]:
    """Positions for blank records from ``begin`` to ``stop``, each with room for at least its frame."""
    while begin < stop:
        last = min(stop, begin + _MOST)
        if 0 < stop - last < FRAME.size:
            last -= FRAME.size
        yield begin, last
        begin = last


def _blank_record(descriptor: int, begin: int, stop: int) -> None:
    length = stop - begin - FRAME.size
    frame = FRAME.pack(length, _checksum(length), BLANK)
    first, last = -(-(begin + FRAME.size) // _PAGE) * _PAGE, stop // _PAGE * _PAGE
    if last <= first:
        os.pwrite(descriptor, frame + bytes(length), begin)
        return
    _punch(descriptor, first, last - first)
    os.pwrite(descriptor, frame + bytes(first - begin - FRAME.size), begin)
    os.pwrite(descriptor, bytes(stop - last), last)


@lru_cache(maxsize=8)
def _checksum(length: int) -> int:
    return zlib.crc32(bytes(length), zlib.crc32(bytes([BLANK])))


def _punch(descriptor: int, offset: int, length: int) -> None:
    if _fallocate()(descriptor, _PUNCH_HOLE | _KEEP_SIZE, offset, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@lru_cache(maxsize=1)
def _fallocate() -> Any:
    # Python has only posix_fallocate(), which does not punch holes.
    library = ctypes.CDLL(None, use_errno=True)
    found = getattr(library, "fallocate64", None) or library.fallocate
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found
