"""Counts what waits in a spool for one destination, in bounded time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ray_tracing_hooks._formats.encoded_span.read import end_time, log_time
from ray_tracing_hooks._spool.layout import FRAME, LOG, MAGIC, MAX_PAYLOAD, SPAN, U16

_CHUNK = 1 << 18
_MOST_LOOKED_AT = 200
"""Most processes whose oldest span is looked for: each takes a file to be opened."""


class Unread(NamedTuple):
    """The part of a segment that has not been delivered."""

    path: str
    offset: int
    size: int
    """The size of the whole segment."""


class Backlog(NamedTuple):
    """What waits.

    Attributes:
        items: How many spans or log records.
        bytes: Their bytes in the spool, with all other records there.
        is_estimate: Whether ``items`` is extrapolated: not everything was counted in time.
        oldest_ns: When the oldest of them ended, in nanoseconds since the epoch; 0 if that is unknown.
    """

    items: int = 0
    bytes: int = 0
    is_estimate: bool = False
    oldest_ns: int = 0


def measure(processes: Iterable[Sequence[Unread]], kind: int, seconds: float) -> Backlog:
    """The backlog of these processes, each with its unread segments from the oldest on.

    ``kind`` is that of the records to count. After ``seconds``, the rest is extrapolated.
    """
    until = time.monotonic() + seconds
    unread = [parts for each in processes if (parts := [part for part in each if part.offset < part.size])]
    total = sum(part.size - part.offset for parts in unread for part in parts)
    if not total:
        return Backlog()
    items = walked = oldest = 0
    # In turns over the processes, so that the oldest of each is looked at before the time is over.
    for number, parts in enumerate(unread):
        found = _walk(parts[0], kind, until, at_least=_CHUNK if not walked else 0)
        items, walked = items + found.items, walked + found.size
        if number < _MOST_LOOKED_AT and found.first and (ended := _ended(found.first, kind)):
            oldest = min(oldest or ended, ended)
    for parts in unread:
        for part in parts[1:]:
            found = _walk(part, kind, until)
            items, walked = items + found.items, walked + found.size
    if walked >= total:
        return Backlog(items, total, oldest_ns=oldest)
    return Backlog(items * total // max(1, walked), total, is_estimate=True, oldest_ns=oldest)


class _Walked(NamedTuple):
    """The items of a part of a segment, how much of it was walked over, and the payload of the first item."""

    items: int
    size: int
    first: bytes


def _walk(part: Unread, kind: int, until: float, at_least: int = 0) -> _Walked:
    """Go from frame to frame, without verifying checksums. What cannot be read counts as walked: nobody can read it.

    ``at_least`` is a number of bytes that are walked over whatever the time is.
    """
    items, first = 0, b""
    position = max(part.offset, len(MAGIC))
    at_least += position
    try:
        file = os.open(part.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return _Walked(0, part.size - part.offset, b"")
    try:
        while position < part.size:
            if position >= at_least and time.monotonic() > until:
                return _Walked(items, position - part.offset, first)
            data = os.pread(file, _CHUNK, position)
            at, size = 0, len(data)
            while at + FRAME.size <= size:
                length, _, found = FRAME.unpack_from(data, at)
                if length > MAX_PAYLOAD:
                    return _Walked(items, part.size - part.offset, first)  # damaged
                if found == kind:
                    items += 1
                    if items == 1:
                        first = os.pread(file, length, position + at + FRAME.size)
                at += FRAME.size + length
            if not at:
                break
            position += at
    except OSError:
        pass
    finally:
        os.close(file)
    return _Walked(items, part.size - part.offset, first)


def _ended(payload: bytes, kind: int) -> int:
    """When the span of this record ended, or when this log record was made."""
    return end_time(payload[U16.size :]) if kind == SPAN else log_time(payload[U16.size :]) if kind == LOG else 0
