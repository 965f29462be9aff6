"""In which namespace of process ids this process is: containers that share a volume each count from 1."""

from __future__ import annotations

import os
import zlib

UNKNOWN = "0"
"""In place of a namespace that is not known."""

_BOOT = "/proc/sys/kernel/random/boot_id"
_FIRST = "/proc/1/stat"


def pid_namespace() -> str:
    """Eight hexadecimal digits that differ between namespaces and between boots of machines, or :data:`UNKNOWN`."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
        with open(_BOOT, "rb") as file:
            boot = file.read()
    except OSError as error:
        if error.errno is None:  # raised by a signal handler of the program
            raise
        return UNKNOWN
    return f"{zlib.crc32(boot + os.fsencode(namespace) + _beginning()):08x}"


def _beginning() -> bytes:
    """When process 1 began, in ticks since the boot: the next namespace may get the number of one that is gone. Empty
    where processes of other users are hidden.
    """
    try:
        with open(_FIRST, "rb") as file:
            # pid (name) state ppid ...; a name may contain blanks and parentheses.
            return file.read().rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        return b""
