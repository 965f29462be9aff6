"""Backends, one of each for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from peers import Rotel, TestAgent


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
