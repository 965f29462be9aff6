"""The files of a shipper in its spool folder, besides the segments."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets

from ray_tracing_hooks._private import open_file

LOCK = "shipper.lock"
"""Locked as long as a shipper runs or is being started."""

PLAN = "plan.json"
NEWS = "news.json"
"""A list of sentences for the user, see :mod:`~ray_tracing_hooks._ship.news`."""

_BLOCK = 4096


def write_atomically(path: str, text: str) -> None:
    """Make or replace a file that only this user can read: nobody ever sees a part of it. Raises OSError."""
    temporary = f"{path}.{secrets.token_hex(4)}.new"
    descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_with_room(path: str, text: str) -> None:
    """As :func:`write_atomically`, with room to grow: on a full disk, in place where there is already enough of it.

    Who reads the file must not mind blanks at its end. A kill in the middle of a write in place may leave it senseless.
    """
    blocks = len(text) // _BLOCK + 4
    try:
        write_atomically(path, text.ljust(blocks * _BLOCK))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise error from None
        try:
            size = os.fstat(descriptor).st_size
            encoded = text.encode()
            if len(encoded) > size or os.pwrite(descriptor, encoded.ljust(size), 0) != size:
                raise
        finally:
            os.close(descriptor)


def take_lock(spool_dir: str, *, wait: bool = False) -> int | None:
    """The descriptor that holds the lock of the shipper, or None if another holds it. Raises OSError.

    With ``wait`` this waits until it is free. The lock belongs to the descriptor, so whoever inherits it holds the lock
    from then on.
    """
    path = os.path.join(spool_dir, LOCK)
    while True:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        if is_file_at(descriptor, path):
            if free:
                return descriptor
            os.close(descriptor)
            return None
        # A shipper that ended has removed the file since it was opened: what counts is the next one.
        os.close(descriptor)


def is_locked(spool_dir: str) -> bool:
    """Whether a shipper holds its lock, or one is being started."""
    try:
        descriptor = open_file(os.path.join(spool_dir, LOCK), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_file_at(descriptor: int, path: str) -> bool:
    """Whether the open file is the one that ``path`` names now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False
