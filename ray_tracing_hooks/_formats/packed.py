"""Reads files that may be compressed, such as ``*.jsonl.gz``."""

from __future__ import annotations

import gzip
import os
from typing import BinaryIO, cast

_MOST_RATIO = 200
"""Spans compress to about a fortieth of their size, since ids and times differ; gzip can reach a thousandth."""

_ALWAYS = 64 * 1024 * 1024


def unpacked(path: str, raw: BinaryIO) -> BinaryIO:
    """An open file for reading lines, decompressed if its name ends in ``.gz``.

    Reading a line raises ValueError once far more data has come out than spans can compress to: some kilobytes may
    decompress to gigabytes.
    """
    return cast("BinaryIO", _Packed(raw)) if path.endswith(".gz") else raw


class _Packed(gzip.GzipFile):
    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(fileobj=raw)
        self._most = max(_ALWAYS, _MOST_RATIO * os.fstat(raw.fileno()).st_size)

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if self.tell() > self._most:
            raise ValueError(f"it decompresses to more than {_MOST_RATIO} times its size, which no file of spans does")
        return line
