"""Finds the files that hold spans, and reads their lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from ray_tracing_hooks._formats.signals import LOGS, METRICS
from ray_tracing_hooks._spool.layout import ASIDE, SUFFIX, UNDECIDED

JSON_SUFFIXES = (".jsonl", ".jsonl.gz")

MAX_LINE = 64 * 1024 * 1024
"""A longer line is treated as damage. The lines that this package writes stay below 1 MiB."""

_OTHERS = frozenset({UNDECIDED, ASIDE, LOGS.name, METRICS.name})
"""Subfolders without spans, or with spans that do not count."""

UNREADABLE = (OSError, EOFError, ValueError)
"""What reading a file raises if it is unreadable or its content does not match its suffix."""


def reason(error: Exception) -> str:
    """Why a file could not be read, for a sentence."""
    return str(getattr(error, "strerror", None) or error)


class Part(NamedTuple):
    """A byte range of a file. An ``end`` of 0 means to the end; compressed files and segments are read whole."""

    path: str
    begin: int = 0
    end: int = 0
    alive: bool = False
    """For a spool segment: whether the process that writes it was alive when this was checked, before the read."""


def span_files(paths: Iterable[str], *, with_subfolders: bool = False) -> list[str]:
    """The files with spans in ``paths``: files as given, and for a folder the span files in it.

    If a folder has no span files, its subfolders are searched: a Ray session has one folder with a spool per node.
    ``with_subfolders``, they always are: ``ray-tracing-hooks run`` makes one for each run, beside the files of others.
    Spans that await a tail sampling decision are left out, since most of them will be dropped.
    Raises OSError if a path does not exist or a folder cannot be read.
    """
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
            own = _with_spans(inside)
            found += own
            if with_subfolders or not own:
                found += [
                    file
                    for folder in inside
                    if os.path.isdir(folder) and not os.path.islink(folder) and os.path.basename(folder) not in _OTHERS
                    for file in _with_spans(sorted(os.path.join(folder, name) for name in os.listdir(folder)))
                ]
        else:
            os.stat(path)
            found.append(path)
    return list(dict.fromkeys(found))


def is_segment(path: str) -> bool:
    """Whether a file is a spool segment, judged by its name. Any other file is read as OTLP-JSON lines."""
    return path.endswith(SUFFIX)


def _with_spans(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if (path.endswith(JSON_SUFFIXES) or is_segment(path)) and os.path.isfile(path)]


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Line numbers and lines, without empty ones; None in place of a line that is too long."""
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
