"""A cluster in a process of its own, in which tracing is switched on and off by turns, for benchmarks.

A benchmark runs itself again with :func:`sessions`; there it calls :func:`connect`, and :func:`hand_over` at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil
from switched_hook import DONE, FOLDER, OFF, ON, STATE

HERE = Path(__file__).parent
PATIENCE = 20.0
"""Seconds."""

WITH, WITHOUT, AGAIN = "with", "without", "again"

Turn = dict[str, dict[str, float]]
"""The figures of each piece of work of a turn."""

_RESULT = "RESULT "


class Switching(Protocol):
    """Switches tracing on and off."""

    def turn(self, command: bytes) -> None: ...


def in_turn(switch: Switching, number: int, piece: Callable[[], dict[str, float]]) -> Turn:
    """A turn: a piece of work with tracing, without, and once more without, in an order that its number says."""
    order = [(ON, WITH), (OFF, WITHOUT), (OFF, AGAIN)]
    found = {}
    for command, kind in order[number % 3 :] + order[: number % 3]:
        switch.turn(command)
        found[kind] = piece()
    return found


def table(title: str, sessions: Sequence[Sequence[Turn]], units: Mapping[str, str]) -> Iterator[str]:
    """For each figure its median without tracing, and the ratio of that with tracing, or once more without, to it.

    Ratios are those of one turn: their median and quartiles, and the medians of each session.
    """
    turns = [turn for found in sessions for turn in found]
    yield f"{title:22}{'without':>14}{'relative to it':>31}   by session"
    for name in turns[0][WITHOUT]:
        without = f"{statistics.median(turn[WITHOUT][name] for turn in turns):,.1f} {units.get(name, 'us')}"
        head = f"{name:22}{without:>14}"
        for kind, label in ((WITH, "traced"), (AGAIN, "again")):
            if kind in turns[0]:
                ratios = [[turn[kind][name] / turn[WITHOUT][name] for turn in found] for found in sessions]
                each = "  ".join(f"{statistics.median(found):.3f}" for found in ratios)
                yield f"{head:36} {label:>8} {spread_of([ratio for found in ratios for ratio in found])}   {each}"
                head = ""


def spread_of(ratios: Sequence[float]) -> str:
    ratios = sorted(ratios)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return f"{statistics.median(ratios):.3f} ({low:.3f}-{high:.3f})"


def parser(about: str | None, turns: int) -> argparse.ArgumentParser:
    """With the options that all have."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--sessions", type=int, default=3)
    made.add_argument("--turns", type=int, default=turns, help="in each session")
    made.add_argument("--session", help=argparse.SUPPRESS)
    return made


def sessions(
    script: str, name: str, chosen: argparse.Namespace, arguments: Sequence[str], *paths: str, **variables: str
) -> list[Any]:
    """What ``script`` hands over in each session of this name. Its processes also find modules in ``paths``."""
    found = []
    for number in range(chosen.sessions):
        print(f"{name}, session {number + 1} of {chosen.sessions}", file=sys.stderr, flush=True)
        command = ["--session", name, "--turns", str(chosen.turns), *arguments]
        found.append(session(script, command, *paths, **variables))
    return found


def session(script: str, arguments: Sequence[str], *paths: str, **variables: str) -> Any:
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
