"""A cluster of several nodes with addresses, processes, folders and clocks of their own: which spans are found.

Nodes are network namespaces of this machine, and containers in them, made by the tests, which need root for that. They
share one folder of local files and one of spools, as on a network file system, and send to one store over the network.
What must be found is what tasks have noted themselves, in files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import containers
import networks
import psutil
import pytest
from containers import Container
from networks import Network
from shipping import until
from store import Store
from support import ANY_PORTS, HELPERS, PATIENCE, PROGRAMS, RAY, environment, spans_in

from ray_tracing_hooks._insight.model.span import Span

pytestmark = [
    # Each starts four Ray nodes at least, ends or cuts off one while tasks run, and awaits that Ray sees it.
    pytest.mark.slow,
    pytest.mark.skipif(bool(containers.unavailable()), reason=containers.unavailable()),
    pytest.mark.skipif(bool(networks.unavailable()), reason=networks.unavailable()),
]

HOOK = "ray_tracing_hooks:setup"
HEAD, WORKERS, REDIS, COLLECTOR = 1, (2, 3), 4, 5
PORT = 6379
OTLP = 4318

PARTITION_SECONDS = float(os.environ.get("RTH_PARTITION_SECONDS", "15"))
"""How long a node is cut off: longer than it takes until the head takes it for dead."""

QUICKLY = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
}
"""A node that does not answer for seconds is dead, and so are connections to it. By default, that takes minutes."""

NONE: Mapping[str, str] = MappingProxyType({})


@dataclass
class Found:
    """How many calls a driver made and on how many nodes; the spans that tasks noted, and those in store and files."""

    made: int
    nodes: int
    began: set[str]
    stored: Counter[str]
    spans: list[Span]

    @property
    def written(self) -> Counter[str]:
        return Counter(span.span_id for span in self.spans)

    @property
    def names(self) -> Counter[str]:
        return Counter(span.name for span in self.spans)


class Cluster:
    """A head, two more nodes, a store on a host of its own, and what they share."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        self.network = network
        self.store = Store(folder)
        self.shared = folder / "shared"
        for name in ("truth", "spool", "spans"):
            (self.shared / name).mkdir(parents=True)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._driver: subprocess.Popen[bytes] | None = None
        self.made = self.nodes = 0
        self.store.open(network.listen(COLLECTOR, OTLP))

    def start(self, host: int, *command: str, up_for: int = 0, **variables: str) -> None:
        """Run a command in a container on a host."""
        name = self.network.name(host)
        container = Container(
            volumes={"/shared": self.shared}, shm="200m", network=name, host_name=f"host-{host}", up_for=up_for
        )
        with open(self.folder / f"host-{host}.log", "ab") as log:
            self._running[host] = subprocess.Popen(
                container.command(*command), env=self._environment(**variables), stdout=log, stderr=log
            )

    def _environment(self, **variables: str) -> dict[str, str]:
        found = {
            **environment(),
            "RTH_NEXT_PORT": "",  # a file that containers cannot see
            "RAY_TMPDIR": "",
            "RAY_TRACING_EXPORTERS": "local,otlp",
            "RAY_TRACING_LOCAL_DIR": "/shared/spans",
            "RAY_TRACING_SPOOL_DIR": "/shared/spool",
            "RAY_TRACING_LOCAL_FILE_MAX_BYTES": "100 kB",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.network.address(COLLECTOR)}:{OTLP}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "RTH_TRUTH": "/shared/truth",
            "RTH_STOP": "/shared/stop",
            **QUICKLY,
            **variables,
        }
        return {name: value for name, value in found.items() if name != "RAY_TMPDIR"}

    def start_node(self, host: int, variables: Mapping[str, str] = NONE, *, up_for: int = 0) -> None:
        address, head = self.network.address(host), self.network.address(HEAD)
        how = ["--head", f"--port={PORT}", f"--tracing-startup-hook={HOOK}", "--include-dashboard=false"]
        options = how if host == HEAD else [f"--address={head}:{PORT}"]
        self.start(
            host,
            *(*RAY, "start", "--block", *options, f"--node-ip-address={address}", "--num-cpus=2"),
            *("--disable-usage-stats", "--object-store-memory=80000000", *ANY_PORTS),
            up_for=up_for,
            RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S="0",
            **variables,
        )

    def await_node(self, host: int, times: int = 1) -> None:
        path = self.folder / f"host-{host}.log"

        def has_started() -> bool:
            assert self._running[host].poll() is None, path.read_text()
            return path.read_text().count("Ray runtime started") >= times

        until(has_started, f"node {host} has started")

    def start_all(self, head: Mapping[str, str] = NONE) -> None:
        """All three nodes; ``head`` are further variables of the head."""
        self.start_node(HEAD, head)
        self.await_node(HEAD)
        for host in WORKERS:
            self.start_node(host)
        for host in WORKERS:
            self.await_node(host)

    def kill(self, host: int) -> None:
        """End all processes on a host at once, as if it had lost its power."""
        process = self._running.pop(host)
        process.kill()
        process.wait()

    def start_driver(self, host: int, **variables: str) -> None:
        """Start the program on a node, in its container, with these environment variables."""
        (first,) = psutil.Process(self._running[host].pid).children()
        inside = ["nsenter", f"--target={first.pid}", "--mount", "--pid", "--net", "--root"]
        inside += ["bash", "-c", 'cd / && exec "$@"', "driver"]
        with open(self.folder / "driver.log", "wb") as log:
            self._driver = subprocess.Popen(
                [*inside, sys.executable, str(PROGRAMS / "on_nodes.py")],
                env=self._environment(RTH_ADDRESS=f"{self.network.address(HEAD)}:{PORT}", **variables),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def noted(self, what: str) -> dict[str, set[str]]:
        """The ids of the spans that tasks have noted, by their nodes."""
        found: dict[str, set[str]] = {}
        for path in (self.shared / "truth").iterdir():
            lines = [line.split() for line in path.read_text().splitlines()]
            found.setdefault(path.name.split("-")[-2], set()).update(line[1] for line in lines if line[0] == what)
        return found

    def await_tasks(self, more: int, nodes: int = 3) -> None:
        """Wait until so many more tasks have ended on each of so many nodes."""
        before = {node: len(ids) for node, ids in self.noted("ended").items()}

        def have_ended() -> bool:
            assert self._driver is not None
            assert self._driver.poll() is None, (self.folder / "driver.log").read_text()
            now = self.noted("ended")
            return sum(len(ids) - before.get(node, 0) >= more for node, ids in now.items()) >= nodes

        until(have_ended, f"{more} more tasks have ended on {nodes} nodes")

    def await_task_on(self, host: int) -> None:
        """Wait until a task runs on this node."""

        def runs() -> bool:
            for path in (self.shared / "truth").glob(f"host-{host}-*"):
                words = path.read_text().split()
                if words.count("began") > words.count("ended"):
                    return True
            return False

        until(runs, f"a task runs on node {host}")

    def finish(self) -> None:
        """Let the driver end."""
        assert self._driver is not None
        (self.shared / "stop").touch()
        output = self.folder / "driver.log"
        try:
            self._driver.wait(120)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver goes on: {output.read_text()}") from None
        assert self._driver.returncode == 0, output.read_text()
        result = output.read_text().rpartition("RESULT ")[2].splitlines()[0]
        self.made, self.nodes = json.loads(result)

    def found(self, *, without: str = "") -> Found:
        """What is found of the run as soon as all that tasks have noted is, or without those of one node."""
        began = set().union(*(ids for node, ids in self.noted("began").items() if node != without))

        def stored() -> Counter[str]:
            return Counter(span_id for (span_id,) in self.store.ask("SELECT span_id FROM spans"))

        spans = spans_in(self.shared / "spans")

        def is_all() -> bool:
            spans[:] = spans_in(self.shared / "spans")
            return began <= stored().keys() & {span.span_id for span in spans}

        until(is_all, "all are delivered", 90)
        return Found(self.made, self.nodes, began, stored(), spans)

    def replay(self) -> None:
        """What nodes left when they ended, as an operator sends it when all have: to the store, and to the files."""
        for host in (*self._running,):
            self.kill(host)
        container = Container(volumes={"/shared": self.shared}, network=self.network.name(HEAD))
        program = [sys.executable, "-m", "ray_tracing_hooks", "replay"]
        for spool in (self.shared / "spool").iterdir():
            for exporter in ("otlp", "local"):
                command = container.command(*program, f"/shared/spool/{spool.name}", "--exporter", exporter)
                done = subprocess.run(
                    command, env=self._environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
                )
                print(done.stdout, done.stderr)

    def end(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait()
        for host in (*self._running,):
            self.kill(host)
        self.store.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="rth-"))
    network = Network(COLLECTOR)
    cluster = Cluster(folder, network)
    yield cluster
    cluster.end()
    network.remove()
    shutil.rmtree(folder, ignore_errors=True)


def report(condition: str, found: Found) -> None:
    """A row of the table: what was expected is what tasks have noted, a submission for each call, and the driver."""
    expected = len(found.began) + found.made + 1
    twice = {name: each.total() - len(each) for name, each in (("files", found.written), ("store", found.stored))}
    print(
        f"\n{condition}: {found.made} calls on {found.nodes} nodes, {len(found.began)} executions noted; spans "
        f"expected {expected}, in the files {len(found.written)}, in the store {len(found.stored)}; twice {twice}"
    )


def check(condition: str, found: Found) -> None:
    report(condition, found)
    assert found.began <= found.stored.keys()
    assert found.began <= found.written.keys()
    assert found.names["on_nodes.py ray.driver"] == 1
    assert found.names["__main__.work ray.remote"] == found.made
    assert found.names["__main__.work ray.remote_worker"] >= len(found.began)
    assert set(found.written.values()) == {1}, "a span is in the files twice"


def test_healthy_nodes(cluster: Cluster) -> None:
    """Each span is found once, and nothing else."""
    cluster.start_all()
    cluster.start_driver(HEAD)
    cluster.await_tasks(10)
    cluster.finish()
    found = cluster.found()
    check("healthy", found)
    assert found.nodes == 3
    assert len(found.written) == len(found.stored) == len(found.began) + found.made + 1
    assert set(found.stored.values()) == {1}


def test_a_node_that_is_killed(cluster: Cluster) -> None:
    """Its tasks run again on others. What it had not sent is in its spool, and what it was running is an error."""
    cluster.start_all()
    cluster.start_driver(HEAD, RTH_SECONDS="2")  # so long that the kill finds one that runs
    cluster.await_tasks(2)
    cluster.await_task_on(WORKERS[-1])
    cluster.kill(WORKERS[-1])
    cluster.await_tasks(2, nodes=2)
    cluster.finish()
    cluster.replay()
    found = cluster.found()
    check("a node killed", found)
    interrupted = [span for span in found.spans if span.attributes.get("error.type") == "worker_died"]
    assert interrupted
    assert all(span.status_code == 2 and span.attributes["ray.end_estimated"] for span in interrupted)


def test_a_node_that_is_cut_off(cluster: Cluster) -> None:
    """It runs on until it is told that the others have given it up, and then ends: what it recorded meanwhile is in its
    spool, since it could not reach the store, and in the files.
    """
    cluster.start_all()
    cluster.start_driver(HEAD)
    cluster.await_tasks(10)
    cluster.network.cut(WORKERS[-1])
    began = time.monotonic()
    cluster.await_tasks(10, nodes=2)
    time.sleep(max(0.0, PARTITION_SECONDS - (time.monotonic() - began)))
    cluster.network.join(WORKERS[-1])
    cluster.await_tasks(10, nodes=2)
    cluster.finish()
    cluster.replay()
    check(f"a node cut off for {PARTITION_SECONDS:g} s", cluster.found())


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, for a clock that is apart")
def test_clocks_that_are_apart(cluster: Cluster) -> None:
    """One node is five minutes slow, and one seems to have been running for a day. The analysis corrects the first."""
    clock = ["cc", "-shared", "-fPIC", "-o", f"{cluster.shared}/clock.so", f"{HELPERS}/shifted_clock.c", "-ldl"]
    subprocess.run(clock, check=True)
    cluster.start_node(HEAD)
    cluster.await_node(HEAD)
    cluster.start_node(WORKERS[0], {"LD_PRELOAD": "/shared/clock.so", "CLOCK_SHIFT": "-300"})
    cluster.start_node(WORKERS[1], up_for=86_400)
    for host in WORKERS:
        cluster.await_node(host)
    cluster.start_driver(HEAD)
    cluster.await_tasks(10)
    cluster.finish()
    found = cluster.found()
    check("clocks apart", found)
    assert found.nodes == 3
    first: dict[str, int] = {}
    for span in found.spans:
        if span.name == "__main__.work ray.remote_worker":
            node = str(span.attributes["ray.node_id"])
            first[node] = min(span.start_ns, first.get(node, span.start_ns))
    behind, earliest, *_ = sorted(first.values())
    assert 290 < (earliest - behind) / 1e9 < 310
    summary = [sys.executable, "-m", "ray_tracing_hooks", "summary", str(cluster.shared / "spans")]
    said = subprocess.run(summary, env=environment(), capture_output=True, text=True, check=True).stdout
    assert re.search(r"the clock of host-2 is (5m 00s|4m 59s|5m 01s) behind, corrected", " ".join(said.split())), said


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server, for a head that can start again")
def test_a_head_that_starts_again(cluster: Cluster) -> None:
    """With fault-tolerant GCS. The driver on another node runs on, and so does its trace."""
    address = cluster.network.address(REDIS)
    cluster.start(REDIS, "redis-server", "--bind", address, "--protected-mode", "no", "--save", "", "--dir", "/tmp")
    head = {"RAY_REDIS_ADDRESS": f"{address}:{PORT}", "RAY_external_storage_namespace": "cluster"}
    cluster.start_all(head)
    cluster.start_driver(WORKERS[0])
    cluster.await_tasks(10)
    cluster.kill(HEAD)
    cluster.start_node(HEAD, head)
    cluster.await_node(HEAD, times=2)
    cluster.await_tasks(10)
    cluster.finish()
    cluster.replay()
    check("a head started again", cluster.found())
