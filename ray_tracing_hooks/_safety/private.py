"""Private folders and files of this user, in places where other users may have created something first.

All users can write to ``/tmp`` and to the folders of a Ray session. So a name proves nothing: each path is opened
without following links and without blocking, and then the opened file is checked. Files are named relative to the
opened folder, which stays the same whatever happens to its path.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from resource import RLIMIT_NOFILE, getrlimit
from typing import NoReturn

_NOBODY_ELSE = 0o077
"""The permissions that a private folder denies to all other users."""

_NO_OTHER_WRITER = stat.S_IWGRP | stat.S_IWOTH

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_TRIES = 10
_MOST_TEXT = 64 << 20
_TEMPORARY = re.compile(r"\.[0-9a-f]{8}\.new$")


def open_folder(path: str, *, make: bool = True, given: bool = False, group: int | None = None) -> int:
    """A descriptor of the folder, to name files relative to; :func:`inside` gives a path for it.

    With ``make``, it and its missing parents are created for this user alone, and a ``group`` that may read them,
    whatever the umask is. If the folder exists and other users have permissions, these are removed, unless the user of
    this package has ``given`` it: that may be anything, such as a folder of a project, so it stays as it is. Others may
    then be able to remove files from it, and to put some there.

    Raises OSError, whose ``strerror`` gives the reason: the folder does not exist, belongs to another user, is shared
    by all users (as ``/tmp``) or is a link, or another user put a link on the way to it; or the group may not read it.
    Links of this user and of root are followed on the way.
    """
    steps = _steps(os.path.abspath(path))
    links = 0
    here = os.open("/", _PATH)
    try:
        while steps:
            name = steps.pop()
            there = _step(here, name, path, make=make, group=group)
            found = os.fstat(there)
            if stat.S_ISLNK(found.st_mode):
                try:
                    target = os.readlink("", dir_fd=there)
                finally:
                    os.close(there)
                links += 1
                if not steps or links > _MOST_LINKS:
                    _refuse("it is a symbolic link, which somebody else may have put there", path)
                if found.st_uid not in {0, os.geteuid()}:
                    _refuse(f"{name!r} in it is a symbolic link that another user (uid {found.st_uid}) put there", path)
                steps += _steps(target)
                if not target.startswith("/"):
                    continue
                there = os.open("/", _PATH)
            # In this order: a signal handler that raises in between leaks a descriptor, but closes none twice.
            here, passed = there, here
            os.close(passed)
        return _claimed(here, path, group, given=given)
    finally:
        os.close(here)


def inside(folder: int) -> str:
    """A path that, in this process, always leads to this open folder."""
    return f"/proc/self/fd/{folder}"


def close_open(is_wanted: Callable[[str], bool], *, but: int = -1) -> None:
    """Close the descriptors of this process, without the one ``but``, whose path is wanted.

    Raises OSError if they cannot be listed.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) != but and is_wanted(os.readlink(inside(int(name)))):
                os.close(int(name))
        except OSError as error:
            if error.errno is None:  # raised by a signal handler of the program
                raise


_LEAST_NUMBER = 800
"""The lowest number for our descriptors; three quarters of the limit where that is lower. Code that closes all
descriptors it does not know, as libraries for daemons do, closes ours too, and the next file that the program opens
gets the lowest free number: not ours."""


def apart(descriptor: int) -> int:
    """The same open file, locks included, under a high number that the program's own files do not get."""
    most, _ = getrlimit(RLIMIT_NOFILE)
    least = _LEAST_NUMBER if most < 0 else min(_LEAST_NUMBER, most * 3 // 4)
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    except OSError as error:
        if error.errno is None:  # raised by a signal handler of the program
            raise
        return descriptor  # no such number is free
    os.close(descriptor)
    return moved


def open_file(name: str, flags: int, *, folder: int | None = None) -> int:
    """A descriptor of a regular file of this user; if ``flags`` create it, only this user can read it.

    Never blocks, as opening a FIFO would. Raises OSError, whose ``strerror`` gives the reason; also for a link, and for
    a file with a second hard link, since another user may have made that.
    """
    try:
        file = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _refuse("it is a symbolic link, which somebody else may have put there", name)
        if error.errno == errno.ENXIO:  # a socket, or a FIFO without a reader
            _refuse("it is not a file", name)
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            _refuse("it is not a file", name)
        if found.st_uid != os.geteuid():
            _refuse(f"it belongs to another user (uid {found.st_uid})", name)
        if found.st_nlink > 1:
            _refuse("it is a file that has a second name, which somebody else may have given it", name)
        if flags & os.O_CREAT and found.st_mode & 0o600 != 0o600:
            os.fchmod(file, stat.S_IMODE(found.st_mode) | 0o600)
    except BaseException:
        os.close(file)
        raise
    return file


def write_atomically(path: str, *parts: bytes) -> None:
    """Create or replace a file that only this user can read; no reader sees it incomplete. Raises OSError."""
    temporary = f"{path}.{os.urandom(4).hex()}.new"
    descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(parts)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def final_name(name: str) -> str:
    """The name of the file that a temporary file of :func:`write_atomically` replaces; other names as they are."""
    return _TEMPORARY.sub("", name)


def share(descriptor: int, group: int) -> None:
    """Let a group read this file, or this folder, of ours. Raises OSError, if only since we are not in that group."""
    found = os.fstat(descriptor)
    bits = 0o050 if stat.S_ISDIR(found.st_mode) else 0o040
    try:
        if found.st_gid != group:
            # First, so that the group that it has had cannot read it either.
            os.fchown(descriptor, -1, group)
        if found.st_mode & bits != bits:
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) | bits)
    except OSError as error:
        if error.errno is None:  # raised by a signal handler of the program
            raise
        raise OSError(error.errno, f"it cannot be given to the group {group}: {error.strerror}") from error


def read_file(path: str) -> str:
    """The text of a file of this user. Raises OSError as :func:`open_file` does, or if the file is far too large."""
    with open(open_file(path, os.O_RDONLY), encoding="utf-8") as file:
        text = file.read(_MOST_TEXT + 1)
    if len(text) > _MOST_TEXT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return text


def _steps(path: str) -> list[str]:
    """The names in a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]


def _step(here: int, name: str, path: str, *, make: bool, group: int | None) -> int:
    """The entry of this name in the open folder, as an ``O_PATH`` descriptor."""
    made = False
    for _ in range(_TRIES):
        try:
            there = os.open(name, _PATH, dir_fd=here)
        except FileNotFoundError:
            if not make:
                break
        else:
            if made:
                _open_to_owner(there, group)
            return there
        # If it exists by now, another process has created or replaced it.
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=here)
            made = True
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _open_to_owner(made: int, group: int | None) -> None:
    """Undo what an odd umask did to a folder just created, and share it with the group, unless it has been replaced
    meanwhile.
    """
    found = os.fstat(made)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        if found.st_mode & 0o700 != 0o700:
            os.chmod(inside(made), stat.S_IMODE(found.st_mode) | 0o700)
        if group is not None:
            folder = os.open(inside(made), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                share(folder, group)
            finally:
                os.close(folder)


def _claimed(here: int, path: str, group: int | None, *, given: bool) -> int:
    deny = _NO_OTHER_WRITER if given else _NOBODY_ELSE
    found = os.fstat(here)
    if not stat.S_ISDIR(found.st_mode):
        _refuse("it is not a folder", path)
    if found.st_uid != os.geteuid():
        _refuse(f"it belongs to another user (uid {found.st_uid})", path)
    folder = os.open(inside(here), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if found.st_mode & deny and found.st_mode & stat.S_ISVTX:
            _refuse("all users share it", path)  # as /tmp, which must stay as it is
        if found.st_mode & deny and not given:
            try:
                os.fchmod(folder, stat.S_IMODE(found.st_mode) & ~_NOBODY_ELSE)
            except OSError as error:
                if error.errno is None:
                    raise
                raise OSError(error.errno, "others may write to it, and that cannot be changed", path) from error
        if not os.access(inside(folder), os.W_OK | os.X_OK):
            _refuse("it is read-only", path)
        if group is not None:
            _let_in(folder, group, path)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _let_in(folder: int, group: int, path: str) -> None:
    """Raise OSError if the group may not read the folder. An empty one that is private may just be being made by
    another thread or process, and nothing in it was kept from the group.
    """
    is_empty = not os.listdir(folder)
    found = os.fstat(folder)  # in this order: what is made is shared before anything is written to it
    bits = 0o050 if found.st_gid == group else 0o005
    if found.st_mode & bits == bits:
        return
    if found.st_mode & _NOBODY_ELSE or not is_empty:
        _refuse(f"the group {group} may not read it: `chgrp {group}` and `chmod g+rx` would let it", path)
    share(folder, group)


def _refuse(reason: str, path: str) -> NoReturn:
    raise OSError(errno.EPERM, reason, path)


_folders: list[str] = []


class BeingOpened:
    """Wraps the opening and locking of a file in ``folder``: a child forked meanwhile closes its descriptors there.

    They would hold the lock as long as the child lives, and nothing else knows them yet.

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
