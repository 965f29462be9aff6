"""Containers that share a volume: each has processes 1, 2, 3 of its own, and its own locks, caches and clocks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import containers
import pytest
from containers import Container
from shipping import WRITER, until

from ray_tracing_hooks._safety.processes import pid_namespace
from ray_tracing_hooks._ship.folder import is_running
from ray_tracing_hooks._spool.layout import parse_process_name

pytestmark = pytest.mark.skipif(bool(containers.unavailable()), reason=containers.unavailable())

# A process that starts the shipper of a spool, says so, and stays.
KEEPER = """
import sys
from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.start import ensure_running
spool, folder, label = sys.argv[1:]
plan = ShipPlan(
    ("local",), Settings(local_dir=folder, local_file_max_bytes=20_000), label=label, log_file=spool + ".log"
)
for line in sys.stdin:
    print(ensure_running(spool, plan), flush=True)
"""

Start = Callable[..., "Inside"]


class Inside:
    """A container whose process 1 runs a program of lines: each that it is given, it answers with one."""

    def __init__(self, volume: Path, program: str, *arguments: str) -> None:
        command = Container(volumes={"/shared": volume}).command(sys.executable, "-c", program, *arguments)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def kill(self) -> None:
        """End all processes of the container at once."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Inside] = []

    def start(program: str, *arguments: str) -> Inside:
        started.append(Inside(tmp_path, program, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def spans_in(folder: Path) -> list[dict[str, object]]:
    """The spans in local files, as far as their lines are complete."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines(keepends=True)]
    return [
        span
        for line in lines
        if line.endswith("\n")
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_a_process_of_another_container_is_not_taken_for_one_of_the_same_pid(start: Start, tmp_path: Path) -> None:
    """The shipper is in one container and the process in another; both containers have a process 1, and that of the
    shipper is older. It is seen by its lock that the other one has died, and the span that this interrupted is closed.
    """
    shipper = start(KEEPER, "/shared/spool", "/shared/spans", "node")
    writer = start(WRITER, "/shared/spool", "1000000")
    assert writer("start 1") == "start"
    assert shipper("start") == "True"
    assert writer("end 2 50") == "end"
    (name,) = {path.name.partition(".")[0] for path in (tmp_path / "spool").glob("*.spool")}
    process = parse_process_name(name)
    assert process is not None
    assert process.pid == 1
    assert process.namespace != pid_namespace()
    assert not is_running(name), "there is a process 1 here too"

    until(lambda: len(spans_in(tmp_path / "spans")) == 49, "what has ended is delivered")
    writer.kill()
    until(lambda: len(spans_in(tmp_path / "spans")) == 50, "what was interrupted is closed", 20)
    (closed,) = (span for span in spans_in(tmp_path / "spans") if span["spanId"] == f"{1:016x}")
    assert closed["status"] == {"code": 2, "message": "worker died"}


def test_a_container_is_not_taken_for_one_that_has_ended() -> None:
    """The kernel gives the number of its namespace to another one."""
    program = (
        "import os; from ray_tracing_hooks._safety.processes import pid_namespace\n"
        "print(os.readlink('/proc/self/ns/pid'), pid_namespace())"
    )
    container = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, "-c", program]
    known: dict[str, str] = {}
    for _ in range(100):
        number, name = subprocess.run(container, check=True, capture_output=True, text=True).stdout.split()
        if number in known:
            assert name != known[number]
            return
        known[number] = name
    pytest.skip("this kernel uses no number again")
