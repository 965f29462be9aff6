"""The folders for this user's files in a Ray session, and the reports of problems that are marked there."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ray_tracing_hooks._safety.guard import logger
from ray_tracing_hooks._safety.private import open_file, open_folder

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess


FOLDER = "ray_tracing_hooks"


def folders(process: RayProcess) -> tuple[str, ...]:
    """The folders for this user's files, in order of preference."""
    return (process.session_dir,) if process.is_client else session_folders(process.session_dir)


def session_folders(session_dir: str) -> tuple[str, str]:
    """The folder for this user's files in a Ray session, and the alternative if that one belongs to another user.

    Ray lets every user write to its session folder, and join another user's cluster.
    """
    folder = os.path.join(session_dir, FOLDER)
    return folder, f"{folder}-{os.geteuid()}"


def make_private_folder(path: str) -> str | None:
    """Create a folder that only this user can enter; returns what is wrong with it, or None.

    Spool files are read and sent, so no other user may be able to put one there.
    """
    try:
        os.close(open_folder(path))
    except OSError as error:
        return f"{path!r}: {error.strerror}"
    return None


def reporter(process: RayProcess) -> Callable[[str], None]:
    """Warns in a driver; in a worker only if no other process of the node has logged the same warning, since Ray shows
    the logs of all workers in the driver.
    """

    def warn(message: str) -> None:
        mark = "said-" + hashlib.sha256(message.encode("utf-8", "replace")).hexdigest()[:16]
        # A client has no session folder in which other processes could have left the mark.
        if process.is_client or is_first(mark, process.session_dir) or process.is_driver:
            logger.warning("ray_tracing_hooks: %s", message)

    return warn


def is_first(mark: str, session_dir: str) -> bool:
    """Create a file of this name; False if it exists. True if that cannot be determined: better twice than never."""
    for path in session_folders(session_dir):
        with contextlib.suppress(OSError):
            folder = open_folder(path)
            try:
                os.close(open_file(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder=folder))
            except FileExistsError:
                return False
            finally:
                os.close(folder)
            return True
    return True
