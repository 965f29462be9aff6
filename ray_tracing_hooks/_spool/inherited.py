"""Closes descriptors that hold a lock in forked children, which would otherwise hold the lock as long as they live.

A descriptor that one thread is just opening is not recorded anywhere when another thread forks. So the opening thread
registers the folder first, and a child that is forked meanwhile looks for descriptors in it.
"""

from __future__ import annotations

import os

from ray_tracing_hooks._safety.private import close_open

_folders: list[str] = []


class BeingOpened:
    """Wraps the opening and locking of a file in ``folder``: a child forked meanwhile closes its descriptors there.

    No generator: what a signal handler raises while an abandoned one is closed would not reach the program.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        _folders.append(self._folder)

    def __exit__(self, *_: object) -> None:
        # A child that was forked inside the block has already cleared the list.
        if self._folder in _folders:
            _folders.remove(self._folder)


def _close() -> None:
    folders = {os.path.realpath(folder) for folder in _folders}
    _folders.clear()
    if folders:
        # The folder itself is open too while a file is created in it.
        close_open(lambda path: path in folders or os.path.dirname(path) in folders)


os.register_at_fork(after_in_child=_close)
