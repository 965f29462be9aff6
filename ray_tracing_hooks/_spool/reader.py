"""Reads segments while they grow and after their writer has died."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from typing import NamedTuple

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._formats.encoded_span.encode import IDS
from ray_tracing_hooks._formats.encoded_span.read import IDS_FORM
from ray_tracing_hooks._formats.encoded_span.tags import LogRecordTag, ResourceTag, ScopeTag, tags_of
from ray_tracing_hooks._spool.layout import (
    DROPPED,
    EXIT,
    FRAME,
    LOG,
    MAGIC,
    MAX_PAYLOAD,
    RESOURCE,
    SCOPE,
    SPAN,
    START,
    TWO_U16,
    U16,
    U64,
    parse_segment_name,
    version,
)

_EMPTY = frozenset({(RESOURCE, U16.size), (SCOPE, TWO_U16.size)})
"""Kinds and lengths of empty definitions."""

_LONGEST = FRAME.size + MAX_PAYLOAD
_WINDOW = 2 * _LONGEST
"""Bytes that are searched to get past damage: a record that begins in the first half is complete."""

_CHUNK = 1 << 18
"""Bytes that are read at once to count records."""

_FIRST = 1024 * 1024
"""A file without a header is a damaged segment if there is a valid record within this many bytes."""

_CHECKED, _CHECK = 64, 2048
"""Bytes can be crafted so that a long record seems to begin everywhere. So the search ends when, on average, this many
bytes have been checksummed in vain for each byte of data; each attempt counts as at least :data:`_CHECK` bytes."""

Record = tuple[int, bytes, int]
"""One record: its kind, its payload, and its offset in the segment."""

Parts = tuple[bytes, bytes, bytes, int]
"""One record, cut so that a reader of many spans need not cut it again:

- the kind byte and the two bytes after it, which are the id of a scope or resource;
- the next :data:`IDS_SIZE` bytes, which are the ids of a START or SPAN: of no use if the record is shorter;
- the payload after the id of the scope;
- the offset in the segment.

A plain tuple, since there are many: a named one would add a third to the time of reading a spool.
"""

IDS_SIZE = IDS.stop

_PARTS = struct.Struct(f"<II{1 + U16.size}s{IDS_SIZE}s")

_KINDS = tuple(zlib.crc32(bytes([kind])) for kind in range(256))
"""The checksum of each kind byte, from which that of its payload continues."""


class _Checksums(dict[bytes, int]):
    """The checksums of the first of the :data:`Parts`, from which those of the rest continue."""

    def __missing__(self, head: bytes) -> int:
        if len(self) >= 10_000:  # a few are in use; damage may add others
            self.clear()
        self[head] = checksum = zlib.crc32(head)
        return checksum


_heads = _Checksums()

_CANDIDATE = re.compile(rb"[%c-%c](?<=\x00.{5})" % (RESOURCE, EXIT), re.DOTALL)
"""A kind byte, with its checksum and before that the highest byte of a length. Most bytes are not a kind, and skipping
them must be fast: after a machine crash a file may be all zeros."""

_KIND_AT = FRAME.size - 1

_FORMS: dict[int, re.Pattern[bytes]] = {
    START: re.compile(rb".." + IDS_FORM, re.DOTALL),
    SPAN: re.compile(rb".." + IDS_FORM, re.DOTALL),
    LOG: re.compile(rb"..%c" % LogRecordTag.TIME, re.DOTALL),
    RESOURCE: re.compile(rb"..[%b]" % tags_of(ResourceTag), re.DOTALL),
    SCOPE: re.compile(rb"....[%b]" % tags_of(ScopeTag), re.DOTALL),
}
"""How the payload of each kind begins, except empty definitions."""


@dataclass
class SegmentReader:
    """Reads the complete records of one segment from an offset on.

    ``offset`` is where the next record begins. ``damaged`` counts the bytes that were skipped because no record with a
    valid checksum began there. ``refusal`` says why the file is not read, if it is no segment of this version: a text
    to append to the file's name.
    """

    path: str
    offset: int = 0
    damaged: int = 0
    refusal: str = ""

    def read(self, *, final: bool = False, limit: int | None = None) -> list[Record]:
        """The records that were completed since the last call, about ``limit`` bytes of them.

        With ``final`` the writer is dead: an incomplete record at the end is then damage, not a record still being
        written.
        """
        return list(map(_record, self.read_parts(final=final, limit=limit)))

    def read_parts(self, *, final: bool = False, limit: int | None = None) -> list[Parts]:
        """The same records as :meth:`read`, in parts."""
        with open(self.path, "rb", buffering=0, opener=_without_waiting) as file:
            if not self.offset:
                self.refusal = _refusal(file)
            if self.refusal:
                return []
            file.seek(self.offset)
            data = file.read(-1 if limit is None else limit)
            records: list[Parts] = []
            consumed = _good_records(data, _beginning(data, self.offset), self.offset, records)
            cut = len(data) == limit
            if cut and not consumed:
                # It may just be longer.
                data += file.read(_size_of_first(data) - len(data))
                consumed = _good_records(data, 0, self.offset, records)
            if consumed < len(data) and (not cut or not consumed):
                records, consumed = self._past_damage(file, data, cut=cut, final=final)
        self.offset += consumed
        return records

    def _past_damage(self, file: FileIO, data: bytes, *, cut: bool, final: bool) -> tuple[list[Parts], int]:
        """Like :func:`parse`, but reads more of the file where ``data`` alone, being only a part, is not enough."""
        if cut:
            data += file.read(_WINDOW - len(data))
            cut = len(data) >= _WINDOW
        records, consumed, damaged = parse(data, self.offset, final=final and not cut)
        if cut and not consumed:
            # A record that began in this half would have been found.
            consumed = damaged = len(data) - _LONGEST
        self.damaged += damaged
        return records, consumed


def _record(parts: Parts) -> Record:
    head, _, rest, offset = parts
    return head[0], head[1:] + rest, offset


def _size_of_first(data: bytes) -> int:
    """The size of the first record by its frame, if that is possible, and otherwise of ``data``."""
    if len(data) < FRAME.size:
        return len(data)
    length = FRAME.unpack_from(data)[0]
    return max(len(data), FRAME.size + length) if length <= MAX_PAYLOAD else len(data)


def _without_waiting(path: str, flags: int) -> int:
    """An opener for ``open`` that does not block on a FIFO in place of a segment."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse(data: bytes, base: int = 0, *, final: bool = False) -> tuple[list[Parts], int, int]:
    """The complete records in ``data``, how many bytes they and any damage before them take, and the damaged bytes.

    ``base`` is the offset of ``data`` in its segment. After a record with a wrong checksum, the next valid one is
    searched byte by byte: damage costs only the records that it hit. With ``final`` nothing more will be written;
    otherwise bytes after the last valid record may be a record that is still being written.
    """
    records: list[Parts] = []
    damaged = 0
    position = _beginning(data, base)
    search = _Search(data)
    while (position := _good_records(data, position, base, records)) < len(data):
        resumed = search.next_good_record(position)
        if resumed is None:
            if not final:
                break
            resumed = len(data)
        damaged += resumed - position
        position = resumed
    return records, position, damaged


def _beginning(data: bytes, base: int) -> int:
    """The position of the first record: after the header at the beginning of a segment."""
    return len(MAGIC) if base == 0 and data.startswith(MAGIC) else 0


def _good_records(data: bytes, position: int, base: int, records: list[Parts]) -> int:
    """Append the consecutive valid records from ``position`` on to ``records``; returns where they end."""
    if (end := _compiled.use.good_records(data, position, base, records)) is not None:
        return end
    # The hottest loop of the shipper: what it looks up is local.
    unpack, crc32, heads, add = _PARTS.unpack_from, zlib.crc32, _heads, records.append
    frame, before_rest, shortest = FRAME.size, FRAME.size + U16.size, U16.size
    size = len(data)
    last = size - _PARTS.size
    while position + frame <= size:
        if position <= last:
            length, checksum, head, ids = unpack(data, position)
        else:
            length, checksum, head, ids = unpack(data[position:].ljust(_PARTS.size, b"\0"))
        end = position + frame + length
        if end > size or length > MAX_PAYLOAD:
            break
        if length < shortest:
            head = head[: 1 + length]
        rest = data[position + before_rest : end]
        if crc32(rest, heads[head]) != checksum:
            break
        add((head, ids, rest, base + position))
        position = end
    return position


class _Search:
    """Searches ``data`` for valid records, in time bounded by its size."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._left = _CHECKED * max(len(data), 1 << 16)

    def next_good_record(self, position: int) -> int | None:
        """The position of the first valid record at or after ``position``, or None."""
        while (found := _CANDIDATE.search(self._data, position + _KIND_AT)) is not None:
            position = found.start() - _KIND_AT
            if self._is_good(position):
                return position
            if self._left < 0:
                return None
            position += 1
        return None

    def _is_good(self, position: int) -> bool:
        length, checksum, kind = FRAME.unpack_from(self._data, position)
        begin = position + FRAME.size
        end = begin + length
        self._left -= _CHECK
        if end > len(self._data) or not self._has_form(kind, begin, length):
            return False
        self._left -= length
        good: bool = zlib.crc32(self._view[begin:end], _KINDS[kind]) == checksum
        return good

    def _has_form(self, kind: int, begin: int, length: int) -> bool:
        if kind in {DROPPED, EXIT}:
            return length == (U64.size if kind == DROPPED else 0)
        form = _FORMS[kind]
        return (kind, length) in _EMPTY or form.match(self._data, begin, begin + length) is not None


def _refusal(file: FileIO) -> str:
    """Why a file is not read as a segment; empty if it is read."""
    head = file.read(len(MAGIC))
    if MAGIC.startswith(head):  # or is going to be
        return ""
    found = version(head)
    if found is not None:
        return f"has version {found} of the spool's format, but this release reads version {version(MAGIC)}"
    return "" if _Search(head + file.read(_FIRST)).next_good_record(0) is not None else "is not a spool file"


def is_refused(path: str) -> bool:
    """Whether a file is not a segment of this version. Raises OSError."""
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        return bool(_refusal(file))


class Walked(NamedTuple):
    """The records of one kind in a part of a segment.

    Attributes:
        records: How many there are.
        size: How many bytes were walked over. What cannot be read counts too: nobody can read it.
        first: The payload of the first one; empty if there is none.
        is_complete: Whether all was read, in time.
    """

    records: int
    size: int
    first: bytes
    is_complete: bool


def walk(
    path: str, offset: int, end: int, kind: int = SPAN, until: float | None = None, *, at_least: int = 0
) -> Walked:
    """Count the records of this kind between two offsets, from frame to frame, without verifying checksums.

    It stops at an invalid frame, and after the monotonic time ``until``, but not within ``at_least`` bytes.
    """
    count, first = 0, b""
    position = max(offset, len(MAGIC))
    at_least += position
    try:
        # Not mapped into memory: if the file is truncated or the disk fails, a signal would end this process.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        return Walked(0, end - offset, b"", isinstance(error, FileNotFoundError))
    try:
        if version(os.pread(file, len(MAGIC), 0)) != version(MAGIC):
            return Walked(0, end - offset, b"", True)
        while position < end:
            if until is not None and position >= at_least and time.monotonic() > until:
                return Walked(count, position - offset, first, False)
            data = os.pread(file, _CHUNK, position)
            at = 0
            while at + FRAME.size <= len(data):
                length, _, found = FRAME.unpack_from(data, at)
                if length > MAX_PAYLOAD:
                    return Walked(count, end - offset, first, False)
                begin = position + at + FRAME.size
                if found == kind and begin + length <= end:
                    count += 1
                    first = first or os.pread(file, length, begin)
                at += FRAME.size + length
            if not at:
                break
            position += at
    except OSError:
        return Walked(count, end - offset, first, False)
    finally:
        os.close(file)
    return Walked(count, end - offset, first, True)


def count_spans(path: str, offset: int = 0, until: float | None = None, kind_of_record: int = SPAN) -> tuple[int, bool]:
    """The number of ended spans, or records of another kind, in a segment from ``offset`` on, as :func:`walk` counts,
    and whether the count is complete.
    """
    try:
        size = os.stat(path).st_size
    except OSError as error:
        return 0, isinstance(error, FileNotFoundError)
    found = walk(path, offset, size, kind_of_record, until)
    return found.records, found.is_complete


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
    """The processes of a spool folder: name, segment paths from the oldest, and whether the process lives."""
    for process, pairs in sorted(segments(directory).items()):
        paths = [path for _, path in pairs]
        yield process, paths, any(map(_is_locked_file, reversed(paths)))


def _is_locked_file(path: str) -> bool:
    """Like :func:`is_locked`, but False on errors: a link or an unreadable file may have the name of a segment."""
    try:
        return is_locked(path)
    except OSError:
        return False
