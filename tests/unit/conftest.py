"""What tests of the spool and its shipper begin with."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from collector import Received, collector
from faulty import FaultyDisk
from mounts import mounted
from shipping import Node

from ray_tracing_hooks import _compiled


@pytest.fixture(params=["compiled", "python"], scope="module")
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of a file that record with the compiled part of the hot path, and then without it."""
    if request.param == "compiled" and not _compiled.use.is_loaded:
        pytest.skip("this installation is pure Python")
    before = _compiled.use.is_on
    _compiled.use.allow(request.param == "compiled")
    yield
    _compiled.use.allow(before)


@pytest.fixture
def raylet(tmp_path: Path) -> Iterator[socket.socket]:
    """A substitute for the raylet: a listener on a unix socket."""
    with socket.socket(socket.AF_UNIX) as listener:
        descriptor = os.open(tmp_path, os.O_PATH)
        listener.bind(f"/proc/self/fd/{descriptor}/raylet")
        os.close(descriptor)
        listener.listen(100)
        yield listener


@pytest.fixture
def node(tmp_path: Path, raylet: socket.socket, mount: object, faulty: object) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """An OTLP collector that the variables of this process name."""
    with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        yield received


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a small file system in memory, with the options given, over a folder that may be named."""
    with contextlib.ExitStack() as stack:
        yield lambda options, folder=None, kind="tmpfs": stack.enter_context(
            mounted(folder or tmp_path / "mounted", f"mode=700,{options}", kind)
        )


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Callable[..., FaultyDisk]]:
    """Mounts a disk that fails on command, over a folder that may be given."""
    with contextlib.ExitStack() as stack:
        yield lambda folder=None: stack.enter_context(FaultyDisk(folder or tmp_path / "faulty"))
