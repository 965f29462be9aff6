"""Files that commands write: private, atomic, and without overwriting files of the user by accident.

What is no file, such as a FIFO or a device, is written to as it is: a file must not take its place.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import click

from ray_tracing_hooks._cli.screen import SafeError


def may_replace(
    path: str, *, force: bool, is_ours: Callable[[str], bool] = lambda _path: False, option: str = "--output"
) -> bool:
    """Whether a file at ``path`` may be replaced: with ``force``, or if ``is_ours`` says that this package wrote it.

    A FIFO or a character device of this user, or of root, loses nothing either. Ends the command with exit code 1 for a
    folder, for any other file, and for a file in a folder that is not there; ``option`` named the path.
    """
    if not path:
        raise click.BadParameter("it is empty: name a file", param_hint=option)
    if os.path.isdir(path):
        raise SafeError(f"{path!r} is a folder: name a file ({option})")
    if is_stream(path):
        found = os.stat(path)
        if not force and (found.st_uid not in {0, os.geteuid()} or stat.S_ISBLK(found.st_mode)):
            raise SafeError(f"{path!r} is a device, or belongs to another user: --force writes to it")
        return True
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise SafeError(f"{path!r} ({option}): there is no folder {folder!r}")
    if force or not os.path.lexists(path):
        return force
    if is_ours(path):
        return True
    raise SafeError(f"{path!r} exists: --force overwrites it, {option} names another")


def is_stream(path: str) -> bool:
    """Whether this leads to a FIFO or a device, or to the standard output of this process, whatever that is."""
    try:
        found = os.stat(path)
        return not stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.fstat(1))
    except OSError:
        return False


@contextmanager
def opened(path: str, *, replace: bool) -> Iterator[BinaryIO]:
    """Open a private file for writing. It gets its name once it is complete. A stream is opened as it is.

    Raises OSError, also if without ``replace`` a file of that name was created meanwhile.
    """
    if is_stream(path):
        # At the end, since standard output may be a file that has something in it.
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb") as file:
            yield file
        return
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
