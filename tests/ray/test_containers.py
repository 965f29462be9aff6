"""Ray in containers as clusters run them: any user, a read-only root, no /tmp, little shared memory, sidecars.

The containers are namespaces of this machine, made by the tests, which need root for that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import containers
import pytest
from containers import Container
from support import Run, check_links, run_program, spans_in

pytestmark = pytest.mark.skipif(bool(containers.unavailable()), reason=containers.unavailable())

RAY, SIDECAR, GROUP = 12345, 23456, 34567
"""Users without an entry in ``/etc/passwd``, and the group of the volume."""

NAMES = {
    "small.py ray.driver": 1,
    **{
        f"{call} ray.{side}": 1
        for call in ("__main__.double", "Actor.__init__", "Actor.add")
        for side in ("remote", "remote_worker")
    },
}


@pytest.fixture
def volume() -> Iterator[Path]:
    """As Kubernetes makes an ``emptyDir`` with ``fsGroup``: of root and the group, for all to write to."""
    folder = Path(tempfile.mkdtemp(prefix="rth-"))
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2777)
    yield folder
    shutil.rmtree(folder)


def run_in(container: Container, folder: str = "/data/spans", group: str = "", flush_timeout: str = "30") -> Run:
    """Run a small program, with a cluster of its own, as a user whose variables name no home and no user."""
    return run_program(
        "small",
        command=container.command(),
        RTH_HOOK="ray_tracing_hooks.local:setup",
        RTH_NEXT_PORT="",  # a file that it cannot see
        RAY_TMPDIR="/data",
        RAY_TRACING_LOCAL_DIR=folder,
        RAY_TRACING_GROUP=group,
        RAY_TRACING_FLUSH_TIMEOUT=flush_timeout,
        HOME="/nonexistent",
        USER="",
        LOGNAME="",
    )


def check(run: Run, volume: Path, *, said: int = 0) -> None:
    assert run.result == [2, 3]
    spans = spans_in(volume / "spans")
    print(f"spans expected {sum(NAMES.values())}, found {len(spans)}")
    assert sorted(span.name for span in spans) == sorted(NAMES)
    check_links(spans)
    told = [line for line in run.stderr.splitlines() if "ray_tracing_hooks" in line and "INFO" not in line]
    assert len(told) == said, told


def test_any_user_with_a_read_only_root_without_tmp_and_with_little_shared_memory(volume: Path) -> None:
    """All of it at once, and a sidecar with another user reads the spans, but not the spool, and writes to neither."""
    container = Container(RAY, (RAY, GROUP), {"/data": volume}, has_tmp=False, shm="1m")
    check(run_in(container, group=str(GROUP)), volume)

    sidecar = Container(SIDECAR, (SIDECAR, GROUP), {"/data": volume})
    code = "cat /data/spans/*.jsonl | wc -l; cat /data/ray/session_2*/logs/ray_tracing_hooks-*.log | grep -c shipping"
    code += "; ls /data/ray/session_2*/ray_tracing_hooks; touch /data/spans/x"
    done = subprocess.run(sidecar.command("bash", "-c", code), capture_output=True, text=True, check=False)
    lines, shipped, *others = done.stdout.split()
    assert int(lines) > 0
    assert int(shipped) == 1
    assert not others
    assert done.stderr.count("Permission denied") == 2, done.stderr


def test_root_of_a_container(volume: Path) -> None:
    check(run_in(Container(volumes={"/data": volume})), volume)


def test_a_folder_that_is_of_the_volumes_owner_is_refused_and_named(volume: Path) -> None:
    """The mount itself belongs to root: spans need a folder in it."""
    container = Container(RAY, (RAY, GROUP), {"/data": volume})
    run = run_in(container, "/data", flush_timeout="1")
    assert run.result == [2, 3]
    assert (
        "cannot write spans to '/data': it belongs to another user (uid 0); set RAY_TRACING_LOCAL_DIR to" in run.stderr
    )
