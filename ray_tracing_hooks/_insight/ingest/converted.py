"""Converts files of other formats to OTLP-JSON lines: OTLP protobuf, and what is compressed with zstd.

These are the formats of the Collector's file exporter: messages with their length before them, four bytes for each, and
a message may be compressed on its own. A file may also be one bare message. Formats are known by content, since such
files have any name.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import BinaryIO, cast

from ray_tracing_hooks._formats.otlp import Group, encode_json
from ray_tracing_hooks._formats.otlp_json_read import MAX_LINE, traces, unpacked
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._insight.ingest.files import PARQUET, is_segment

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_MOST_MESSAGE = 1 << 30
_MOST_RATIO, _ALWAYS = 200, 1 << 26
"""Spans compress to about a fortieth of their size."""

_STEP = 1 << 20
_LOOKED_AT = 1 << 16
_BASE64_ID = re.compile(rb'"traceId"\s*:\s*"[A-Za-z0-9+/]{22}=="')
"""JSON of protobuf's own encoders has ids in base64, in place of OTLP's hex."""

_FIRST = 64
"""Bytes. A message has control characters in them: the lengths of its first parts."""


def is_other(path: str) -> bool:
    """Whether a file has one of these formats, by its first bytes. Whoever reads it says if it cannot be read."""
    if path.endswith((PARQUET, ".gz")) or is_segment(path):
        return False
    try:
        with open(path, "rb") as file:
            first = file.read(_LOOKED_AT)
            return not _is_text(first[:_FIRST]) or bool(_BASE64_ID.search(first))
    except OSError:
        return False


def _is_text(first: bytes) -> bool:
    """Whether a file with these first bytes is read as lines, whatever is in them."""
    return not any(byte < 0x20 and byte not in b"\t\n\r" for byte in first) and not first.startswith((_ZSTD, _GZIP))


def converted(path: str, into: str, warn: Callable[[str], None]) -> None:
    """Write the spans of a file as OTLP-JSON lines. ``warn`` is called with what could not be read.

    Raises OSError, ImportError if a package is missing, and ValueError if nothing of it can be read.
    """
    with open(path, "rb") as raw, open(into, "wb") as out:
        try:
            out.writelines(_at_most(_lines(_plain(raw), warn), max(_ALWAYS, _MOST_RATIO * os.path.getsize(path))))
        except (EOFError, OSError, ValueError) as error:
            if not out.tell():
                raise ValueError(f"nothing of it can be read as OTLP-JSON lines or OTLP protobuf: {error}") from None
            warn(f"{error}; the rest of the file is missing")


def _at_most(lines: Iterator[bytes], most: int) -> Iterator[bytes]:
    """These lines, up to so many bytes. Raises ValueError behind these."""
    for line in lines:
        most -= len(line)
        if most < 0:
            raise ValueError(f"it has more than {_MOST_RATIO} times its size, which no file of spans does")
        yield line


def _plain(raw: BinaryIO) -> BinaryIO:
    """The content of a file that may be compressed."""
    first = raw.read(4)
    raw.seek(0)
    if first.startswith(_ZSTD):
        return _decompressed(raw)
    return unpacked("x.gz", raw) if first.startswith(_GZIP) else raw


def _decompressed(packed: BinaryIO) -> BinaryIO:
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        raise ImportError("zstd needs pyarrow: pip install 'ray-tracing-hooks[insight]'") from None
    return cast("BinaryIO", io.BufferedReader(arrow.CompressedInputStream(packed, "zstd")))


def _lines(plain: BinaryIO, warn: Callable[[str], None]) -> Iterator[bytes]:
    file = plain if isinstance(plain, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", plain))
    if _is_text(file.peek(_FIRST)[:_FIRST]):
        if not _BASE64_ID.search(file.peek(_LOOKED_AT)):
            yield from iter(lambda: file.read(_STEP), b"")
            return
        for written in iter(lambda: file.readline(MAX_LINE), b""):
            try:
                groups, left_out = traces(written)
            except FormatError as error:
                groups, left_out = [], [str(error)]
            yield encode_json(groups)[0] + b"\n"
            if left_out:
                warn(f"{left_out[0]} ({len(left_out):,} of the same line)")
        return
    bad = 0
    for message in _messages(file):
        text = _decompressed(io.BytesIO(message)).read(_MOST_MESSAGE) if message.startswith(_ZSTD) else message
        if text[:1] == b"{":
            yield text.rstrip(b"\n") + b"\n"
        else:
            try:
                line, wrong = encode_json(list(_groups(text)))
            except FormatError as error:
                warn(f"a message of it cannot be read: {error}")
                continue
            bad += wrong
            yield line + b"\n"
    if bad:
        warn(f"{bad:,} of its spans cannot be read")


def _messages(file: io.BufferedReader) -> Iterator[bytes]:
    """The messages of a file. Raises EOFError where it ends in the middle of one."""
    # A length has less than 24 bits, and no message begins with a zero.
    if file.peek(1)[:1] != b"\0":
        yield file.read(_MOST_MESSAGE)
        return
    while head := file.read(4):
        length = int.from_bytes(head, "big")
        message = file.read(length) if 0 < length <= _MOST_MESSAGE else b""
        if len(message) != length or not message:
            raise EOFError("a message of it is cut, or longer than the file")
        yield message


def _groups(message: bytes) -> Iterator[Group]:
    """The spans of a ``TracesData``. Raises FormatError if it is malformed."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415  few files need them
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # noqa: PLC0415

    try:
        found = TracesData.FromString(message)
    except DecodeError as error:
        raise FormatError(str(error)) from None
    for of_resource in found.resource_spans:
        for of_scope in of_resource.scope_spans:
            spans = [span.SerializeToString() for span in of_scope.spans]
            yield Group(of_resource.resource.SerializeToString(), of_scope.scope.SerializeToString(), spans)
