"""The files of a shipper in its spool folder, besides the segments."""

from __future__ import annotations

import errno
import fcntl
import os
import time

from ray_tracing_hooks._safety.private import open_file, read_file, write_atomically

LOCK = "shipper.lock"
"""Locked as long as a shipper is running or starting."""

SOCKET = "shipper.sock"
"""The socket on which a shipper takes requests."""

PLAN = "plan.json"
STATUS = "status.json"
"""The figures of delivery, see :mod:`~ray_tracing_hooks._ship.figures`."""

RETIRED = "left"
"""There if the processes of the node have gone on to another spool, since their settings have changed. It has the name
of that spool, if it is beside this one."""

REPLAY_PREFIX = ".replay-"
"""The prefix of the names of files with the progress of replays."""

PASSING = frozenset({errno.EIO, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of opening or reading a file that may pass."""

_PATIENCE = (0.1, 0.3, 1.0, 3.0)
"""Seconds before each further attempt to read a file."""

_BLOCK = 4096

_TRIES, _PAUSE = 100, 0.001
"""How often, and with how many seconds in between, a lock is tried that others look at."""


def write_with_room(path: str, text: bytes) -> None:
    """Like :func:`write_atomically`, with padding to grow: on a full disk, an existing file is overwritten in place.

    Readers must accept blanks at the end. A kill during a write in place may leave the file malformed.
    """
    blocks = len(text) // _BLOCK + 4
    try:
        write_atomically(path, text, b" " * (blocks * _BLOCK - len(text)))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise error from None
        try:
            size = os.fstat(descriptor).st_size
            if len(text) > size or os.pwrite(descriptor, text.ljust(size), 0) != size:
                raise
        finally:
            os.close(descriptor)


def read_patiently(path: str) -> str:
    """Like ``read_file`` of ``_safety/private.py``, but tries again for some seconds where the error may pass."""
    for pause in _PATIENCE:
        try:
            return read_file(path)
        except OSError as error:
            if error.errno not in PASSING:
                raise
        time.sleep(pause)
    return read_file(path)


def take_lock(spool_dir: str) -> int | None:
    """A descriptor that holds the shipper's lock, or None if another process holds it. Raises OSError.

    The lock belongs to the descriptor, so a process that inherits it holds the lock too.
    """
    path = os.path.join(spool_dir, LOCK)
    while True:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        free = _lock(descriptor)
        if is_file_at(descriptor, path):
            if free:
                return descriptor
            os.close(descriptor)
            return None
        # A shipper that ended has removed the file since it was opened: try again with the new one.
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file; False if another process holds the lock, and does not only look whether somebody does."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(_PAUSE)
    return False


def successor_of(spool_dir: str) -> str | None:
    """The name of the spool to which the processes of this one have gone on, or an empty text if it is unknown; None if
    they have not gone on.
    """
    try:
        return read_file(os.path.join(spool_dir, RETIRED))
    except (OSError, ValueError):
        return None


def is_shipper_running(spool_dir: str) -> bool:
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
    """Whether ``path`` still names this open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False
