"""The cause of death is what Ray's logs say about this very process; without such lines there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ship.open_spans import Death, cause_of_death

WORKER_ID = "3f9c7136fd37f83866f835a01499d65b95a5ba33a073616e02f5af1d"
OTHER_ID = WORKER_ID[::-1]
DISCONNECT = "raylet_ipc_client.cc:133: RayletIpcClient::Disconnect, exit_type=INTENDED_USER_EXIT, exit_detail="
REST = ", has creation_task_exception_pb_bytes=0\n"
DIED = Death("worker_died", "worker died")


def resource(kind: str, worker_id: str = WORKER_ID) -> bytes:
    return encode.resource({names.RESOURCE_PROCESS_TYPE: kind, names.RESOURCE_WORKER_ID: worker_id})


@pytest.mark.parametrize(
    ("log", "error_type", "message"),
    [
        ("", "worker_died", "worker died"),
        ("*** SIGSEGV received at time=1 on cpu 1 ***\n", "worker_died", "worker died: SIGSEGV"),
        (f"{DISCONNECT}its job has finished{REST}", "worker_died", "worker died: its job has finished"),
        (
            f"{DISCONNECT}Killed. The actor is dead because its owner has died. Owner Id: 0100\nmore{REST}",
            "worker_died",
            "worker died: Killed. The actor is dead because its owner has died.",
        ),
        (
            f"{DISCONNECT}The task f has received a force ray.cancel request.{REST}",
            "ray.exceptions.TaskCancelledError",
            "worker died: The task f has received a force ray.cancel request.",
        ),
        (
            "Shutting down the core worker because the local raylet failed. Check out the raylet.out log file.\n",
            "worker_died",
            "worker died: the local raylet failed",
        ),
        (f"{DISCONNECT}first{REST}*** SIGABRT received at time=1\n", "worker_died", "worker died: SIGABRT"),
        (f"{DISCONNECT}{'x' * 1000}{REST}", "worker_died", "worker died: " + "x" * 300),
    ],
)
def test_the_last_that_a_worker_says_counts(log: str, error_type: str, message: str, tmp_path: Path) -> None:
    (tmp_path / f"python-core-worker-{WORKER_ID}_12.log").write_text("earlier\n" * 100_000 + log)
    assert cause_of_death(str(tmp_path), "12", [b"", resource("worker")]) == Death(error_type, message)


def test_a_worker_that_the_memory_monitor_kills_is_in_the_log_of_its_raylet(tmp_path: Path) -> None:
    line = "(raylet) node_manager.cc:1477: Disconnecting worker, graceful=false, disconnect_type=4, worker_id={}\n"
    (tmp_path / "raylet.1.out").write_text(line.format(WORKER_ID))
    (tmp_path / "raylet.out").write_text(line.format(OTHER_ID).replace("type=4", "type=0"))
    killed = Death("ray.exceptions.OutOfMemoryError", "worker died: the node ran low on memory")
    assert cause_of_death(str(tmp_path), "12", [resource("worker")]) == killed
    assert cause_of_death(str(tmp_path), "12", [resource("worker", OTHER_ID)]) == DIED
    own = tmp_path / f"python-core-worker-{WORKER_ID}_12.log"
    own.write_text(f"{DISCONNECT}The process receives a SIGTERM.{REST}")
    assert cause_of_death(str(tmp_path), "12", [resource("worker")]) == killed
    own.write_text(f"{DISCONNECT}its job has finished{REST}")
    assert cause_of_death(str(tmp_path), "12", [resource("worker")]) == DIED._replace(
        message="worker died: its job has finished"
    )


def test_a_driver_lives_on_after_it_has_disconnected(tmp_path: Path) -> None:
    log = tmp_path / f"python-core-driver-{WORKER_ID}_12.log"
    log.write_text(f"{DISCONNECT}Shutdown by ray.shutdown().{REST}because the local raylet failed.\n")
    assert cause_of_death(str(tmp_path), "12", [resource("driver")]) == Death("driver_died", "driver died")
    log.write_text("*** SIGSEGV received at time=1 on cpu 1 ***\n" + log.read_text())
    assert cause_of_death(str(tmp_path), "12", [resource("driver")]) == Death("driver_died", "driver died: SIGSEGV")


@pytest.mark.parametrize(
    "resources",
    [[], [b"\xff"], [encode.resource({"service.name": "x"})], [resource("worker", "../x")], [resource("odd")]],
)
def test_what_is_no_process_of_rays_has_no_last_words(resources: list[bytes], tmp_path: Path) -> None:
    """A damaged Resource, one of another package, and one that names a file elsewhere are all ignored."""
    (tmp_path / "raylet.out").write_text("disconnect_type=4 worker_id=\n")
    (tmp_path.parent / "x_12.log").write_text("*** SIGSEGV received at time=1\n")
    assert cause_of_death(str(tmp_path), "12", resources) == DIED
    assert cause_of_death(None, "12", [resource("worker")]) == DIED


def test_a_child_of_a_worker_is_not_the_worker(tmp_path: Path) -> None:
    """A forked child has the Resource of its parent, and another process id."""
    (tmp_path / f"python-core-worker-{WORKER_ID}_12.log").write_text("*** SIGSEGV received at time=1\n")
    assert cause_of_death(str(tmp_path), "13", [resource("worker")]) == DIED
