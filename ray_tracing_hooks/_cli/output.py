"""Files that commands write: private, atomic, and without overwriting files of the user by accident."""

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

    Ends the command with exit code 1 for any other file, for what is no file, such as a FIFO or a device, and for a
    file in a folder that is not there; ``option`` named the path.
    """
    if not path:
        raise click.BadParameter("it is empty: name a file", param_hint=option)
    if _is_other(path):
        raise SafeError(f"{path!r} is a folder, a FIFO, a device or standard output: name a file ({option})")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise SafeError(f"{path!r} ({option}): there is no folder {folder!r}")
    if force or not os.path.lexists(path):
        return force
    if is_ours(path):
        return True
    raise SafeError(f"{path!r} exists: --force overwrites it, {option} names another")


def _is_other(path: str) -> bool:
    """Whether something is there that a file must not take the place of: also a path of standard output, whatever that
    is.
    """
    try:
        found = os.stat(path)
        return not stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.fstat(1))
    except OSError:
        return False


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
