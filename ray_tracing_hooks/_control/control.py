"""What is set for a running cluster: whether it records, and the settings that differ from those it started with.

A command publishes it on each node, and learns which processes have applied it. A process that has applied a change
leaves a file in a folder of that change, which is named after the process; in the file is what failed, if something
did. The folders of earlier changes are removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from ray_tracing_hooks._control.listener import CONTROL, read
from ray_tracing_hooks._safety.private import inside, open_file, open_folder, read_file, write_atomically
from ray_tracing_hooks._settings.values import copied

EXPORTERS = "RAY_TRACING_EXPORTERS"
SAMPLER = "OTEL_TRACES_SAMPLER"
_DISABLED = "OTEL_SDK_DISABLED"


class Control(NamedTuple):
    """What is set now. An empty one changes nothing.

    Attributes:
        version: The number of the change, which only one command of a cluster can take; 0 is what it started with.
        enabled: Whether spans are recorded; None as the cluster was started.
        variables: Environment variables that take precedence over those of each process; an empty value unsets one.
        until: Where nothing is recorded for a time only, when that ends, in seconds since the epoch; otherwise None.
    """

    version: int = 0
    enabled: bool | None = None
    variables: Mapping[str, str] = {}
    until: float | None = None

    def __repr__(self) -> str:
        # Without values, which may be secrets.
        return f"Control({self.version}, {self.enabled}, {sorted(self.variables)})"

    @property
    def refused(self) -> list[str]:
        """The variables that a running process cannot change: another version of this package has set them, or somebody
        who has written to the cluster's key-value store.
        """
        from ray_tracing_hooks._settings.otel import LIVE as FAMILIES  # noqa: PLC0415
        from ray_tracing_hooks._settings.table import LIVE, PREFIX  # noqa: PLC0415  rare

        ours = {f"{PREFIX}{name.upper()}" for name in LIVE}
        return sorted(name for name in self.variables if name not in ours and not name.startswith(FAMILIES))

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process with what is set, except for what is :attr:`refused`."""
        refused = self.refused
        found = copied(environ) | {name: value for name, value in self.variables.items() if name not in refused}
        if self.enabled:
            found[_DISABLED] = ""
        elif self.enabled is False:
            # Also where the caller's span is sampled: it may not know yet.
            found[SAMPLER] = "always_off"
        return found

    @property
    def records(self) -> bool:
        return self.enabled is not False

    def exporters(self, of_hook: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The exporters of a hook, or None for those of the settings, since it is set that they count."""
        return None if self.variables.get(EXPORTERS, "").strip() else of_hook

    def encode(self) -> bytes:
        return json.dumps(self._asdict(), sort_keys=True).encode()

    @classmethod
    def decode(cls, text: bytes) -> Control:
        """What :meth:`encode` gave; of nothing, an empty one. Raises ValueError for anything else.

        After the end of :attr:`until` it says that spans are recorded, so nobody has to change it then.
        """
        if not text:
            return cls()
        try:
            found: Any = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(found, dict):
            raise ValueError("it is not an object")  # noqa: TRY004  the callers' word for what is malformed
        variables, enabled = found.get("variables", {}), found.get("enabled")
        version, until = found.get("version"), found.get("until")
        if (
            not isinstance(version, int)
            or not (enabled is None or isinstance(enabled, bool))
            or not (until is None or isinstance(until, (int, float)))
            or not isinstance(variables, dict)
            or not all(isinstance(each, str) and "\0" not in each for pair in variables.items() for each in pair)
        ):
            raise ValueError("it does not say what is set")
        if until is not None and until <= time.time():
            enabled, until = True, None
        return cls(version, enabled, variables, until)


_APPLIED = "applied-"
_TEMPORARY = ".new"
"""How the name of an answer ends that is being written."""

_STEP = 0.05
_LOCK_STEP = 0.005
_LATELY = 60.0
"""A process that starts within this many seconds of a change answers too: it may be waited for."""


def publish(folder: str, control: Control, expected: Collection[str], timeout: float) -> dict[str, str]:
    """Tell the processes that listen at this folder, and wait until the ``expected`` ones have applied the change.

    These are names of processes. Waits for ``timeout`` seconds at most. Returns those that have answered, each with
    what failed there, or an empty text. Raises OSError if the folder cannot be used, if a later change has been
    published there, or if another command does not finish publishing. Nodes that share their session folder may publish
    the same change at the same time.
    """
    opened = open_folder(folder)
    try:
        within = inside(opened)
        answers = os.path.join(within, f"{_APPLIED}{control.version}")
        deadline = time.monotonic() + timeout
        with locked(within, deadline):
            _refuse_earlier(folder, control)
            os.close(open_folder(os.path.join(folder, f"{_APPLIED}{control.version}")))
            write_atomically(os.path.join(within, CONTROL), control.encode())
            for name in os.listdir(within):
                if name.startswith(_APPLIED) and name != f"{_APPLIED}{control.version}":
                    shutil.rmtree(os.path.join(within, name), ignore_errors=True)
        while not set(_names(answers)).issuperset(expected) and time.monotonic() < deadline:
            time.sleep(_STEP)
        return {name: _text(os.path.join(answers, name)) for name in _names(answers)}
    finally:
        os.close(opened)


def acknowledge(folder: str, control: Control, process: str, problem: str = "", *, if_lately: bool = False) -> None:
    """Say that this process, named ``process``, has applied a change, or what failed. Never raises.

    With ``if_lately`` only if the change is recent.
    """
    with suppress(OSError):
        opened = open_folder(os.path.join(folder, f"{_APPLIED}{control.version}"), make=False)
        try:
            if if_lately and time.time() - os.stat(os.path.join(folder, CONTROL)).st_mtime > _LATELY:
                return
            name = process + _TEMPORARY
            with open(open_file(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, folder=opened), "wb") as file:
                file.write(problem.encode("utf-8", "replace"))
            os.rename(name, process, src_dir_fd=opened, dst_dir_fd=opened)
        finally:
            os.close(opened)


@contextmanager
def locked(folder: str, deadline: float) -> Iterator[None]:
    """Hold the folder's lock, so that no other command of this machine replaces a later change by its own, or removes
    its answers. A network file system may not know locks of other machines.

    Raises TimeoutError if another process holds it until the ``deadline``, and OSError if the folder cannot be used.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError("another command that publishes a change here does not finish") from None
            time.sleep(_LOCK_STEP)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_UN)  # a child that another thread has forked may hold a copy of it
        os.close(opened)


def _refuse_earlier(folder: str, control: Control) -> None:
    """Raise OSError if a later change has been published in this folder."""
    try:
        there = Control.decode(read(folder))
    except (OSError, ValueError):
        return  # it is replaced
    if there.version > control.version:
        raise OSError(f"version {there.version} has been set meanwhile, by another command")


def _names(answers: str) -> list[str]:
    """The processes that have answered. Raises OSError if another command has removed the folder."""
    try:
        return [name for name in os.listdir(answers) if not name.endswith(_TEMPORARY)]
    except FileNotFoundError:
        raise OSError("another version has been set meanwhile, by another command") from None


def _text(path: str) -> str:
    try:
        return read_file(path)
    except (OSError, ValueError) as error:
        return f"its answer cannot be read: {error}"
