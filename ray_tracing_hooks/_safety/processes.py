"""Which process an id means: the system gives ids again, and containers that share a volume each count from 1."""

from __future__ import annotations

import os
import zlib

UNKNOWN = "0"
"""In place of a namespace that is not known."""

_BOOT = "/proc/sys/kernel/random/boot_id"

# Fields of /proc/PID/stat after the name: fields 3 and 22 in proc_pid_stat(5).
_STATE, _START_TIME = 0, 19
_ENDED = (b"Z", b"X")


def pid_namespace() -> str:
    """The namespace of process ids that this process is in, as eight hexadecimal digits that differ between namespaces
    and between boots of machines, or :data:`UNKNOWN`.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
        with open(_BOOT, "rb") as file:
            boot = file.read()
    except OSError as error:
        if error.errno is None:  # raised by a signal handler of the program
            raise
        return UNKNOWN
    # The next namespace may get the number of one that is gone. Where processes of other users are hidden, so is this.
    began = start_time(1)
    return f"{zlib.crc32(boot + os.fsencode(namespace) + (b'' if began is None else b'%d' % began)):08x}"


def start_time(pid: int | str) -> int | None:
    """When a process (``"self"``: this one) has started, in clock ticks since the boot of the machine; None if there is
    none, or only what is left of it until its parent has asked for its exit code.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # pid (name) state ppid ...; a name may contain blanks and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[_STATE] in _ENDED else int(fields[_START_TIME])
    except OSError as error:
        if error.errno is None:  # as above
            raise
        return None
    except (IndexError, ValueError):
        return None
