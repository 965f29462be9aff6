"""What a command that asks a running cluster, or changes it, leaves there."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import support
from conftest import Cluster
from ports import free_port
from support import command, ended, environment, python

COMMAND = (sys.executable, "-m", "ray_tracing_hooks")


def test_an_interrupted_status_ends_and_starts_nothing(cluster: Cluster) -> None:
    """While it waits for the nodes. Ray starts a cluster for whatever uses it after the end of the connection."""
    sessions = _sessions()
    terminal, other_end = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "status", "--address", cluster.address],
        env=environment(TERM="xterm"),
        stdout=subprocess.PIPE,
        stderr=other_end,
        text=True,
    ) as process:
        os.close(other_end)
        shown = b""
        while b"asking the nodes" not in shown:
            shown += os.read(terminal, 1024)
        process.send_signal(signal.SIGINT)
        while data := _read(terminal):
            shown += data
        assert process.wait(60) == 1
        assert process.stdout is not None
        assert process.stdout.read() == ""
    os.close(terminal)
    assert shown.decode().strip().endswith("Aborted!")
    assert _sessions() == sessions


def _read(terminal: int) -> bytes:
    """What is written to a terminal; nothing once nobody has it open any more."""
    try:
        return os.read(terminal, 1024)
    except OSError:
        return b""


def _sessions() -> list[str]:
    return sorted(map(str, Path(support.ray_folder).glob("**/session_2*")))


JOBS = """
import json, sys, ray
from ray._private import state
ray.init(sys.argv[1], logging_level="ERROR")
print(json.dumps([job["Entrypoint"] for job in state.jobs()]))
"""


def _answer(code: str, cluster: Cluster) -> Any:
    """What a driver of this code prints last, as JSON."""
    return json.loads(python("-c", code, cluster.address).stdout.splitlines()[-1])


def test_values_of_settings_are_not_in_the_list_of_jobs(cluster: Cluster) -> None:
    """They may be secrets, and everybody who may use the cluster sees the commands of its drivers."""
    for words in (["configure", "OTEL_EXPORTER_OTLP_HEADERS=key=cnryQx7"], ["configure", "--reset"]):
        command(*words, "--address", cluster.address)
    assert sorted(each for each in _answer(JOBS, cluster) if " configure " in each) == [
        "ray-tracing-hooks configure --reset --address ...",
        "ray-tracing-hooks configure OTEL_EXPORTER_OTLP_HEADERS=... --address ...",
    ]
    logs = Path(support.ray_folder).parent.glob(f"{cluster.spans.parent.name}/ray/session_2*/logs/*")
    assert [path.name for path in logs if path.is_file() and b"cnryQx7" in path.read_bytes()] == []


OF_COMMANDS = """
import json, sys, ray
from ray._private import state, utils
from ray.core.generated import gcs_pb2
from ray_tracing_hooks._ops import change_on_node
ray.init(sys.argv[1], logging_level="ERROR")
accessor = change_on_node._accessor()
actors = map(gcs_pb2.ActorTableData.FromString, accessor.get_actor_table(None, None))
visitors = {each.address.worker_id.hex() for each in actors if each.class_name == "Visitor"}
jobs = [job["JobID"] for job in state.jobs() if job["Entrypoint"].startswith("ray-tracing-hooks ")]
drivers = {utils.compute_driver_id_from_job(ray.JobID.from_hex(job)).hex() for job in jobs}
unknown = (visitors | drivers) - change_on_node._of_commands(accessor, gcs_pb2)
print(json.dumps([sorted(visitors), sorted(drivers), sorted(unknown)]))
"""
"""The ids of the processes of all commands so far: of actors, of drivers, and of those that are not known as such."""


def test_other_commands_are_not_among_the_processes_that_are_changed(cluster: Cluster) -> None:
    """They trace nothing, so they would never answer. A process of an earlier program may be ending meanwhile."""
    other = [*COMMAND, "status", "--watch", "--json", "--address", cluster.address]
    with subprocess.Popen(other, env=environment(), stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        done = command("configure", "--reset", "--json", "--address", cluster.address)
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    said = json.loads(done.stdout)
    visitors, drivers, _ = _answer(OF_COMMANDS, cluster)
    assert visitors
    assert drivers
    assert {each["id"] for each in said["processes"]}.isdisjoint(visitors + drivers)
    assert done.returncode == bool(said["failed"] or said["silent"])


def test_the_processes_of_a_command_that_has_just_ended_are_known_as_its_own(cluster: Cluster) -> None:
    """They may take a while to end. Those of commands before it ended long ago, on a slow machine."""
    before, _, _ = _answer(OF_COMMANDS, cluster)
    command("status", "--address", cluster.address)
    visitors, _, unknown = _answer(OF_COMMANDS, cluster)
    assert set(visitors) - set(before)
    assert (set(visitors) - set(before)).isdisjoint(unknown)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("", ["status"]), ("ray://", ["disable"]), ("", ["collect", "--output", "spans"])],
    ids=["status", "disable", "collect"],
)
def test_an_address_where_no_cluster_answers_is_no_wrong_usage(kind: str, words: list[str], tmp_path: Path) -> None:
    """That of a head, and that of a server for clients."""
    patience = {f"RAY_CLIENT_{name}_TIMEOUT_S": "1" for name in ("INITIAL_CONNECTION", "MAX_CONNECTION")}
    done = ended([*COMMAND, *words, "--address", f"{kind}127.0.0.1:{free_port()}"], tmp_path, **patience)
    assert done.returncode == 1
    assert "\nError: " in f"\n{done.stderr}"
    assert "Usage: " not in done.stderr
    assert ("the connection to ray://127.0.0.1:" if kind else "no answer from a Ray cluster at ") in done.stderr
    assert list(tmp_path.iterdir()) == []
