"""Reading segments, while they grow and after their writer died."""

from __future__ import annotations

import fcntl
import mmap
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ray_tracing_hooks._spool.layout import DROPPED, FRAME, MAGIC, MAX_PAYLOAD, SPAN, parse_segment_name

_CHUNK = 4 * 1024 * 1024

_MOST_EFFORT = 16
"""How often each byte is looked at, on average, in search of a good record after damage."""


Record = tuple[int, bytes, int]
"""One record: its kind, its payload, and where the record begins in its segment. A plain tuple, since there are many:
a named one takes a third of the time of reading a spool."""

_KINDS = tuple(zlib.crc32(bytes([kind])) for kind in range(256))
"""The checksum of each kind byte, where that of its payload goes on."""


@dataclass
class SegmentReader:
    """Reads the records of one segment from an offset on, as far as they are complete.

    ``offset`` is where the next record begins, and ``damaged`` counts the bytes that were skipped because no record
    with a right checksum began there.
    """

    path: str
    offset: int = 0
    damaged: int = 0
    _tail: bytes = field(default=b"", repr=False)

    def read(self, *, final: bool = False, limit: int | None = None) -> list[Record]:
        """The records that were completed since the last call, at most about ``limit`` bytes of them.

        With ``final`` the writer is dead: an incomplete record at the end is damage and not a record still being
        written.
        """
        with open(self.path, "rb", opener=_without_waiting) as file:
            file.seek(self.offset)
            data = file.read(limit if limit is not None else -1)
            complete = limit is None or len(data) < limit
        records, consumed, damaged = parse(data, self.offset, final=final and complete)
        if limit is not None and not consumed and len(data) == limit:
            # One record is longer than the limit: read on rather than never getting past it.
            return self.read(final=final, limit=max(2 * limit, _CHUNK))
        self.offset += consumed
        self.damaged += damaged
        return records


def _without_waiting(path: str, flags: int) -> int:
    """For ``open``: a FIFO in place of a segment would wait for somebody to write to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse(data: bytes, base: int = 0, *, final: bool = False) -> tuple[list[Record], int, int]:
    """The complete records in ``data``, how many bytes they and any damage before them take, and the damaged bytes.

    ``base`` is the offset of ``data`` in its segment. After a record whose checksum is wrong the next good one is
    looked for byte by byte: a damaged place costs the records it hit and no more.
    """
    records: list[Record] = []
    position = damaged = 0
    size = len(data)
    search = _Search(data)
    if base == 0:
        if data[: len(MAGIC)] == MAGIC:
            position = len(MAGIC)
        elif size < len(MAGIC) and not final and MAGIC.startswith(data):
            return records, 0, 0
    header = FRAME.size
    while position + header <= size:
        length, checksum, kind = FRAME.unpack_from(data, position)
        end = position + header + length
        if length <= MAX_PAYLOAD and end <= size:
            payload = data[position + header : end]
            if zlib.crc32(payload, _KINDS[kind]) == checksum:
                records.append((kind, payload, base + position))
                position = end
                continue
        if length <= MAX_PAYLOAD and end > size and not final and search.from_(position + 1) is None:
            break
        resumed = search.from_(position + 1)
        if resumed is None:
            if not final and length <= MAX_PAYLOAD and end > size:
                break
            damaged += size - position
            position = size
            break
        damaged += resumed - position
        position = resumed
    if final and position < size:
        damaged += size - position
        position = size
    return records, position, damaged


class _Search:
    """Looks for the next good record after damage.

    Damage by chance seldom looks like the head of a long record. Bytes that somebody has made so that they do at every
    place would cost the square of their number, so there is an end to it: then all that follows is damage.
    """

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._effort = _MOST_EFFORT * len(data) + MAX_PAYLOAD

    def from_(self, position: int) -> int | None:
        """Where the next good record begins, from ``position`` on."""
        data, header = self._data, FRAME.size
        for start in range(position, len(data) - header + 1):
            length, checksum, kind = FRAME.unpack_from(data, start)
            end = start + header + length
            if 0 < kind <= DROPPED and length <= MAX_PAYLOAD and end <= len(data):
                if zlib.crc32(data[start + 8 : end]) == checksum:
                    return start
                self._effort -= length
                if self._effort < 0:
                    return None
        return None


def count_spans(path: str, offset: int = 0, until: float | None = None) -> tuple[int, bool]:
    """How many ended spans a segment holds from ``offset`` on, and whether all of it was looked through.

    It goes from frame to frame without checking them, and stops where one makes no sense, or at the monotonic time
    ``until``.
    """
    spans = 0
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            position, size, header = max(offset, len(MAGIC)), len(data), FRAME.size
            while position + header <= size:
                length, _, kind = FRAME.unpack_from(data, position)
                if length > MAX_PAYLOAD:
                    return spans, False
                spans += kind == SPAN
                position += header + length
                if until is not None and not spans & 0xFFF and time.monotonic() > until:
                    return spans, False
    except (OSError, ValueError):  # it has just been removed, or is empty
        pass
    return spans, True


def segments(directory: str) -> dict[str, list[tuple[int, str]]]:
    """The segments in a spool folder: for each process its (sequence, path) pairs, oldest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    try:
        entries = os.listdir(directory)
    except FileNotFoundError:
        return found
    for name in entries:
        parsed = parse_segment_name(name)
        if parsed is not None:
            found.setdefault(parsed[0], []).append((parsed[1], os.path.join(directory, name)))
    for pairs in found.values():
        pairs.sort()
    return found


def is_locked(path: str) -> bool:
    """Whether a living process holds the lock of this segment."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def iterate(directory: str) -> Iterator[tuple[str, list[str], bool]]:
    """Every process of a spool folder: its name, its segment paths oldest first, and whether it lives."""
    for process, pairs in sorted(segments(directory).items()):
        paths = [path for _, path in pairs]
        yield process, paths, any(map(_is_locked_file, reversed(paths)))


def _is_locked_file(path: str) -> bool:
    """In a folder of somebody else's, there may be a link, or a file that cannot be read, of the name of a segment."""
    try:
        return is_locked(path)
    except OSError:
        return False
