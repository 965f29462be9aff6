"""Containers made of namespaces, as a container engine makes them: own root, processes, users and volumes.

The root has what a Python image has, read-only: the system's programs and libraries, Python, and these tests. There is
nothing else in it but what a test mounts. They need root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_IMAGE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/dev", "/sys")
_TESTS = str(Path(__file__).parents[1])


@cache
def unavailable() -> str:
    """Why there can be no containers here, or an empty text."""
    if os.geteuid():
        return "only root can make namespaces"
    for program in ("unshare", "setpriv", "mount", "chroot"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    done = subprocess.run(Container().command("true"), capture_output=True, text=True, check=False)
    return f"namespaces are not permitted: {done.stderr.strip()}" if done.returncode else ""


@dataclass
class Container:
    """How processes of a container run.

    Attributes:
        user: Their user id, without an entry in ``/etc/passwd`` if there is none on this machine.
        groups: Their groups; the first one is that of the user.
        volumes: Folders of this machine, by their paths in the container. They can be written to.
        has_tmp: Whether there is a ``/tmp``, which is theirs alone.
        shm: The size of ``/dev/shm``, as ``mount`` takes it.
        own_processes: Whether they see only each other, so that process ids begin at 1.
        network: The name of a network namespace, or empty for that of this machine.
        host_name: A host name of its own, or empty for that of this machine.
        up_for: How many seconds longer than the machine it seems to be running for: its clocks since the boot.
    """

    user: int = 0
    groups: tuple[int, ...] = (0,)
    volumes: dict[str, Path] = field(default_factory=dict)
    has_tmp: bool = True
    shm: str = "64m"
    own_processes: bool = True
    network: str = ""
    host_name: str = ""
    up_for: int = 0

    def command(self, *arguments: str) -> list[str]:
        """The command that runs these arguments in a container of their own. If it is killed, so is all in it."""
        namespaces = ["--mount", "--propagation=private"]
        if self.own_processes:
            namespaces += ["--pid", "--fork", "--kill-child"]
        if self.host_name:
            namespaces.append("--uts")
        if self.up_for:
            namespaces += ["--time", f"--monotonic={self.up_for}", f"--boottime={self.up_for}"]
        inside = ["ip", "netns", "exec", self.network] if self.network else []
        return [*inside, "unshare", *namespaces, "bash", "-euc", self._script(), "container", *arguments]

    def _script(self) -> str:
        root = "/mnt"  # a mount of this namespace alone: no other process sees it
        lines = [f"mount -t tmpfs -o mode=755 image {root}"]
        if self.host_name:
            lines.append(f"hostname {self.host_name}")
        if self.has_tmp:  # first, since Python or these tests may be within
            lines += [f"mkdir {root}/tmp", f"mount -t tmpfs -o mode=1777 tmp {root}/tmp"]
        for path in (*_IMAGE, sys.base_prefix, sys.prefix, _TESTS):
            if os.path.islink(path):
                lines.append(f"cp -P {path} {root}{path}")
            elif os.path.isdir(path):
                lines += [f"mkdir -p {root}{path}", f"mount --rbind {path} {root}{path}"]
                if path not in {"/dev", "/sys"}:
                    lines.append(f"mount -o remount,bind,ro {root}{path}")
        lines += [f"mkdir {root}/proc", f"mount -t proc proc {root}/proc"]
        lines += [f"mount -t tmpfs -o mode=1777,size={self.shm} shm {root}/dev/shm"]
        for path, folder in self.volumes.items():
            lines += [f"mkdir -p {root}{path}", f"mount --bind {shlex.quote(str(folder))} {root}{path}"]
        lines.append(f"mount -o remount,ro {root}")
        user = f"--reuid {self.user} --regid {self.groups[0]} --groups {','.join(map(str, self.groups))}"
        if self.user:
            user += " --bounding-set=-all --no-new-privs"
        lines.append(f'cd {root}; exec chroot {root} setpriv {user} -- "$@"')
        return "\n".join(lines)
