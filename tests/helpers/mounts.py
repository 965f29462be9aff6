"""File systems that tests mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, options: str, kind: str = "tmpfs", device: int | None = None) -> Iterator[Path]:
    """A file system over a folder, which is made where it is missing. Skips the test without the right to mount.

    It ends with the context, or with this process if that is killed: a dead mount would make later runs of tests fail.

    Args:
        folder: Where.
        options: As ``mount -o`` takes them.
        kind: Its type.
        device: A descriptor that the options name.
    """
    folder.mkdir(exist_ok=True)
    command = ["mount", "-i", "-t", kind, "-o", options, kind, str(folder)]
    kept = () if device is None else (device,)
    done = subprocess.run(command, pass_fds=kept, capture_output=True, text=True, check=False)
    if os.geteuid() or done.returncode:
        pytest.skip(f"needs the right to mount a file system: {done.stderr.strip()}")
    # Its input ends with this process. No signal for this process's group reaches it.
    guard = ["sh", "-c", 'read -r _; exec umount -l "$0"', str(folder)]
    with subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True) as unmounting:
        yield folder
    assert unmounting.returncode == 0
