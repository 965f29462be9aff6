"""Files that commands write: for this user alone, whole or not at all, and over nothing that is somebody's work."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import click


def may_replace(path: str, *, force: bool, is_ours: Callable[[str], bool] = lambda _path: False) -> bool:
    """Whether a file at ``path`` may be replaced: with ``force``, or where ``is_ours`` says that it can be made again.

    Ends the command with exit code 2 for a folder, and for any other file.
    """
    if os.path.isdir(path):
        raise click.BadParameter(f"{path!r} is a folder: name a file", param_hint="--output")
    if force or not os.path.lexists(path):
        return force
    if is_ours(path):
        return True
    raise click.BadParameter(f"{path!r} exists: --force writes over it", param_hint="--output")


@contextmanager
def opened(path: str, *, replace: bool) -> Iterator[BinaryIO]:
    """A file that nobody else may read. It gets its name when all of it is there.

    Raises OSError, also where without ``replace`` a file of that name was made meanwhile.
    """
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name[:100]}.")  # made with 0600
    try:
        with open(descriptor, "wb") as file:
            yield file
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
