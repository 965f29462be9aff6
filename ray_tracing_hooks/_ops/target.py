"""Where collected files go: a folder, or an object store through ``pyarrow.fs`` or ``fsspec``.

``.collected.json`` in it has the size and the SHA-256 of each file that is complete. What is there and not in this list
is incomplete.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, NamedTuple

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks._private import open_file
from ray_tracing_hooks._values import without_credentials

LIST = ".collected.json"
_PART = ".part"
_STEP = 1 << 20
_SAVE = 2.0
"""Seconds between two stores of the list: files that are completed meanwhile are fetched again after a kill."""


class TargetError(TracingError):
    """The target cannot be written to."""


class Complete(NamedTuple):
    """A file that has been collected: its size, and the digest of its contents."""

    size: int
    sha256: str


class Writer(ABC):
    """Writes one file from an offset on. Closed without :meth:`complete`, it leaves what the next run can continue."""

    def __init__(self, hashed: Any) -> None:
        self.hashed = hashed

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append. Raises TargetError."""

    @abstractmethod
    def complete(self) -> None:
        """All has been written. Raises TargetError."""

    @abstractmethod
    def close(self) -> None:
        """Release it. Never raises."""


class Target(ABC):
    """A place for files. Threads may use it at the same time, each for other files.

    Attributes:
        text: What it is called in messages.
        appends: Whether a file that has grown can be continued; otherwise it is written again from its beginning.
    """

    appends = True

    def __init__(self, text: str) -> None:
        self.text = text
        self._lock = threading.Lock()
        self._saved = 0.0
        self._complete: dict[str, Complete] = {}
        with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
            found = json.loads(self._read_list())
            self._complete = {
                str(name): Complete(int(entry["size"]), str(entry["sha256"])) for name, entry in found.items()
            }

    def complete_of(self, name: str) -> Complete | None:
        """What is known of a file that is complete, and still there."""
        found = self._complete.get(name)
        return found if found is not None and self._size(name) == found.size else None

    def note(self, name: str, complete: Complete) -> None:
        """Remember that a file is complete. Raises TargetError."""
        with self._lock:
            if self._complete.get(name) == complete:
                return
            self._complete[name] = complete
            if time.monotonic() - self._saved > _SAVE:
                self._save()

    def close(self) -> None:
        """Store what is remembered, and release the target. Raises TargetError."""
        with self._lock:
            self._save()

    def _save(self) -> None:
        self._write_list(json.dumps({each: entry._asdict() for each, entry in sorted(self._complete.items())}))
        self._saved = time.monotonic()

    @abstractmethod
    def started(self, name: str) -> Complete | None:
        """How far an interrupted run has written a file; None if it can only be written from its beginning."""

    @abstractmethod
    def write(self, name: str, offset: int) -> Writer:
        """A writer of the file from this offset on: that of :meth:`complete_of` or :meth:`started`, or 0."""

    @abstractmethod
    def _size(self, name: str) -> int | None: ...

    @abstractmethod
    def _read_list(self) -> str: ...

    @abstractmethod
    def _write_list(self, text: str) -> None: ...


def target_of(place: str, on_wait: Callable[[], None] = lambda: None) -> Target:
    """The target at a path or a URL. Raises TargetError.

    A folder takes one run at a time: ``on_wait`` is called if this one has to wait for another.
    """
    if "://" not in place:
        return _Folder(place, on_wait)
    return _remote(place)


class _Folder(Target):
    """A folder on this machine. Files are private, and grow where they have grown on their node."""

    def __init__(self, path: str, on_wait: Callable[[], None]) -> None:
        self._path = os.path.abspath(path)
        try:
            os.makedirs(self._path, mode=0o700, exist_ok=True)
            self._held = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise TargetError(f"cannot create the folder {self._path!r}: {error.strerror}") from error
        with suppress(OSError):  # some network file systems have no locks
            try:
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(self._held, fcntl.LOCK_EX)
        super().__init__(self._path)

    def close(self) -> None:
        try:
            super().close()
        finally:
            os.close(self._held)

    def started(self, name: str) -> Complete | None:
        path = self._part(name)
        try:
            with open(open_file(path, os.O_RDONLY), "rb") as file:
                hashed = _hash(file)
                return Complete(file.tell(), hashed.hexdigest())
        except OSError:
            return None

    def write(self, name: str, offset: int) -> Writer:
        complete = self._complete.get(name)
        path = os.path.join(self._path, name)
        grows = complete is not None and complete.size == offset and offset > 0
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return _FileWriter(path if grows else self._part(name), path, offset)
        except OSError as error:
            raise _failed(path, error) from error

    def _part(self, name: str) -> str:
        return os.path.join(self._path, name + _PART)

    def _size(self, name: str) -> int | None:
        """The size up to which the file is complete: what an interrupted run has added is cut off when it grows."""
        complete = self._complete.get(name)
        try:
            size = os.stat(os.path.join(self._path, name)).st_size
        except OSError:
            return None
        return complete.size if complete is not None and size >= complete.size else None

    def _read_list(self) -> str:
        with suppress(OSError), open(open_file(os.path.join(self._path, LIST), os.O_RDONLY), encoding="utf-8") as file:
            return file.read()
        return "{}"

    def _write_list(self, text: str) -> None:
        path = os.path.join(self._path, LIST)
        try:
            with open(open_file(path + _PART, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(path + _PART, path)
        except OSError as error:
            raise _failed(path, error) from error


class _FileWriter(Writer):
    def __init__(self, path: str, final: str, offset: int) -> None:
        self._path = path
        self._final = final
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        self._file: IO[bytes] = open(descriptor, "r+b", buffering=0)  # noqa: SIM115  it stays open
        try:
            os.ftruncate(descriptor, offset)
            super().__init__(_hash(self._file))
        except OSError:
            self._file.close()
            raise

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]  # a disk that is nearly full takes a part
        except OSError as error:
            raise _failed(self._path, error) from error
        self.hashed.update(data)

    def complete(self) -> None:
        try:
            os.fsync(self._file.fileno())
            os.rename(self._path, self._final)
        except OSError as error:
            raise _failed(self._final, error) from error

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


def _failed(path: str, error: OSError) -> TargetError:
    return TargetError(f"cannot write {path!r}: {error.strerror or error}")


def _hash(file: IO[bytes]) -> Any:
    """The digest of a file up to its end, where the file then is."""
    hashed = hashlib.sha256()
    file.seek(0)
    while data := file.read(_STEP):
        hashed.update(data)
    return hashed


def _remote(url: str) -> Target:
    """The target at a URL, by whichever of the two packages knows its scheme."""
    public = without_credentials(url)
    errors = []
    for opener in (_arrow, _fsspec):
        try:
            system, path = opener(url)
        except Exception as error:  # noqa: BLE001  the packages raise different errors, also if they are not installed
            errors.append(str(error).replace(url, public))
        else:
            return _Remote(url, system, path)
    raise TargetError(
        f"cannot write to {public}: it needs pyarrow, or fsspec and the package for its scheme, such as `pip install "
        f"pyarrow` for s3 and gs ({'; '.join(errors)})"
    )


def _arrow(url: str) -> tuple[Any, str]:
    from pyarrow import fs  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415  optional

    system, path = fs.FileSystem.from_uri(url)
    return _Arrow(system), path


def _fsspec(url: str) -> tuple[Any, str]:
    import fsspec  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415  optional

    system, path = fsspec.core.url_to_fs(url)
    return _Fsspec(system), path


class _Arrow:
    """A file system of ``pyarrow``."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def create(self, path: str) -> Any:
        self._system.create_dir(os.path.dirname(path), recursive=True)
        return self._system.open_output_stream(path)

    def read(self, path: str) -> bytes:
        with self._system.open_input_stream(path) as file:
            found: bytes = file.read()
            return found

    def size(self, path: str) -> int | None:
        size: int | None = self._system.get_file_info(path).size
        return size


class _Fsspec:
    """A file system of ``fsspec``."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def create(self, path: str) -> Any:
        self._system.makedirs(os.path.dirname(path), exist_ok=True)
        return self._system.open(path, "wb")

    def read(self, path: str) -> bytes:
        found: bytes = self._system.cat_file(path)
        return found

    def size(self, path: str) -> int | None:
        try:
            return int(self._system.size(path))
        except FileNotFoundError:
            return None


class _Remote(Target):
    """A folder of an object store, where files cannot grow: what has grown is written again."""

    appends = False

    def __init__(self, url: str, system: _Arrow | _Fsspec, path: str) -> None:
        self._system = system
        self._path = path.rstrip("/")
        super().__init__(without_credentials(url.partition("?")[0]))

    def started(self, name: str) -> Complete | None:
        return None

    def write(self, name: str, offset: int) -> Writer:
        return _ObjectWriter(self._system, f"{self._path}/{name}")

    def _size(self, name: str) -> int | None:
        try:
            return self._system.size(f"{self._path}/{name}")
        except Exception as error:
            raise TargetError(f"cannot read {self.text}: {error}") from error

    def _read_list(self) -> str:
        try:
            if self._system.size(f"{self._path}/{LIST}") is None:
                return "{}"
            return self._system.read(f"{self._path}/{LIST}").decode()
        except Exception as error:
            raise TargetError(f"cannot read {self.text}: {error}") from error

    def _write_list(self, text: str) -> None:
        writer = _ObjectWriter(self._system, f"{self._path}/{LIST}")
        try:
            writer.write(text.encode())
            writer.complete()
        finally:
            writer.close()


class _ObjectWriter(Writer):
    """Writes an object once all of it has come, from a temporary file on this machine.

    An object cannot be begun in the object store and given up there: a stream of pyarrow has no such method, and
    completes what it has when it is deleted, in place of a whole object from an earlier run.
    """

    def __init__(self, system: _Arrow | _Fsspec, path: str) -> None:
        super().__init__(hashlib.sha256())
        self._system = system
        self._path = path
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it stays open
        except OSError as error:
            raise _failed(tempfile.gettempdir(), error) from error

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise _failed(tempfile.gettempdir(), error) from error
        self.hashed.update(data)

    def complete(self) -> None:
        try:
            self._file.seek(0)
            with self._system.create(self._path) as stream:
                while data := self._file.read(_STEP):
                    stream.write(data)
        except Exception as error:
            raise TargetError(f"cannot write {self._path!r}: {error}") from error

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
