"""One traced cluster for all tests that need no cluster of their own."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
import support
from ports import free_port
from support import ANY_PORTS, HOOK, RAY, Run, environment, of_driver, run_program, spans_in

NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Cluster:
    """A running head node; ``spans`` is the folder where the spans of its programs go, which get ``variables``.

    Variables of a program reach its driver. Workers have those of the head.
    """

    address: str
    spans: Path
    variables: dict[str, str] = field(default_factory=dict)
    _runs: dict[tuple[str, ...], Run] = field(default_factory=dict)

    def once(self, name: str) -> Run:
        """As :meth:`run`, but tests that look at the same run of a program share it."""
        if (name,) not in self._runs:
            self._runs[name,] = self.run(name)
        return self._runs[name,]

    def run(self, name: str, *arguments: str, **variables: str) -> Run:
        """Run a program on this cluster; the run's ``spans`` are those of its trace."""
        run = run_program(
            name,
            *arguments,
            check=True,
            RTH_ADDRESS=self.address,
            RAY_TRACING_LOCAL_DIR=str(self.spans),
            **self.variables,
            **variables,
        )
        run.spans = of_driver(spans_in(self.spans), name)
        return run


def start_head(folder: Path, *options: str, **variables: str) -> tuple[subprocess.Popen[bytes], str]:
    """``ray start --head`` in the foreground, so that its end ends the node's processes; and the node's address.

    It has no more processes than it needs: see ``lean.py``.

    It takes its port some seconds after that was found to be free. If another has it by then, it is started again.
    """
    for _ in range(3):
        port = free_port()
        head = _begin_head(folder, port, *options, **variables)
        deadline = time.monotonic() + 180
        while head.poll() is None and time.monotonic() < deadline:
            if b"Ray runtime started" in (folder / "head.log").read_bytes():
                return head, f"127.0.0.1:{port}"
            time.sleep(0.1)
        stop_head(head)
    raise AssertionError((folder / "head.log").read_text())


def _begin_head(folder: Path, port: int, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    with open(folder / "head.log", "wb") as log:
        return subprocess.Popen(
            [
                *(*RAY, "start", "--head", "--block", "--num-cpus=4", "--include-dashboard=false"),
                *("--disable-usage-stats", f"--port={port}", f"--temp-dir={folder / 'ray'}"),
                *("--object-store-memory=100000000", *ANY_PORTS, *options),
            ],
            # Ray would wait for half a minute where actors are left.
            env=environment(**{"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0", **variables}),
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def dashboard_options(port: int) -> list[str]:
    """Options of a head whose dashboard takes jobs at this port. Without them two heads would want the same ports."""
    return [
        "--include-dashboard=true",
        f"--dashboard-port={port}",
        f"--dashboard-agent-listen-port={free_port()}",
        f"--ray-client-server-port={free_port()}",
    ]


def stop_head(head: subprocess.Popen[bytes]) -> None:
    head.terminate()
    try:
        head.wait(timeout=20)
    except subprocess.TimeoutExpired:
        head.kill()
        head.wait()


@contextlib.contextmanager
def traced(folder: Path, variables: Mapping[str, Any] = NONE, own: Mapping[str, Any] = NONE) -> Iterator[Cluster]:
    """A head node with the local hook. Its programs have these ``variables`` too, and it alone has ``own`` ones."""
    given = {**variables, **own, "RAY_TRACING_LOCAL_DIR": str(folder / "spans")}
    head, address = start_head(folder, f"--tracing-startup-hook={HOOK}", **given)
    try:
        yield Cluster(address, folder / "spans", {**variables})
    finally:
        stop_head(head)


@dataclass
class Nodes:
    """Nodes beside a head, by their names; each with variables, and perhaps a Python, of its own."""

    address: str
    folder: Path
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *options: str, python: str = sys.executable, **variables: str) -> None:
        """Start a node, and wait until it is there: many that start at once time out."""
        command = [python, *RAY[1:], "start", f"--address={self.address}", f"--node-name={name}", "--block"]
        with open(self.folder / f"{name}.log", "wb") as log:
            self.started[name] = subprocess.Popen(
                [*command, "--num-cpus=1", *ANY_PORTS, "--object-store-memory=100000000", *options],
                env=environment(**variables),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 180
        while b"Ray runtime started" not in (output := (self.folder / f"{name}.log").read_bytes()):
            assert self.started[name].poll() is None, output.decode()
            assert time.monotonic() < deadline, output.decode()
            time.sleep(0.05)

    def stop(self) -> None:
        for node in self.started.values():
            stop_head(node)


@pytest.fixture(scope="session")
def short_tmp() -> Iterator[Callable[[], Path]]:
    """Makes folders with short names: the path of a unix socket of Ray's may have 107 bytes."""
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="rth-")))
        return made[-1]

    yield make
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def ray_folder(short_tmp: Callable[[], Path]) -> Iterator[None]:
    """Ray's session folders go with the tests, and so do shippers that cannot deliver: they would wait for a minute."""
    support.ray_folder = str(short_tmp())
    yield
    waiting = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(part.startswith(support.ray_folder) for part in process.info["cmdline"] or [])
    ]
    for process in waiting:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(waiting, timeout=10)
    for process in left:  # what it wrote later would stay behind
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)


@pytest.fixture(scope="module")
def only_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No other test file has Ray Clients meanwhile.

    Their servers take the first free ports from 23000 on, whichever cluster they are of: where two look at the same
    time, a client of one may be served by the other.
    """
    shared = tmp_path_factory.getbasetemp().parent  # by all processes that run tests
    with open(shared / "clients.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def cluster(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """A head node started with the local hook."""
    with traced(short_tmp()) as found:
        yield found


@pytest.fixture(scope="session")
def untraced(short_tmp: Callable[[], Path]) -> Iterator[str]:
    """The address of a cluster without hook."""
    head, address = start_head(short_tmp())
    yield address
    stop_head(head)


@pytest.fixture(scope="session")
def serving(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """The same, where Ray Serve can run."""
    with traced(short_tmp(), support.with_extras()) as found:
        yield found


@pytest.fixture(scope="session")
def training(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """The same, where Ray Train, Tune and RLlib can run, with peaks of memory and samples of the node."""
    variables = {**support.with_training(), "RAY_TRACING_MEMORY": "1"}
    own = {"RAY_TRACING_UTILIZATION": "0.2", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    with traced(short_tmp(), variables, own) as found:
        yield found


@pytest.fixture
def dashboard(short_tmp: Callable[[], Path], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A cluster that jobs can be submitted to: the address of its dashboard, and its own."""
    port = free_port()
    head, address = start_head(
        short_tmp(),
        *dashboard_options(port),
        f"--tracing-startup-hook={HOOK}",
        RAY_TRACING_LOCAL_DIR=str(tmp_path),
        **support.with_extras(),
    )
    yield f"http://127.0.0.1:{port}", address
    stop_head(head)
