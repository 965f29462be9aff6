"""Reads files that may be compressed, such as ``*.jsonl.gz``."""

from __future__ import annotations

import io
import os
import zlib
from typing import Any, BinaryIO, cast

_MOST_RATIO = 200
"""Spans compress to about a fortieth of their size, since ids and times differ; gzip can reach a thousandth."""

_ALWAYS = 64 * 1024 * 1024

_BLOCK = 64 * 1024
_GZIP = 31
"""The format for zlib: a gzip header, and a checksum of the content, which it checks."""


def unpacked(path: str, raw: BinaryIO) -> BinaryIO:
    """An open file for reading lines, decompressed if its name ends in ``.gz``.

    Reading raises EOFError where the compressed data ends too early, as while it is being written, and ValueError where
    it is damaged; in both cases all lines before that place have been read. It also raises ValueError once far more
    data has come out than spans can compress to: some kilobytes may decompress to gigabytes.
    """
    return cast("BinaryIO", io.BufferedReader(_Unpacked(raw), _BLOCK)) if path.endswith(".gz") else raw


class _Unpacked(io.RawIOBase):
    """The content of a gzip file. Python's own class loses what comes shortly before damage."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._most = max(_ALWAYS, _MOST_RATIO * os.fstat(raw.fileno()).st_size)
        self._begin()

    def _begin(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._is_first = self._is_new = True
        """Whether it is the first member of the file, and whether nothing of it has been read."""
        self._input = b""
        self._damage = ""
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        offset += self._at if whence == io.SEEK_CUR else 0
        if offset < self._at:
            self._raw.seek(0)
            self._begin()
        while self._at < offset and self._next(min(_BLOCK, offset - self._at)):
            pass
        return self._at

    def readinto(self, buffer: Any) -> int:
        found = self._next(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def _next(self, most: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        found = b""
        while not found:
            if self._damage:
                raise ValueError(self._damage)
            if self._member.eof:
                self._input = self._member.unused_data
                self._member = zlib.decompressobj(_GZIP)
                self._is_first, self._is_new = False, True
            block = self._input or self._raw.read(_BLOCK)
            if self._is_new:
                if not block:
                    return b""
                # Zeros after a member fill up a block of a disk or a tape.
                block = block if self._is_first else block.lstrip(b"\0")
            found = self._decompressed(block, most)
        self._at += len(found)
        if self._at > self._most:
            raise ValueError(f"it decompresses to more than {_MOST_RATIO} times its size, which no file of spans does")
        return found

    def _decompressed(self, block: bytes, most: int) -> bytes:
        """What the block gives, at most so many bytes. What is left of the block, and damage in it, are noted."""
        before = self._member.copy()
        try:
            found = self._member.decompress(block, most)
        except zlib.error as error:
            found = _before_damage(before, block, most)
            is_other = self._is_first and not self._at and not found
            why = str(error).rpartition(": ")[2]
            self._damage = "it is not compressed with gzip" if is_other else f"its compressed data is damaged ({why})"
            return found
        if not block and not found and not self._is_new:
            raise EOFError("the compressed data ends too early, as if it was cut or is still being written")
        self._is_new = self._is_new and not block
        self._input = self._member.unconsumed_tail
        return found


def _before_damage(member: Any, block: bytes, most: int) -> bytes:
    """What a block gives up to its damage. A call that fails gives nothing, so find the longest part that does not."""
    found = b""
    good, bad = 0, len(block)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            found = member.copy().decompress(block[:middle], most)
        except zlib.error:
            bad = middle
        else:
            good = middle
    return found
