"""What was recorded on a node is delivered when the node ends, however it does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from conftest import Nodes, start_head, stop_head
from endings import CALLS, Ended, Way, begin, check, check_once, closed, heard, no_process_is_left, of_trace
from support import HOOK, PATIENCE, PROGRAMS, await_spans, by_name, environment

from ray_tracing_hooks import names

pytestmark = pytest.mark.slow  # each needs a cluster that it ends

WORKER = names.WORKER_DIED
DRIVER = Way(signal.SIGTERM, names.DRIVER_DIED, "driver died: SIGTERM")
"""The driver does not end with its node: it is told to, as everything in a container is that goes."""

WAYS = {
    "raylet_sigkill": Way(None, WORKER, "worker died: the local raylet failed", cut_off=True),
    "gcs_sigkill": Way(None, WORKER, "worker died.*", cut_off=None),
    "head_sigterm": Way(None, WORKER, "worker died.*", cut_off=None),
    "second_node_sigkill": Way(None, WORKER, "worker died: the local raylet failed", cut_off=True),
}


def executables(folder: Path, name: str) -> set[int]:
    """The ids of the processes of the Ray session in this folder that run the executable ``name``."""
    found = set()
    for process in psutil.process_iter(["cmdline", "ppid"]):
        command = process.info["cmdline"] or [""]
        just_forked = process.info["ppid"] in found  # by one of them, and looks the same
        if command[0].endswith(name) and any(str(folder) in part for part in command) and not just_forked:
            found.add(process.pid)
    return found


@contextmanager
def second_node(address: str, folder: Path) -> Iterator[int]:
    """Another node of the cluster on this machine; gives the process id of its raylet."""
    before, nodes = executables(folder, "/raylet"), Nodes(address, folder)
    try:
        nodes.start("second", '--resources={"second": 1}', RAY_TRACING_LOCAL_DIR=str(folder / "spans"))
        (raylet,) = executables(folder, "/raylet") - before
        yield raylet
    finally:
        nodes.stop()


def check_node(tmp_path: Path, spans: Path, outcome: int, way: Way) -> None:
    """Everything of the driver and of its busy worker is delivered once, and says how it ended."""
    wanted = {f"{which} {who} wait" for which in ("open", "forgotten") for who in ("driver", "busy")}
    found = await_spans(spans, lambda found: closed(found, wanted), timeout=60)
    ended = Ended(of_trace(found, "driver wait"), {"wait": outcome}, tmp_path, (tmp_path / "wait.log").read_text())
    check(ended, "wait", DRIVER, "driver wait")
    check(ended, "wait", way, "busy wait")
    assert len(by_name(ended.spans, "in call")) == CALLS
    check_once(ended.spans)
    (busy,) = by_name(ended.spans, "Actor.busy ray.remote_worker")
    print(f"busy: {busy.status_message}")
    assert [line for line in ended.output.splitlines() if "ray_tracing_hooks" in line and "INFO" not in line] == []


@pytest.mark.parametrize("how", WAYS)
def test_every_span_of_a_node_is_delivered(how: str, tmp_path: Path, short_tmp: Callable[[], Path]) -> None:
    """Its raylet, its GCS or the head's own process is killed, or a second node, while a driver runs."""
    folder = short_tmp()
    spans = folder / "spans"
    head, address = start_head(
        folder,
        f"--tracing-startup-hook={HOOK}",
        RAY_TRACING_LOCAL_DIR=str(spans),
        RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S="30",  # as Ray has it
    )
    variables = {"RTH_ADDRESS": address, "RAY_TRACING_LOCAL_DIR": str(spans)}

    def drive(kill: Callable[[], None], **more: str) -> int:
        with begin("wait", tmp_path, **variables, **more) as driver:
            heard(tmp_path, "driver wait.pid")
            kill()
            driver.terminate()
            return driver.wait(timeout=60)

    if how == "second_node_sigkill":
        with second_node(address, folder) as raylet:
            outcome = drive(lambda: os.kill(raylet, signal.SIGKILL), RTH_RESOURCE="second")
    elif how == "head_sigterm":
        outcome = drive(head.terminate)
    else:
        (victim,) = executables(folder, "/raylet" if how == "raylet_sigkill" else "/gcs_server")
        outcome = drive(lambda: os.kill(victim, signal.SIGKILL))
    stop_head(head)
    check_node(tmp_path, spans, outcome, WAYS[how])
    no_process_is_left(folder)


@pytest.mark.parametrize("options", [[], ["--force"]], ids=["stop", "stop_force"])
def test_every_span_is_delivered_after_ray_stop(
    options: list[str], tmp_path: Path, short_tmp: Callable[[], Path]
) -> None:
    """``ray stop`` leaves the shipper alone, which delivers and ends. It runs where it sees no other clusters."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        permitted = subprocess.run([*apart, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare, to keep `ray stop` away from other clusters of this machine")
    if permitted.returncode:
        pytest.skip(f"no PID namespace can be made, to keep `ray stop` from other clusters: {permitted.stderr.strip()}")
    folder = short_tmp()
    with open(tmp_path / "wait.log", "wb") as log:
        # The shell is what reaps the processes whose parents have gone.
        program = [sys.executable, str(PROGRAMS / "stopping.py"), str(tmp_path), *options]
        subprocess.run(
            [*apart, "sh", "-c", '"$@"; exit $?', "sh", *program],
            env=environment(RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"), RAY_TMPDIR=str(folder)),
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
    output = (tmp_path / "wait.log").read_text()
    assert "LEFT []" in output, output
    found = re.search(r"DRIVER (\d+)", output)
    assert found, output
    check_node(tmp_path, tmp_path / "spans", int(found[1]), Way(None, WORKER, "worker died.*", cut_off=None))
