"""What the program reports to ``ray-tracing-hooks run``: a line of JSON for each connection to Ray."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

VARIABLE = "_RAY_TRACING_HOOKS_RUN"
"""Passes an :class:`LaunchInfo` from the command to the program's interpreter, which removes it at startup."""


class LaunchInfo(NamedTuple):
    """What the command has changed in the environment, for the program to restore, and where to write notes."""

    notes: str
    python_path: str | None
    """``PYTHONPATH`` of the user."""
    local_dir: str | None
    """``RAY_TRACING_LOCAL_DIR`` of the user."""
    has_own_folder: bool
    """Whether ``RAY_TRACING_LOCAL_DIR`` is a folder that the command has chosen for this run."""

    def __str__(self) -> str:
        return json.dumps(self)


class Note(NamedTuple):
    """One connection of the program to Ray."""

    address: str = ""
    is_own: bool = False
    """Whether the program has started the cluster that it is connected to."""
    is_client: bool = False
    has_hook: bool = False
    """Whether the cluster has a tracing hook."""
    is_traced: bool = False
    """Whether this package traces the program."""
    hook: str = ""
    """The hook of the cluster, if this package traces the program."""
    exporters: tuple[str, ...] = ()
    spool: str = ""
    local_dir: str = ""
    """The folder of local files on this process's node; empty without any."""
    trace_id: str = ""
    """The trace id of the root span, if any."""
    problem: str = ""
    """Why the hook could not be set."""


def write(path: str, note: Note) -> None:
    """Append a note atomically; other processes write to the same file. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(file, json.dumps(note._asdict()).encode() + b"\n")
    finally:
        os.close(file)


def read(path: str) -> Iterator[Note]:
    """The notes, in the order in which they were written."""
    with open(path, "rb") as file:
        for line in file:
            with suppress(ValueError, TypeError):  # a partial line of a program that was killed while writing
                fields: dict[str, Any] = json.loads(line)
                yield Note(**{**fields, "exporters": tuple(fields["exporters"])})
