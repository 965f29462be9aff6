"""Finds the files that hold spans, and reads their lines."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from ray_tracing_hooks._formats.otlp import LOGS, METRICS
from ray_tracing_hooks._insight.ingest.kept_runs import is_run, kept_run
from ray_tracing_hooks._spool.layout import QUARANTINE, SUFFIX

JSON_SUFFIXES = (".jsonl", ".jsonl.gz")
PARQUET = ".parquet"

_OTHERS = frozenset({QUARANTINE, LOGS.name, METRICS.name})
"""Subfolders without spans that count."""

UNREADABLE = (OSError, EOFError, ValueError)
"""What reading a file raises if it is unreadable or its content does not match its suffix."""


def reason(error: Exception) -> str:
    """Why a file could not be read, for a sentence."""
    return str(getattr(error, "strerror", None) or error)


class FilePart(NamedTuple):
    """A file, or the bytes of it from ``begin`` on. An ``end`` of 0 means to the end of the file."""

    path: str
    begin: int = 0
    end: int = 0
    alive: bool = False
    """For a spool segment: whether the process that writes it was alive when this was checked, before the read."""


def span_files(paths: Iterable[str], *, with_subfolders: bool = False) -> list[str]:
    """The files with spans in ``paths``: files as given, and for a folder the span files in it.

    If a folder has no span files, its subfolders are searched: a Ray session has one folder with a spool per node.
    ``with_subfolders``, they always are: ``ray-tracing-hooks run`` makes one for each run, beside the files of others.
    A subfolder that cannot be read is in the result itself, so that its readers report it as they do unreadable files.
    Raises OSError if a path does not exist, or a folder of ``paths`` cannot be read.
    """
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            inside = _inside(path)
            # Whoever reads a file that a run names says that it is missing.
            own = inside if is_run(path) else _with_spans(inside)
            found += own
            for folder in _subfolders(inside) if with_subfolders or not own else ():
                try:
                    found += _inside(folder) if is_run(folder) else _with_spans(_inside(folder))
                except OSError:
                    found.append(folder)
        else:
            os.stat(path)
            found.append(path)
    return list(dict.fromkeys(found))


def folders_of(paths: Iterable[str]) -> list[str]:
    """The folders in which span files of ``paths`` can be, as :func:`span_files` finds them with subfolders.

    For what lies beside these files. Folders that cannot be read are left out.
    """
    found: list[str] = []
    for path in paths:
        folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
        found.append(folder)
        if folder == path:
            with suppress(OSError):
                found += _subfolders(_inside(folder))
    return list(dict.fromkeys(found))


def _inside(folder: str) -> list[str]:
    """The paths in a folder; of a run of a store, only what belongs to it."""
    if is_run(folder):
        try:
            run = kept_run(folder)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error), folder) from None
        return run.files if run is not None else []
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def _subfolders(paths: Iterable[str]) -> list[str]:
    """Those of the paths that are folders with spans that count."""
    return [
        path
        for path in paths
        if os.path.isdir(path) and not os.path.islink(path) and os.path.basename(path) not in _OTHERS
    ]


def is_segment(path: str) -> bool:
    """Whether a file is a spool segment, judged by its name. Any other file is read as OTLP-JSON lines."""
    return path.endswith(SUFFIX)


def is_span_file(path: str) -> bool:
    """Whether a file of a folder is one of spans, judged by its name."""
    return path.endswith((*JSON_SUFFIXES, PARQUET)) or is_segment(path)


def _with_spans(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if is_span_file(path) and _is_file(path)]


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except PermissionError:
        return True  # in a folder of which only the names can be read; reading the file says why not
    except OSError:
        return False


def is_one_object(path: str) -> bool:
    """Whether the file begins with an object over many lines, which cannot be read in parts."""
    try:
        with open(path, "rb") as file:
            return file.readline(len(b"{\r\n")).rstrip() == b"{"
    except OSError:
        return False  # whoever reads it says so
