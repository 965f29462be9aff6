"""Descriptors that hold a lock and must not live on in a forked child, which would hold it for as long as it lives.

A descriptor that a thread is just opening is known to nobody when another thread forks. So whoever opens one says so
before, and a child that was forked meanwhile looks for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_folders: list[str] = []


@contextlib.contextmanager
def being_opened(folder: str) -> Iterator[None]:
    """Inside, a file of ``folder`` is opened and locked. A child that is forked meanwhile has none of that folder."""
    _folders.append(folder)
    try:
        yield
    finally:
        # A child that was forked inside the block has forgotten about it.
        with contextlib.suppress(ValueError):
            _folders.remove(folder)


def _close() -> None:
    folders = {os.path.realpath(folder) for folder in _folders}
    _folders.clear()
    if folders:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{name}")
                # The folder itself is open too while a file is being made in it.
                if path in folders or os.path.dirname(path) in folders:
                    os.close(int(name))


os.register_at_fork(after_in_child=_close)
