"""A disk that fails on command: a real file system through FUSE, whose results a test decides.

It keeps files in memory and speaks the kernel's protocol itself, so nothing has to be installed. It is no mock: system
calls of any process go through the kernel to it, and come back with its errors.
The protocol is that of the kernel's ``include/uapi/linux/fuse.h``, version 7.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")

LOOKUP, FORGET, GETATTR, SETATTR, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, OPEN, READ = 1, 2, 3, 4, 8, 9, 10, 11, 12, 14, 15
WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 16, 17, 18, 20, 25, 26, 27, 28, 29
ACCESS, CREATE, BATCH_FORGET, RENAME2 = 34, 35, 42, 45

_CHANGES = frozenset({SETATTR, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, RENAME2, WRITE, CREATE})


class _Node:
    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.data = bytearray()
        self.names: dict[bytes, int] = {}
        self.links = 1


class FaultyDisk:
    """Mounted at ``path`` as long as it is used as a context. Needs root.

    It is served by a process of its own: a process that waits for itself could not be ended.

    Attributes:
        fail: By the name of an operation (``write``, ``read``, ``create``, ``socket``, ``list``, or ``change`` for all
            that change something) the errno that it fails with.
        bad: The names of files whose reads fail with EIO.
        unknown: The names of files that fail with EIO where they are looked at or opened.
        unlisted: The names of files that a list of their folder lacks.
        delay: Seconds that each write takes.
        room: Bytes that all files may take; a write past it takes what fits, and the next one ENOSPC.
    """

    fail: dict[str, int]
    bad: set[str]
    unknown: set[str]
    unlisted: set[str]
    delay: float
    room: int

    def __init__(self, path: Path) -> None:
        self.path = path

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in _State.__annotations__:
            told = {name: sorted(value) if isinstance(value, set) else value}
            self._control.sendall(json.dumps(told).encode() + b"\n")
            assert self._control.recv(1) == b"."

    def __enter__(self) -> FaultyDisk:  # noqa: PYI034  typing.Self is there from Python 3.11 on
        # Here, since the process that serves it runs this file too.
        import pytest
        from mounts import mounted

        try:
            device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            pytest.skip(f"needs the right to mount a file system with FUSE: {error}")
        try:
            # The descriptor has to have its number in the process that mounts.
            options = f"fd={device},rootmode=40700,user_id={os.geteuid()},group_id={os.getegid()}"
            self._mount = mounted(self.path, options, "fuse", device)
            self._mount.__enter__()
            self._control, theirs = socket.socketpair()
            command = [sys.executable, __file__, str(device), str(theirs.fileno())]
            self._server = subprocess.Popen(command, pass_fds=(device, theirs.fileno()))
            theirs.close()
        finally:
            os.close(device)
        return self

    def __exit__(self, *_: object) -> None:
        self._mount.__exit__(None, None, None)
        # Its end ends every request that still waits for an answer.
        self._control.close()
        self._server.wait(10)


class _State:
    fail: dict[str, int]
    bad: set[str]
    unknown: set[str]
    unlisted: set[str]
    delay: float
    room: int


class _Server(_State):
    """The file system itself, in its own process."""

    def __init__(self, device: int, control: int) -> None:
        self.fail = {}
        self.bad, self.unknown, self.unlisted = set(), set(), set()
        self.delay = 0.0
        self.room = 1 << 30
        self._nodes: dict[int, _Node] = {1: _Node(stat.S_IFDIR | 0o700)}
        self._next = 2
        self._device = device
        self._control = control

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._device, self._control], [], [])
            if self._control in ready:
                told = os.read(self._control, 1 << 16)
                if not told:
                    return
                for name, value in json.loads(told).items():
                    setattr(self, name, value)
                os.write(self._control, b".")
            elif not self._serve_one():
                return

    def _serve_one(self) -> bool:
        try:
            request = os.read(self._device, 1 << 20)
        except OSError as error:
            return error.errno != errno.ENODEV  # unmounted
        _, operation, unique, node, _, _, _, _ = _IN.unpack_from(request)
        if operation in (FORGET, BATCH_FORGET):
            return True
        failure, answer = 0, b""
        try:
            answer = self._answer(operation, node, request[_IN.size :])
        except OSError as error:
            failure = error.errno or errno.EIO
        except KeyError:
            failure = errno.ENOENT
        with contextlib.suppress(OSError):  # who asked was killed
            os.write(self._device, _OUT.pack(_OUT.size + len(answer), -failure, unique) + answer)
        return True

    def _answer(self, operation: int, number: int, body: bytes) -> bytes:
        for name, operations in (
            ("read", {READ}),
            ("write", {WRITE}),
            ("create", {CREATE, MKNOD, MKDIR}),
            ("socket", {MKNOD}),
            ("list", {READDIR}),
            ("change", _CHANGES),
        ):
            if operation in operations and name in self.fail:
                _raise(self.fail[name])
        handler = _HANDLERS.get(operation)
        if handler is None:
            _raise(errno.ENOSYS)
        return handler(self, number, body)

    def _init(self, _number: int, body: bytes) -> bytes:
        major, minor, readahead, _ = struct.unpack_from("<IIII", body)
        del major, minor
        return struct.pack("<IIIIHHIIHHIIIIII", 7, 31, readahead, 0, 8, 6, 1 << 17, 1, 0, 0, 0, 0, 0, 0, 0, 0)

    def _attr(self, number: int) -> bytes:
        node = self._nodes[number]
        now = int(time.time())
        size = len(node.data)
        return _ATTR.pack(
            number, size, -(-size // 512), now, now, now, 0, 0, 0, node.mode, node.links, 0, 0, 0, 4096, 0
        )

    def _entry(self, number: int) -> bytes:
        return _ENTRY.pack(number, 0, 0, 0, 0, 0) + self._attr(number)

    def _lookup(self, number: int, body: bytes) -> bytes:
        if os.fsdecode(_name(body)) in self.unknown:
            _raise(errno.EIO)
        return self._entry(self._nodes[number].names[_name(body)])

    def _getattr(self, number: int, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attr(number)

    def _setattr(self, number: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        mode = struct.unpack_from("<I", body, 68)[0]
        node = self._nodes[number]
        if valid & 1:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        if valid & 8:
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
        return self._getattr(number, b"")

    def _make(self, parent: int, name: bytes, mode: int) -> int:
        names = self._nodes[parent].names
        if name in names:
            _raise(errno.EEXIST)
        number, self._next = self._next, self._next + 1
        self._nodes[number] = _Node(mode)
        names[name] = number
        return number

    def _mknod(self, number: int, body: bytes) -> bytes:
        mode = struct.unpack_from("<I", body)[0]
        return self._entry(self._make(number, _name(body[16:]), mode))

    def _mkdir(self, number: int, body: bytes) -> bytes:
        mode = struct.unpack_from("<I", body)[0]
        return self._entry(self._make(number, _name(body[8:]), stat.S_IFDIR | mode))

    def _create(self, number: int, body: bytes) -> bytes:
        mode = struct.unpack_from("<I", body, 4)[0]
        return self._entry(self._make(number, _name(body[16:]), mode)) + _OPENED

    def _unlink(self, number: int, body: bytes) -> bytes:
        self._nodes[self._nodes[number].names.pop(_name(body))].links = 0
        return b""

    def _rename(self, number: int, body: bytes, head: int = 8) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        old, new = body[head:].split(b"\0")[:2]
        moved = self._nodes[number].names.pop(old)
        replaced = self._nodes[target].names.get(new)
        if replaced is not None:
            self._nodes[replaced].links = 0
        self._nodes[target].names[new] = moved
        return b""

    def _rename2(self, number: int, body: bytes) -> bytes:
        return self._rename(number, body, 16)

    def _open(self, _number: int, _body: bytes) -> bytes:
        return _OPENED

    def _read(self, number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        if any(names.get(os.fsencode(bad)) == number for names in self._all_names() for bad in self.bad):
            _raise(errno.EIO)
        return bytes(self._nodes[number].data[offset : offset + size])

    def _write(self, number: int, body: bytes) -> bytes:
        time.sleep(self.delay)
        _, offset, size = struct.unpack_from("<QQI", body)
        data = self._nodes[number].data
        used = sum(len(node.data) for node in self._nodes.values() if node.links)
        fits = min(size, max(0, self.room - used + max(0, len(data) - offset)))
        if size and not fits:
            _raise(errno.ENOSPC)
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + fits] = body[40 : 40 + fits]
        return struct.pack("<II", fits, 0)

    def _readdir(self, number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        out = b""
        for position, (name, child) in enumerate(list(self._nodes[number].names.items())[offset:], int(offset) + 1):
            if os.fsdecode(name) in self.unlisted:
                continue
            kind = self._nodes[child].mode >> 12 & 0xF
            entry = struct.pack("<QQII", child, position, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out

    def _all_names(self) -> list[dict[bytes, int]]:
        return [node.names for node in self._nodes.values() if node.names]

    def _statfs(self, _number: int, _body: bytes) -> bytes:
        return struct.pack("<QQQQQIIII24s", 1 << 20, 1 << 20, 1 << 20, 1000, 1000, 4096, 255, 4096, 0, b"")

    def _nothing(self, _number: int, _body: bytes) -> bytes:
        return b""


_HANDLERS: dict[int, Callable[[_Server, int, bytes], bytes]] = {
    LOOKUP: _Server._lookup,
    GETATTR: _Server._getattr,
    SETATTR: _Server._setattr,
    MKNOD: _Server._mknod,
    MKDIR: _Server._mkdir,
    UNLINK: _Server._unlink,
    RMDIR: _Server._unlink,
    RENAME: _Server._rename,
    RENAME2: _Server._rename2,
    OPEN: _Server._open,
    READ: _Server._read,
    WRITE: _Server._write,
    STATFS: _Server._statfs,
    RELEASE: _Server._nothing,
    FSYNC: _Server._nothing,
    FLUSH: _Server._nothing,
    INIT: _Server._init,
    OPENDIR: _Server._open,
    READDIR: _Server._readdir,
    RELEASEDIR: _Server._nothing,
    ACCESS: _Server._nothing,
    CREATE: _Server._create,
}

_OPENED = struct.pack("<QII", 0, 1, 0)
"""An opened file; the kernel keeps none of its bytes (FOPEN_DIRECT_IO), so that each read and write comes here."""


def _name(body: bytes) -> bytes:
    return body.split(b"\0", 1)[0]


def _raise(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    _Server(int(sys.argv[1]), int(sys.argv[2])).serve()
