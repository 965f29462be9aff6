"""Folders and files of this user's own, in places where other users may have put something first.

``/tmp`` and the folders of a Ray session can be written to by everybody. So nothing is taken for ours because of its
name: it is opened without following links and without waiting, and what was opened is looked at. Files are then named
relative to the folder that was opened, which stays the same whatever is done to its path.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import NoReturn

NOBODY_ELSE = 0o077
"""The permissions that others have not in a folder that is this user's alone."""

NO_OTHER_WRITER = stat.S_IWGRP | stat.S_IWOTH

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_TRIES = 10
_MOST_TEXT = 64 << 20


def open_folder(path: str, *, deny: int = NOBODY_ELSE, make: bool = True) -> int:
    """A descriptor of the folder, for files to be named relative to it; see :func:`inside` where that takes a path.

    With ``make`` it and its parents are made where they are missing, for this user alone whatever the umask says. The
    permissions ``deny`` are taken from the others if they have them.

    Raises OSError, whose ``strerror`` says why: the folder is not there, not this user's, or a link, or a link on the
    way to it was put there by somebody else. Links of this user and of root are followed on the way; in a user
    namespace that does not know root, those in folders of their owner that nobody else writes to.
    """
    steps = _steps(os.path.abspath(path))
    links = 0
    here = os.open("/", _PATH)
    try:
        while steps:
            name = steps.pop()
            there = _step(here, name, path, make=make)
            found = os.fstat(there)
            if stat.S_ISLNK(found.st_mode):
                try:
                    target = os.readlink("", dir_fd=there)
                finally:
                    os.close(there)
                links += 1
                if not steps or links > _MOST_LINKS:
                    _refuse("it is a symbolic link, which somebody else may have put there", path)
                if found.st_uid not in {0, os.geteuid()} and not _is_out_of_reach(here, found.st_uid):
                    _refuse(f"{name!r} in it is a symbolic link that another user (uid {found.st_uid}) put there", path)
                steps += _steps(target)
                if not target.startswith("/"):
                    continue
                there = os.open("/", _PATH)
            # In this order: a signal handler that raises in between costs a descriptor, and closes none twice.
            here, passed = there, here
            os.close(passed)
        return _claimed(here, path, deny)
    finally:
        os.close(here)


def _is_out_of_reach(folder: int, owner: int) -> bool:
    """Whether a link of this owner may be root's, and none that was put into a folder where others write.

    In a user namespace all users that it does not know seem to be one: root too, and somebody else.
    """
    found = os.fstat(folder)
    return found.st_uid == owner and not found.st_mode & NO_OTHER_WRITER and _is_unknown(owner)


def _is_unknown(user: int) -> bool:
    try:
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            if int(file.read()) != user:
                return False
        with open("/proc/self/uid_map", "rb") as file:
            known = [[int(number) for number in line.split()] for line in file]
    except (OSError, ValueError):
        return False
    return not any(first <= user < first + count for first, _, count in known)


def inside(folder: int) -> str:
    """A path that leads to this open folder and to nothing else, in this process."""
    return f"/proc/self/fd/{folder}"


def open_file(name: str, flags: int, *, folder: int | None = None) -> int:
    """A descriptor of a regular file of this user's; where ``flags`` make it, nobody else can read it.

    Never waits, as opening a FIFO would. Raises OSError, whose ``strerror`` says why: also for a link, and for a file
    with a second name, since that may be one that somebody else gave to a file of ours.
    """
    try:
        file = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _refuse("it is a symbolic link, which somebody else may have put there", name)
        if error.errno == errno.ENXIO:  # a socket, or a FIFO that nobody reads
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


def open_fifo(path: str) -> int:
    """A descriptor to write to a FIFO that somebody reads. Never waits. Raises OSError, ENXIO where nobody reads."""
    fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(fifo).st_mode):
        os.close(fifo)
        _refuse("it is not a FIFO", path)
    return fifo


def read_file(path: str) -> str:
    """The text of a file of this user's. Raises OSError as :func:`open_file`, or for one that is far too large."""
    with open(open_file(path, os.O_RDONLY), encoding="utf-8") as file:
        text = file.read(_MOST_TEXT + 1)
    if len(text) > _MOST_TEXT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return text


def _steps(path: str) -> list[str]:
    """The names in a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]


def _step(here: int, name: str, path: str, *, make: bool) -> int:
    """What has this name in the open folder, as a descriptor that only says what it is."""
    made = False
    for _ in range(_TRIES):
        try:
            there = os.open(name, _PATH, dir_fd=here)
        except FileNotFoundError:
            if not make:
                break
        else:
            if made:
                _open_to_owner(there)
            return there
        # Where it is there by now it was made, or has just been exchanged, by somebody else.
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=here)
            made = True
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _open_to_owner(made: int) -> None:
    """Undo what an odd umask does to a folder that was just made, unless it has been exchanged meanwhile."""
    found = os.fstat(made)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o700 != 0o700:
        os.chmod(inside(made), 0o700)


def _claimed(here: int, path: str, deny: int) -> int:
    found = os.fstat(here)
    if not stat.S_ISDIR(found.st_mode):
        _refuse("it is not a folder", path)
    if found.st_uid != os.geteuid():
        _refuse(f"it belongs to another user (uid {found.st_uid})", path)
    folder = os.open(inside(here), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if found.st_mode & deny:
            try:
                os.fchmod(folder, stat.S_IMODE(found.st_mode) & ~NOBODY_ELSE)
            except OSError as error:
                raise OSError(error.errno, "others may write to it, and that cannot be changed", path) from error
        if not os.access(inside(folder), os.W_OK | os.X_OK):
            _refuse("it is read-only", path)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _refuse(reason: str, path: str) -> NoReturn:
    raise OSError(errno.EPERM, reason, path)
