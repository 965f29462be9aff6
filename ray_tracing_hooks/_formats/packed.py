"""Files that may be packed, as ``*.jsonl.gz`` is."""

from __future__ import annotations

import gzip
import os
from typing import BinaryIO, cast

_MOST_RATIO = 200
"""Spans pack to a fortieth of their size or so, since their ids and times differ; gzip itself goes up to a thousand."""

_ALWAYS = 64 * 1024 * 1024


def unpacked(path: str, raw: BinaryIO) -> BinaryIO:
    """The lines of an open file, without gzip if its name says that it is packed.

    Reading a line of it raises ValueError once much more has come out than spans can be packed into: some kilobytes
    may unpack to gigabytes.
    """
    return cast("BinaryIO", _Packed(raw)) if path.endswith(".gz") else raw


class _Packed(gzip.GzipFile):
    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(fileobj=raw)
        self._most = max(_ALWAYS, _MOST_RATIO * os.fstat(raw.fileno()).st_size)

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if self.tell() > self._most:
            raise ValueError(f"it unpacks to more than {_MOST_RATIO} times its size, which no file of spans does")
        return line
