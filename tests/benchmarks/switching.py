"""A cluster in a process of its own, in which tracing is switched on and off by turns, for benchmarks.

A benchmark runs itself again with :func:`session`; there it calls :func:`connect`, and :func:`hand_over` at the end.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from switched_hook import DONE, FOLDER, STATE

HERE = Path(__file__).parent
PATIENCE = 20.0
"""Seconds."""

_RESULT = "RESULT "


def session(script: str, arguments: Sequence[str], *paths: str, **variables: str) -> Any:
    """What ``script`` hands over with these arguments. Its processes also find modules in ``paths``."""
    with tempfile.TemporaryDirectory(prefix="rth-", ignore_cleanup_errors=True) as folder:
        switches = Path(folder, "switches")
        switches.mkdir()
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": folder,
            "RAY_TRACING_LOCAL_DIR": f"{folder}/spans",
            "RAY_TRACING_SPOOL_DIR": f"{folder}/spool",
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(HERE), str(HERE / "calls"), *paths, os.environ.get("PYTHONPATH")])
            ),
            FOLDER: str(switches),
            **variables,
        }
        command = [sys.executable, script, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(_RESULT)]
    if not lines:
        sys.exit(f"a session has failed:\n{done.stderr[-2000:]}")
    return json.loads(lines[0].removeprefix(_RESULT))


def connect(num_cpus: int) -> Switch:
    """Start a cluster, and return its switch."""
    import ray

    switch = Switch(Path(os.environ[FOLDER]))
    ray.init(
        "local",
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=300_000_000,
        _tracing_startup_hook="switched_hook:setup",
    )
    return switch


def hand_over(found: Any) -> None:
    """Hand over what was found, as JSON, to the process that has called :func:`session`."""
    print(_RESULT + json.dumps(found), flush=True)


class Switch:
    """Switches tracing in all processes of the cluster that have run the hook."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        os.mkfifo(folder / DONE)
        self._done = os.open(folder / DONE, os.O_RDWR)

    def turn(self, command: bytes) -> None:
        (self._folder / STATE).write_bytes(command)
        told = [int(path.stem) for path in self._folder.glob("*.fifo") if self._tell(path, command)]
        answers, deadline = 0, time.monotonic() + PATIENCE
        while answers < sum(psutil.pid_exists(pid) for pid in told):  # one that has just ended does not answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(told) - answers} processes have not switched")
            if select.select([self._done], [], [], 0.5)[0]:
                answers += len(os.read(self._done, len(told)))

    @staticmethod
    def _tell(path: Path, command: bytes) -> bool:
        try:
            fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # its process has ended
            return False
        with os.fdopen(fifo, "wb") as file:
            file.write(command)
        return True
