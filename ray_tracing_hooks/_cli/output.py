"""Files that commands write: private, atomic, and without overwriting files of the user by accident."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import click


def may_replace(path: str, *, force: bool, is_ours: Callable[[str], bool] = lambda _path: False) -> bool:
    """Whether a file at ``path`` may be replaced: with ``force``, or if ``is_ours`` says that this package wrote it.

    Ends the command with exit code 2 for a folder, for any other file, and if there is no name.
    """
    if not path:
        raise click.BadParameter("it is empty: name a file", param_hint="--output")
    if os.path.isdir(path):
        raise click.BadParameter(f"{path!r} is a folder: name a file", param_hint="--output")
    if force or not os.path.lexists(path):
        return force
    if is_ours(path):
        return True
    raise click.BadParameter(f"{path!r} exists: --force overwrites it", param_hint="--output")


@contextmanager
def opened(path: str, *, replace: bool) -> Iterator[BinaryIO]:
    """Open a private file for writing. It gets its name once it is complete.

    Raises OSError, also if without ``replace`` a file of that name was created meanwhile.
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
