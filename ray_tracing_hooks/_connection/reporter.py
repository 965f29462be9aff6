"""How a process tells its user what is wrong."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ray_tracing_hooks._connection.folders import session_folders
from ray_tracing_hooks._guard import logger
from ray_tracing_hooks._private import open_file, open_folder

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess


def reporter(process: RayProcess) -> Callable[[str], None]:
    """In a driver: a warning. In a worker: a warning that no other process of the node has given, since Ray shows the
    log of every worker in the driver.
    """

    def tell(message: str) -> None:
        mark = "said-" + hashlib.sha256(message.encode("utf-8", "replace")).hexdigest()[:16]
        # Where a client runs there is no session in which others have said it.
        if process.is_client or is_first(mark, process.session_dir) or process.is_driver:
            logger.warning("ray_tracing_hooks: %s", message)

    return tell


def is_first(mark: str, session_dir: str) -> bool:
    """Make a file of this name, unless there is one. Where that cannot be known: better said twice than not at all."""
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
