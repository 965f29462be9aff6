"""Collectors that are away, come back, or never answer; and shippers that are killed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
import support
from peers import Rotel, local_files, spans_of
from ports import free_port
from shipping import running_shippers, until
from support import PROGRAMS, environment

pytestmark = pytest.mark.slow  # outages last


def steady(folder: Path, seconds: int, **variables: str) -> subprocess.Popen[str]:
    """A program that calls tasks all the time, its spans going to local files and to a collector."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / "steady.py")],
        env=environment(
            RTH_HOOK="ray_tracing_hooks:setup",
            RTH_SECONDS=str(seconds),
            RAY_TRACING_EXPORTERS="local,otlp",
            RAY_TRACING_LOCAL_DIR=str(folder / "spans"),
            RAY_TRACING_FLUSH_TIMEOUT="30",
            **variables,
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def shippers() -> list[psutil.Process]:
    """The shippers of programs of these tests."""
    return running_shippers(support.ray_folder)


def said_of(rotel: Rotel) -> list[str]:
    """What the logs of shippers say of this collector."""
    logs = [path.read_text() for path in Path(support.ray_folder).rglob("ray_tracing_hooks-*.log")]
    return [line for log in logs for line in log.splitlines() if f"127.0.0.1:{rotel.grpc_port}" in line]


def ids_in_files(folder: Path) -> Counter[str]:
    return Counter(span.span_id.hex() for _, _, span in spans_of(local_files(folder / "spans")))


def check_received(rotel: Rotel, expected: Counter[str]) -> Counter[str]:
    """The collector has all of these spans and no other; how often it has each. It takes them before it prints them."""
    until(lambda: set(rotel.span_ids()) >= set(expected), "all have arrived")
    received = Counter(rotel.span_ids())
    assert set(received) == set(expected)
    return received


def test_a_collector_that_was_away_gets_every_span_and_the_program_does_not_notice(
    rotel: Rotel, tmp_path: Path
) -> None:
    """It is away until the shipper misses it. One line says so in the shipper's log, and one that it is back."""
    program = steady(tmp_path, 24, **rotel.variables("grpc"))
    try:
        until(lambda: len(rotel.span_ids()) > 1000, "spans arrive", 90)
        rotel.stop()
        until(lambda: any("WARNING" in line for line in said_of(rotel)), "the shipper misses it", 90)
        rotel.start()
        _, stderr = program.communicate(timeout=300)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0, stderr
    assert stderr.count("cannot reach") <= 2, "said, if it lasted, when it began and when it was over"
    received = check_received(rotel, ids_in_files(tmp_path))
    twice = sum(count - 1 for count in received.values())
    assert twice <= 3000, "at most the portion that was on its way when it went"
    lines = said_of(rotel)
    assert len([line for line in lines if "WARNING" in line]) <= 2, lines
    assert len([line for line in lines if "no longer a problem" in line]) == 1, lines


def test_a_collector_that_stays_away_is_told_once_while_the_program_runs(tmp_path: Path) -> None:
    """Not at once, not by each worker, not at each attempt; and at the end with how many spans wait."""
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "steady.py")],
        env=environment(
            RTH_HOOK="ray_tracing_hooks.otlp:setup",
            RTH_SECONDS="25",
            RAY_TRACING_FLUSH_TIMEOUT="15",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    assert program.stdout is not None
    running_when_told = None
    for line in program.stdout:
        lines.append(line)
        if "cannot reach" in line and running_when_told is None:
            running_when_told = "RESULT" not in "".join(lines)
    program.wait(30)
    program.stdout.close()
    told = [line for line in lines if "cannot reach" in line]
    assert len(told) == 1, told
    assert running_when_told
    assert len([line for line in lines if "spans wait in" in line]) == 1
    for shipper in shippers():
        shipper.terminate()
