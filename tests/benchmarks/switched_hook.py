"""The hook ``local`` with a switch: what it has replaced in a process is put back, and replaced again, when told so.

A process listens on a FIFO of its own in the folder ``SWITCH_DIR`` and answers on the one named ``done``. One that
starts later begins as the file ``state`` says.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from ray_tracing_hooks import _logs, _startup, local
from ray_tracing_hooks._ray import execution, tracing
from ray_tracing_hooks._safety.patching import ABSENT

FOLDER, DONE, STATE = "SWITCH_DIR", "done", "state"
ON, OFF = b"+", b"-"


def setup() -> None:
    local.setup()
    folder = Path(os.environ[FOLDER])
    path = folder / f"{os.getpid()}.fifo"
    if not path.exists():
        os.mkfifo(path)
        # Open for writing too, so that it never comes to its end. Who writes finds no reader once this process is gone.
        listening = os.open(path, os.O_RDWR)
        switch, state = _Switch(), folder / STATE
        switch.turn(state.read_bytes() if state.exists() else ON)
        threading.Thread(target=_listen, args=(listening, folder, switch), daemon=True).start()


def _listen(listening: int, folder: Path, switch: _Switch) -> None:
    done = os.open(folder / DONE, os.O_WRONLY)
    while True:
        command = os.read(listening, 1)
        switch.turn(command)
        os.write(done, command)


class _Switch:
    """What has been replaced in this process, while it is put back."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._looks: tuple[_logs._Observer, ...] = ()

    def turn(self, command: bytes) -> None:
        patches = _startup._here._connection_patches if tracing.active is not None else None
        if command == OFF and not self._replaced and patches is not None:
            # No user switches tracing off and on again, so there is no function for it. The places of libraries are
            # found one by one, so there may be more than the last time.
            self._replaced = [
                (owner, name, _current(owner, name), original) for owner, name, original in patches._applied if name
            ]
            for owner, name, _, original in reversed(self._replaced):
                delattr(owner, name) if original is ABSENT else setattr(owner, name, original)
            self._looks, _logs._watch.observers = _logs._watch.observers, ()
        elif command == ON and self._replaced:
            for owner, name, replacement, _ in self._replaced:
                setattr(owner, name, replacement)
            self._replaced, _logs._watch.observers = [], self._looks
        # A worker keeps the executors of functions, wrapped or not.
        execution.forget_executors()


def _current(owner: Any, name: str) -> Any:
    """What is there now; a closure's cell has no dictionary."""
    return vars(owner).get(name) if hasattr(owner, "__dict__") else getattr(owner, name)
