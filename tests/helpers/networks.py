"""A network of hosts with addresses of their own, made of network namespaces, which can be cut and joined again.

They are connected by a switch in a namespace of its own, and reach nothing else. They need root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from functools import cache

_CLONE_NEWNET = 0x40000000


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@cache
def unavailable() -> str:
    """Why there can be no networks here, or an empty text."""
    if os.geteuid():
        return "only root can make network namespaces"
    if shutil.which("ip") is None:
        return "there is no ip, of iproute2"
    try:
        Network(1).remove()
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted: {error.stderr.strip()}"
    return ""


class Network:
    """Hosts 1 to ``hosts``, which have the addresses 10.77.0.1 and so on."""

    def __init__(self, hosts: int) -> None:
        self._prefix = f"rth{os.getpid()}"
        self._switch = f"{self._prefix}s"
        self._hosts = range(1, hosts + 1)
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "switch", "up")
            for host in self._hosts:
                _ip("netns", "add", self.name(host))
                port = f"port{host}"
                _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "eth0", "netns", self.name(host))
                _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
                _ip("-n", self.name(host), "address", "add", f"{self.address(host)}/24", "dev", "eth0")
                _ip("-n", self.name(host), "link", "set", "eth0", "up")
                _ip("-n", self.name(host), "link", "set", "lo", "up")
        except BaseException:
            self.remove()
            raise

    def name(self, host: int) -> str:
        """The name of its namespace, for ``ip netns exec``."""
        return f"{self._prefix}h{host}"

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host}"

    def cut(self, host: int) -> None:
        """From now on, no packet reaches the host or comes from it, and nobody is told."""
        _ip("-n", self._switch, "link", "set", f"port{host}", "nomaster")

    def join(self, host: int) -> None:
        """Undo that."""
        _ip("-n", self._switch, "link", "set", f"port{host}", "master", "switch")

    def listen(self, host: int, port: int) -> socket.socket:
        """A socket of this process that listens on a host."""
        made: list[socket.socket] = []

        def make() -> None:
            # A thread may be in another network namespace than its process.
            with open(f"/run/netns/{self.name(host)}", "rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            made.append(socket.create_server((self.address(host), port)))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def remove(self) -> None:
        """Processes in it keep what they use until they end."""
        for name in (*map(self.name, self._hosts), self._switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
