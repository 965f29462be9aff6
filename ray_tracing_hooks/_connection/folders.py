"""The folders for this user's files in a Ray session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ray_tracing_hooks._safety.private import open_folder

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
