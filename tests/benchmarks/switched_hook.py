"""The hook ``local`` with a switch: what it has replaced in a process is put back, and replaced again, when told so.

A process listens on a FIFO of its own in the folder ``SWITCH_DIR`` and answers on the one named ``done``.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from ray_tracing_hooks import _startup, local
from ray_tracing_hooks._logs import records
from ray_tracing_hooks._patching import ABSENT
from ray_tracing_hooks._ray import tracing

FOLDER, DONE = "SWITCH_DIR", "done"
ON, OFF = b"+", b"-"


def setup() -> None:
    local.setup()
    path = Path(os.environ[FOLDER], f"{os.getpid()}.fifo")
    if not path.exists():
        os.mkfifo(path)
        threading.Thread(target=_listen, args=(path,), daemon=True).start()


def _listen(path: Path) -> None:
    replaced: list[tuple[Any, str, Any, Any]] = []
    looks: tuple[records.Look, ...] = ()
    # Open for writing too, so that it never comes to its end. Who writes finds no reader once this process has ended.
    listening = os.open(path, os.O_RDWR)
    done = os.open(path.parent / DONE, os.O_WRONLY)
    while True:
        command = os.read(listening, 1)
        patches = _startup._here._connection_patches if tracing.active is not None else None
        if command == OFF and not replaced and patches is not None:
            # No user switches tracing off and on again, so there is no function for it. Serve's places are found one by
            # one, so there may be more than the last time.
            replaced = [
                (owner, name, vars(owner).get(name), original) for owner, name, original in patches._applied if name
            ]
            for owner, name, _, original in reversed(replaced):
                delattr(owner, name) if original is ABSENT else setattr(owner, name, original)
            looks, records._watch.looks = records._watch.looks, ()
        elif command == ON and replaced:
            for owner, name, replacement, _ in replaced:
                setattr(owner, name, replacement)
            replaced, records._watch.looks = [], looks
        os.write(done, command)
