"""A spool, processes that write to it, and its shipper: what tests of them share."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from plans import made_plan

from ray_tracing_hooks._ship.files import SOCKET
from ray_tracing_hooks._ship.flush import FlushResult, flush
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.start import ensure_running

MIB = 1024 * 1024

# A separate process that records spans on command, one command per line, and answers each with a line.
WRITER = """
import os, sys, time
from ray_tracing_hooks._spool.writer import SpoolWriter

begun = {}

def head(number):
    ids = number.to_bytes(16, "big") + b"\\x12\\x08" + number.to_bytes(8, "big")
    return b"\\x0a\\x10" + ids + b"\\x2a\\x01s\\x39" + begun.get(number, 1000).to_bytes(8, "little")

def text(key, value):
    return b"\\x0a" + bytes([len(key) + len(value) + 6, 0x0A, len(key)]) + key + (
        b"\\x12" + bytes([len(value) + 2, 0x0A, len(value)]) + value)

writer = SpoolWriter(sys.argv[1], segment_bytes=int(sys.argv[2]))
resource = text(b"service.name", b"writer-%d" % os.getpid())
prefix = writer.scope(resource, b"\\x0a\\x04test").to_bytes(2, "little")
for line in sys.stdin:
    command, *numbers = line.split()
    first, last = (int(number) for number in (numbers * 2)[:2]) if numbers else (0, -1)
    for number in range(first, last + 1):
        if command == "hour":
            begun[number] = time.time_ns() - 3600 * 10**9
        if command in {"start", "hour"}:
            writer.start(prefix, head(number))
        else:
            writer.span(prefix, head(number) + b"\\x41" + (2000).to_bytes(8, "little"))
    if command == "close":
        writer.close()
    print(command, flush=True)
"""


def running_shippers(folder: str) -> list[psutil.Process]:
    """The shippers of spools in or below this folder, without zombies and the shells that start them."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if "ray_tracing_hooks._ship" in (command := process.info["cmdline"] or [])
        and os.path.basename(command[0]).startswith("python")
        and any(part.startswith(folder) for part in command)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def until(condition: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """Wait for a condition, and give what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.01)
    return found


def ended(process: psutil.Process) -> None:
    """Wait for the end of a process that is not our child. Init may take seconds to reap it."""

    def is_over() -> bool:
        try:
            return process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    until(is_over, "the process has ended")


class Writer:
    """A process that writes to the spool."""

    def __init__(self, spool: Path, segment_bytes: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(spool), str(segment_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def heard(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline()

    def do(self, command: str) -> None:
        self.ask(command)
        self.heard()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        self.process.communicate(timeout=20)


class Node:
    """A spool folder, its plan, and what comes out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.out = folder / "spans"
        self.spool.mkdir(mode=0o700)
        self.writers: list[Writer] = []
        self.plan = self.make_plan()

    def make_plan(self, **changes: Any) -> ShipPlan:
        values: dict[str, Any] = {
            "exporters": ("local",),
            "local_dir": str(self.out),
            "local_file_max_bytes": 64 * MIB,
            "local_max_bytes": 1024 * MIB,
            "spool_max_bytes": 1024 * MIB,
            "log_file": str(self.folder / "ship.log"),
            "label": "node",
            # There is a "raylet" unless a test says otherwise, so that no shipper ends before the test has written.
            "raylet_socket": str(self.folder / "raylet"),
        }
        return made_plan(**{**values, **changes})

    def writer(self, segment_bytes: int = 16 * MIB) -> Writer:
        self.writers.append(Writer(self.spool, segment_bytes))
        return self.writers[-1]

    def start(self) -> psutil.Process:
        """The shipper that runs, and listens, when this returns."""

        def started() -> psutil.Process | None:
            # Again and again: of a killed shipper the last thread, and with it the lock, may go after the first.
            ensure_running(str(self.spool), self.plan)
            return self.shipper()

        found: psutil.Process = until(started, "a shipper runs")
        until((self.spool / SOCKET).exists, "it listens")
        return found

    def shippers(self) -> list[psutil.Process]:
        return running_shippers(str(self.spool))

    def shipper(self) -> psutil.Process | None:
        return next(iter(self.shippers()), None)

    def flush(self, timeout: float = 20.0, *, until_writers_end: bool = False) -> FlushResult:
        return flush(str(self.spool), timeout, until_writers_end=until_writers_end)

    def answer(self, timeout: float = 1.0, *, until_writers_end: bool = False) -> FlushResult:
        """What the shipper says when it cannot deliver for so long. On a busy machine it may take its time."""
        deadline = time.monotonic() + 30
        while True:
            result = self.flush(timeout, until_writers_end=until_writers_end)
            if time.monotonic() > deadline or not any("does not answer" in each for each in result.problems):
                return result

    def trouble(self, problem: str) -> FlushResult:
        """What the shipper says as soon as this is its one problem."""

        def found() -> FlushResult | None:
            result = self.answer()
            return result if result.problems == [problem] else None

        result: FlushResult = until(found, f"the shipper says {problem!r}")
        return result

    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for file in sorted(self.out.glob("*.jsonl"))
            for line in file.read_bytes().rpartition(b"\n")[0].splitlines()  # not one that is being written
            for resource_spans in json.loads(line)["resourceSpans"]
            for scope_spans in resource_spans["scopeSpans"]
            for span in scope_spans["spans"]
        ]

    def numbers(self) -> list[int]:
        return sorted(int(span["spanId"], 16) for span in self.spans())

    def segments(self) -> list[Path]:
        return sorted(self.spool.glob("*.spool"))

    def log(self) -> str:
        return (self.folder / "ship.log").read_text()

    def close(self) -> None:
        """End every process."""
        for writer in self.writers:
            if writer.process.poll() is None:
                writer.kill()
        for shipper in self.shippers():
            with contextlib.suppress(psutil.NoSuchProcess):
                shipper.kill()
                ended(shipper)
