"""The layout of a spool: one append-only file per process and segment, made of framed records.

A segment is a header of eight bytes followed by records. The header is ``RTHSPL``, the version of the format as one
digit or capital letter, and a line feed; :data:`MAGIC` is the header of version 1, the only one so far. A record is a
frame of nine bytes and a payload::

    length  u32 little endian   bytes of the payload, at most MAX_PAYLOAD
    crc32   u32 little endian   of the kind byte and the payload
    kind    u8                  one of the constants below
    payload

Payloads, all integers little endian:

``RESOURCE``  u16 id, then an encoded ``opentelemetry.proto.resource.v1.Resource``
``SCOPE``     u16 id, u16 resource id, then an encoded ``InstrumentationScope``
``START``     u16 scope id, then an encoded ``Span`` without end time: a span that has begun and runs user code
``SPAN``      u16 scope id, then an encoded ``Span``: a span that has ended
``DROPPED``   u64 count of spans and log records that this process could not write since the last such record (for
              example, while the disk was full)
``LOG``       u16 scope id, then an encoded ``LogRecord``
``EXIT``      empty: the process ends regularly, and will not end the spans that are still open

Every segment defines the resources and scopes that it uses before it uses them, so it can be read alone. The encoded
spans of ``START`` and ``SPAN`` always begin with the trace id and the span id, so both are found at a fixed place
without decoding: see :func:`in_payload`.

A record is written with one ``os.write`` on an ``O_APPEND`` descriptor. What was written survives the death of the
writer, and a record cut short by a full disk or a lost machine fails its length or checksum.

How a reader handles errors:

* A record of an unknown kind with a valid checksum is skipped and counted. New kinds are the way to extend version 1;
  the version changes only where an old reader would misinterpret what it reads.
* Where there is no valid record, the reader searches for the next one byte by byte: one with a valid checksum and the
  form of its kind. So damage costs only the records that it hit. The search takes time in proportion to the damage,
  and never more memory than two records of the maximum size.
* A file with the header of another version, and one that has neither a header nor a valid record near its beginning,
  is not read. This is reported, and the file is never removed.
* A shipper moves files that it could not read into the subfolder :data:`QUARANTINE`. It removes damaged segments once
  it has delivered what it could read of them. A process closes a larger segment when the disk is full, so that it can
  be removed to make room.

A segment is called ``<process>.<sequence>.spool``. The name of a process is ``<pid>-<time>-<random>-<namespace>``: when
its first segment was made, in hexadecimal nanoseconds, and in which namespace its pid counts (in names of older
releases that is missing). That of a process that was forked from one of Ray's ends in :data:`FORKED`. While its process
lives, the newest segment of a process holds an exclusive ``flock``; the kernel releases it with the process, however
that ends. A process is dead when none of its segments is locked.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from ray_tracing_hooks._safety.processes import UNKNOWN

MAGIC = b"RTHSPL1\n"
FORKED = "-fork"
SUFFIX = ".spool"
TEMPORARY = ".new"
"""The end of the name of a segment that its process is creating."""

QUARANTINE = "aside"

_HEADER = rb"RTHSPL([0-9A-Z])\n"

FRAME = struct.Struct("<IIB")
U16 = struct.Struct("<H")
TWO_U16 = struct.Struct("<HH")
U64 = struct.Struct("<Q")

RESOURCE = 1
SCOPE = 2
START = 3
SPAN = 4
DROPPED = 5
LOG = 6
EXIT = 7

MAX_PAYLOAD = 16 * 1024 * 1024 - 1
"""A longer payload is treated as damage: the writer leaves out the largest parts of a span that would exceed it."""

MAX_SEGMENT = 64 * 1024 * 1024
"""A larger file is not a segment: a writer begins the next one at a quarter of this size."""


_SPOOL_NAME = re.compile(r"([0-9a-f]{1,12}|client)-[0-9a-f]{8}")


def spool_name(node_id: str, digest: str) -> str:
    """The name of the spool folder of a node for settings with this digest; an empty node id is that of a client."""
    return f"{node_id[:12] or 'client'}-{digest[:8]}"


def is_spool_name(name: str) -> bool:
    """Whether :func:`spool_name` makes such names."""
    return _SPOOL_NAME.fullmatch(name) is not None


def in_payload(part: slice) -> slice:
    """The position of a part of an encoded span in the payload of its record, after the scope id."""
    return slice(part.start + U16.size, part.stop + U16.size)


def segment_name(process: str, sequence: int) -> str:
    """The file name of one segment; names of one process sort by age."""
    return f"{process}.{sequence:06d}{SUFFIX}"


class ProcessName(NamedTuple):
    """The parts of the name of a process: ``named_at`` is in nanoseconds since the epoch."""

    pid: int
    named_at: int
    namespace: str


def parse_process_name(name: str) -> ProcessName | None:
    """The parts of the name of a process in a spool, or None if it is no such name."""
    pid, _, rest = name.removesuffix(FORKED).partition("-")
    named_at, _, rest = rest.partition("-")
    _, _, namespace = rest.partition("-")
    try:
        return ProcessName(int(pid), int(named_at, 16), namespace or UNKNOWN)
    except ValueError:
        return None


def version(head: bytes) -> str | None:
    """The version of the format in the header of a file; None for a file without such a header."""
    found = re.match(_HEADER, head)
    return found[1].decode() if found else None


def parse_segment_name(name: str) -> tuple[str, int] | None:
    """The process and sequence of a segment's file name, or None for a file that is not a segment."""
    if not name.endswith(SUFFIX):
        return None
    process, _, sequence = name[: -len(SUFFIX)].rpartition(".")
    if not process or not (sequence.isascii() and sequence.isdigit()):
        return None
    return process, int(sequence)
