"""Whether a folder takes files, and how much room its disk has."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from typing import Any

from ray_tracing_hooks._safety.private import open_file, open_folder

SPOOL, LOCAL = "spool", "local"
"""What folders are for: spans that wait, and the files of the local exporter."""


def folder(what: str, path: str, limit: int) -> dict[str, Any]:
    """What is found of the folder for ``what``: the reason why it takes no files, if any, and the room on its disk.

    It is opened as delivery does, but not created. ``limit`` are the most bytes that its files take.
    """
    found: dict[str, Any] = {"what": what, "path": path, "error": None, "is_full": False, "limit": limit}
    try:
        opened = open_folder(path, make=False, given=True)
    except FileNotFoundError:
        return found | _above(path)
    except OSError as error:
        return found | {"error": error.strerror or str(error)}
    try:
        return found | _room(opened) | _write(opened)
    finally:
        os.close(opened)


def _write(opened: int) -> dict[str, Any]:
    """Whether a file can be written there."""
    name = f".doctor-{secrets.token_hex(4)}"
    try:
        descriptor = open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder=opened)
        try:
            os.write(descriptor, bytes(4096))
        finally:
            os.close(descriptor)
    except OSError as error:
        return {"error": error.strerror or str(error), "is_full": error.errno in {errno.ENOSPC, errno.EDQUOT}}
    finally:
        with suppress(OSError):
            os.unlink(name, dir_fd=opened)
    return {}


def _above(path: str) -> dict[str, Any]:
    """The same of the nearest folder that exists above a path: the first span creates the rest."""
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    try:
        opened = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return {"error": f"{above!r} is in the way: {error.strerror}"}
    try:
        if not os.access(above, os.W_OK | os.X_OK):
            is_mounted_so = bool(os.fstatvfs(opened).f_flag & os.ST_RDONLY)
            why = "its disk is read-only" if is_mounted_so else "this user may not write there"
            return {"error": f"it does not exist, and cannot be created in {above!r}: {why}"}
        return _room(opened)
    finally:
        os.close(opened)


def _room(opened: int) -> dict[str, Any]:
    room = os.fstatvfs(opened)
    return {"free": room.f_bavail * room.f_frsize, "size": room.f_blocks * room.f_frsize}
