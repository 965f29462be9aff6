"""Nothing is lost or doubled if the shipper ends, and no process waits for one that hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from conftest import Cluster
from endings import heard
from shipping import running_shippers
from support import PROGRAMS, await_spans, check_links, environment, of_driver

from ray_tracing_hooks._insight.model.span import Span

ROUNDS = 3
DRIVER = "shipping.py ray.driver"


@contextmanager
def shipping(cluster: Cluster, tmp_path: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The program ``shipping.py``, which continues once ``go <round>`` is in ``tmp_path``; its output in ``log``."""
    with open(tmp_path / "log", "wb") as log:
        program = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "shipping.py"), str(tmp_path), str(ROUNDS)],
            env=environment(RTH_ADDRESS=cluster.address, RAY_TRACING_LOCAL_DIR=str(cluster.spans), **variables),
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
    with program:
        try:
            yield program
        finally:
            program.kill()


def shipper(cluster: Cluster, tmp_path: Path) -> psutil.Process | None:
    """The shipper of the spool that the program writes to, if one runs. Drivers with other settings have others."""
    (segment, *_) = cluster.spans.parent.rglob(f"{(tmp_path / '0.pid').read_text()}-*.spool")
    return next(iter(running_shippers(str(segment.parent))), None)


def check_rounds(cluster: Cluster, timeout: float) -> list[Span]:
    """Every span of the newest run is there, once."""
    wanted = Counter(
        {DRIVER: 1, "__main__.work ray.remote": 50 * ROUNDS, "__main__.work ray.remote_worker": 50 * ROUNDS}
    )
    for number in range(ROUNDS):
        wanted[f"round {number}"] = wanted[f"in task {number}"] = 50

    def complete(found: list[Span]) -> bool:
        roots = [span for span in found if span.name == DRIVER]
        return bool(roots) and len(of_driver(found, "shipping")) >= wanted.total()

    spans = of_driver(await_spans(cluster.spans, complete, timeout=timeout), "shipping")
    print(f"spans expected {wanted.total()}, found {len(spans)}")
    assert Counter(span.name for span in spans) == wanted
    check_links(spans)
    return spans


def say(tmp_path: Path, number: int) -> None:
    (tmp_path / f"go {number}.new").write_text("1")
    (tmp_path / f"go {number}.new").rename(tmp_path / f"go {number}")


def warnings(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "log").read_text().splitlines()
    return [line for line in lines if "ray_tracing_hooks" in line and "INFO" not in line]


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, id="sigterm", marks=pytest.mark.slow), pytest.param(signal.SIGKILL, id="sigkill")],
)
@pytest.mark.parametrize("last", [0, ROUNDS - 1], ids=["while_spans_flow", "at_the_end"])
def test_a_shipper_that_is_killed_loses_nothing(
    last: int, number: signal.Signals, cluster: Cluster, tmp_path: Path
) -> None:
    """The driver starts another at its end, and has all delivered."""
    with shipping(cluster, tmp_path) as program:
        for done in range(ROUNDS):
            heard(tmp_path, f"{done}.pid")
            if done == last:
                running = shipper(cluster, tmp_path)
                assert running is not None
                running.send_signal(number)
            say(tmp_path, done)
        assert program.wait(timeout=60) == 0, (tmp_path / "log").read_text()
    check_rounds(cluster, timeout=0)
    assert warnings(tmp_path) == []


@pytest.mark.slow(older_rays=True)  # as the one above, with another driver
def test_another_shipper_is_started_by_whoever_connects(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever connects to Ray on the node starts one. (Those that write spans look for one too, but seldom.)"""
    with shipping(cluster, tmp_path) as program:
        heard(tmp_path, "0.pid")
        first = shipper(cluster, tmp_path)
        assert first is not None
        first.kill()
        say(tmp_path, 0)
        cluster.run("small")
        second = shipper(cluster, tmp_path)
        assert second is not None
        assert second.pid != first.pid
        for done in range(1, ROUNDS):
            heard(tmp_path, f"{done}.pid")
            say(tmp_path, done)
        assert program.wait(timeout=60) == 0
    check_rounds(cluster, timeout=0)
    assert warnings(tmp_path) == []


def test_a_shipper_that_hangs_holds_nobody_up(cluster: Cluster, tmp_path: Path) -> None:
    """The driver waits as long as the setting says, reports it, and ends; everything is delivered later."""
    with shipping(cluster, tmp_path, RAY_TRACING_FLUSH_TIMEOUT="1") as program:
        heard(tmp_path, "0.pid")
        hanging = shipper(cluster, tmp_path)
        assert hanging is not None
        hanging.suspend()
        try:
            for done in range(ROUNDS):
                heard(tmp_path, f"{done}.pid")
                say(tmp_path, done)
            began = time.monotonic()
            assert program.wait(timeout=60) == 0
            print(f"the driver ended {time.monotonic() - began:.1f} s after its last span")
        finally:
            hanging.resume()
    check_rounds(cluster, timeout=30)
    (warning,) = warnings(tmp_path)
    assert "does not answer" in warning
