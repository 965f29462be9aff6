"""In which namespace of process ids this process is: containers that share a volume each count from 1."""

from __future__ import annotations

import os
import zlib

UNKNOWN = "0"
"""In place of a namespace that is not known."""

_BOOT = "/proc/sys/kernel/random/boot_id"


def pid_namespace() -> str:
    """Eight hexadecimal digits that differ between namespaces and between boots of machines, or :data:`UNKNOWN`."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
        with open(_BOOT, "rb") as file:
            boot = file.read()
    except OSError:
        return UNKNOWN
    return f"{zlib.crc32(boot + os.fsencode(namespace)):08x}"
