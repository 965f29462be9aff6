"""Places that files are written to: a folder, or an object store through ``fsspec``.

A file appears there as a whole, or not at all. Threads may use a place at the same time, each for other files. All
methods raise TargetError. ``text`` is the name of a place in messages.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from ray_tracing_hooks._safety.guard import TracingError
from ray_tracing_hooks._safety.private import open_file
from ray_tracing_hooks._settings.values import without_credentials

_PART = ".part"


class TargetError(TracingError):
    """The target cannot be written to."""


class _Folder:
    """A folder on this machine, with private files."""

    def __init__(self, path: str, on_wait: Callable[[], None]) -> None:
        self.text = os.path.abspath(path)
        try:
            os.makedirs(self.text, mode=0o700, exist_ok=True)
            self._held = os.open(self.text, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise TargetError(f"cannot create the folder {self.text!r}: {error.strerror}") from error
        with suppress(OSError):  # some network file systems have no locks
            try:
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(self._held, fcntl.LOCK_EX)

    def size(self, name: str) -> int | None:
        """The size of a file; None if there is none."""
        try:
            return os.stat(os.path.join(self.text, name)).st_size
        except OSError:
            return None

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """A file to write. Without an error it gets its name at the end; else an earlier one of this name stays."""
        path = os.path.join(self.text, name)
        part = path + _PART
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(open_file(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.rename(part, path)
        except OSError as error:
            raise TargetError(f"cannot write {path!r}: {error.strerror or error}") from error
        finally:
            with suppress(OSError):
                os.unlink(part)

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        try:
            with open(os.path.join(self.text, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TargetError(f"cannot read {os.path.join(self.text, name)!r}: {error.strerror}") from error

    def remove(self, folder: str, *, others: frozenset[str], known: frozenset[str]) -> None:
        """Remove files of a folder that are not among ``others``: in an object store those that are ``known``, since
        somebody else may write there, and here all, since this process has it for itself.
        """
        path = os.path.join(self.text, folder)
        for inside, _, names in os.walk(path):
            for file in (os.path.join(inside, name) for name in names):
                if os.path.relpath(file, path) not in others:
                    with suppress(OSError):
                        os.unlink(file)

    def close(self) -> None:
        os.close(self._held)


class _ObjectStore:
    """A folder of an object store."""

    def __init__(self, url: str) -> None:
        self.text = without_credentials(url.partition("?")[0])
        try:
            from fsspec.core import (  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415  optional
                url_to_fs,
            )

            self._system, self._path = url_to_fs(url)
        except Exception as error:
            reason = str(error).replace(url, without_credentials(url))
            raise TargetError(
                f"cannot write to {self.text}: it needs fsspec and the package for its scheme, such as `pip install "
                f"s3fs` ({reason})"
            ) from error

    def size(self, name: str) -> int | None:
        try:
            return int(self._system.size(self._of(name)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise TargetError(f"cannot read {self.text}: {error}") from error

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        # By a file on this machine: not every file system can give up an object that is begun.
        with tempfile.NamedTemporaryFile() as file:
            try:
                yield cast("BinaryIO", file)
                file.flush()
            except OSError as error:
                raise TargetError(f"cannot write {file.name!r}: {error.strerror or error}") from error
            try:
                self._system.makedirs(os.path.dirname(self._of(name)), exist_ok=True)
                self._system.put_file(file.name, self._of(name))
            except Exception as error:
                raise TargetError(f"cannot write {self._of(name)!r}: {error}") from error

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._system.cat_file(self._of(name)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise TargetError(f"cannot read {self._of(name)!r}: {error}") from error

    def remove(self, folder: str, *, others: frozenset[str], known: frozenset[str]) -> None:
        for name in known - others:
            with suppress(Exception):
                self._system.rm_file(self._of(f"{folder}/{name}"))

    def close(self) -> None:
        """Nothing is open."""

    def _of(self, name: str) -> Any:
        return f"{self._path.rstrip('/')}/{name}"


Target = _Folder | _ObjectStore


def target_of(place: str, on_wait: Callable[[], None] = lambda: None) -> Target:
    """The target at a path or a URL. Raises TargetError.

    A folder takes one run at a time: ``on_wait`` is called if this one has to wait for another.
    """
    return _ObjectStore(place) if "://" in place else _Folder(place, on_wait)
