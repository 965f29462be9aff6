"""The folders of this user's files in a session of Ray."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ray_tracing_hooks._private import open_folder

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess

FOLDER = "ray_tracing_hooks"


def folders(process: RayProcess) -> tuple[str, ...]:
    """The folders of this user's files, the next one to be used where one cannot be."""
    return (process.session_dir,) if process.is_client else session_folders(process.session_dir)


def session_folders(session_dir: str) -> tuple[str, str]:
    """The folder of this user's files in a Ray session, and the one to use where that is somebody else's.

    Ray lets every user write to its session, and join the cluster of another one.
    """
    folder = os.path.join(session_dir, FOLDER)
    return folder, f"{folder}-{os.geteuid()}"


def make_private_folder(path: str) -> str | None:
    """Make a folder that only this user can enter; what is wrong with it, or None.

    Spool files are read and sent on, so nobody else may be able to put one there.
    """
    try:
        os.close(open_folder(path))
    except OSError as error:
        return f"{path!r}: {error.strerror}"
    return None
