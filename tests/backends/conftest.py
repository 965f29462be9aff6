"""Backends, one of each for all tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from peers import Rotel, Send, TestAgent


@pytest.fixture(scope="session", autouse=True)
def ray_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray's session folders go with the tests. The name is short: a unix socket's path may have 107 bytes."""
    import tempfile

    before, support.ray_folder = support.ray_folder, tempfile.mkdtemp(prefix="rth-")
    yield
    shutil.rmtree(support.ray_folder, ignore_errors=True)
    support.ray_folder = before


@pytest.fixture
def rotel(tmp_path: Path) -> Iterator[Rotel]:
    folder = tmp_path / "rotel"
    folder.mkdir()
    peer = Rotel(folder)
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture(scope="session")
def running_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestAgent]:
    peer = TestAgent(tmp_path_factory.mktemp("agent"))
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture
def agent(running_agent: TestAgent) -> TestAgent:
    running_agent.clear()
    return running_agent


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, ray_folder: None) -> Path:
    """The local files of a real run whose spans have everything that a span can have."""
    folder = tmp_path_factory.mktemp("recorded")
    support.run_program(
        "everything", RTH_HOOK=support.HOOK, RAY_TRACING_LOCAL_DIR=str(folder / "spans"), OTEL_SERVICE_NAME="job"
    )
    return folder / "spans"


@pytest.fixture
def send(recorded: Path, tmp_path: Path) -> Send:
    """Sends that run by the sink of an exporter, as variables set it up; and gives the folder with the files of it."""

    def replay(exporter: str, **variables: str) -> Path:
        folder = tmp_path / "spans"
        shutil.copytree(recorded, folder)
        command = [sys.executable, "-m", "ray_tracing_hooks", "replay", str(folder), "--exporter", exporter]
        done = subprocess.run(
            command,
            env=support.environment(XDG_STATE_HOME=str(tmp_path / "state"), **variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return folder

    return replay
