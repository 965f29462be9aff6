"""Which files hold spans, and the lines in them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from ray_tracing_hooks._spool.layout import SUFFIX, UNDECIDED

JSON_SUFFIXES = (".jsonl", ".jsonl.gz")

MAX_LINE = 64 * 1024 * 1024
"""A longer line is taken for damage. What we write stays below 1 MiB."""

UNREADABLE = (OSError, EOFError, ValueError, zlib.error)
"""What reading a file raises that is not what its name says."""


class Part(NamedTuple):
    """Some bytes of a file. An ``end`` of 0 means all of it, which a packed file and a segment are read as."""

    path: str
    begin: int = 0
    end: int = 0
    alive: bool = False
    """Of a segment of a spool: whether the process that writes it lived when that was asked, before it is read."""


def span_files(paths: Iterable[str]) -> list[str]:
    """The files with spans among ``paths``: a file stands for itself, a folder for what it holds.

    A folder that holds none itself stands for its subfolders: a session of Ray has a spool folder for each node in one.
    What waits in a spool to be decided on is left out, since most of it will be dropped.
    Raises OSError for a path that does not exist or a folder that may not be read.
    """
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
            found += _with_spans(inside) or [
                file
                for folder in inside
                if os.path.isdir(folder) and not os.path.islink(folder) and os.path.basename(folder) != UNDECIDED
                for file in _with_spans(sorted(os.path.join(folder, name) for name in os.listdir(folder)))
            ]
        else:
            os.stat(path)
            found.append(path)
    return list(dict.fromkeys(found))


def is_segment(path: str) -> bool:
    """Whether a file is a segment of a spool, by its name, and otherwise lines of OTLP-JSON."""
    return path.endswith(SUFFIX)


def _with_spans(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if (path.endswith(JSON_SUFFIXES) or is_segment(path)) and os.path.isfile(path)]


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines with their numbers, without empty ones; None for a line that is too long."""
    number = 0
    try:
        while line := file.readline(MAX_LINE):
            number += 1
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                yield number, None
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
            elif not line.isspace():
                yield number, line
    except EOFError:
        return  # a compressed file that is still being written
