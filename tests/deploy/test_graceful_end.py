"""What is left when a pod ends: the scripts of the manifests, run in containers that share the pod's volume.

The containers are namespaces of this machine, made by the tests, which need root for that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import containers
import psutil
import pytest
from containers import Container
from manifests import MANIFESTS, Document, combine, needs_kubectl, one, overlay, pods
from shipping import WRITER, ended, until
from store import Store

pytestmark = [
    needs_kubectl,
    pytest.mark.skipif(bool(containers.unavailable()), reason=containers.unavailable()),
]

RAY = 1000
SPOOL = "/var/ray-tracing/spool"

# The Ray container: a process that records, and the shipper of its node.
PROCESS = """
import os, sys
from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.start import ensure_running
plan = ShipPlan(("otlp",), Settings(), raylet_socket="/tmp/ray/raylet")
ensure_running(sys.argv[1], plan)
"""


@pytest.fixture
def volume() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rth-"))
    folder.chmod(0o2777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


class Pod:
    """Containers of one pod, which have a volume in common."""

    def __init__(self, mount: str, volume: Path, store: Store) -> None:
        self._container = Container(RAY, (RAY,), {mount: volume})
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_TRACING_EXPORTERS": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{store.port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **pipes: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(self._container.command(*arguments), env=self._environment, text=True, **pipes)
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def pod(volume: Path, store: Store) -> Iterator[Pod]:
    pod = Pod("/var/ray-tracing", volume, store)
    yield pod
    pod.end()


def record(pod: Pod, spool: str, first: int, last: int) -> subprocess.Popen[str]:
    """A Ray container that has recorded spans of these numbers; the first one is not over."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    ray = pod.start(sys.executable, "-c", f"{PROCESS}\n{WRITER}", spool, "1000000", **pipes)
    assert ray.stdin is not None
    assert ray.stdout is not None
    for line in (f"start {first}", f"end {first + 1} {last}"):
        ray.stdin.write(line + "\n")
        ray.stdin.flush()
        assert ray.stdout.readline()
    return ray


def send(container: subprocess.Popen[str], number: int) -> None:
    """As Kubernetes does: process 1 of the container gets the signal."""
    (first,) = psutil.Process(container.pid).children()
    first.send_signal(number)


def kill(container: subprocess.Popen[str]) -> None:
    """Return when the last process of the container is gone, its shipper too: only then does process 1 end."""
    send(container, signal.SIGKILL)
    container.communicate(timeout=60)


def numbers(store: Store) -> Counter[int]:
    return Counter(int(span_id, 16) for (span_id,) in store.ask("SELECT span_id FROM spans"))


def sidecar() -> Document:
    (_, template), *_ = pods(one(overlay("collector"), "RayCluster"))
    found: Document = template["spec"]["initContainers"][-1]
    assert found["name"] == "ray-tracing-replay"
    return found


def test_what_ray_left_is_sent_before_the_pod_is_gone(pod: Pod, store: Store) -> None:
    """The Collector was away. Kubernetes kills all of Ray's container, the shipper included, and ends the sidecar then:
    it sends every span once, the interrupted one too.
    """
    ray = record(pod, f"{SPOOL}/0a1b-00000000", 1, 300)
    container = sidecar()
    replaying = pod.start(*container["command"], *container["args"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until(lambda: b"sleep" in commands(replaying), "the sidecar waits")
    kill(ray)
    store.open()
    send(replaying, signal.SIGTERM)
    said, _ = replaying.communicate(timeout=60)
    assert replaying.returncode == 0, said
    assert numbers(store) == Counter(range(1, 301)), said
    print(f"spans expected 300, found {numbers(store).total()}")


def commands(container: subprocess.Popen[str]) -> list[bytes]:
    """The names of the programs that a container runs."""
    found = []
    for process in psutil.Process(container.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(process.name().encode())
    return found


def test_what_a_crashed_container_left_is_sent_while_its_successor_runs(pod: Pod, store: Store) -> None:
    """Ray has begun another session in the same pod, with another spool, whose shipper delivers by itself."""
    crashed = record(pod, f"{SPOOL}/0a1b-00000000", 1, 100)
    kill(crashed)
    record(pod, f"{SPOOL}/0c2d-00000000", 1001, 1100)
    store.open()
    until(lambda: numbers(store).total() == 99, "the shipper delivers")
    container = sidecar()
    replaying = pod.start(*container["command"], *container["args"])
    until(lambda: numbers(store).total() == 199, "the sidecar sends the rest")
    until(lambda: b"sleep" in commands(replaying), "the sidecar waits")
    assert numbers(store) == Counter([*range(1, 101), *range(1002, 1101)])
    send(replaying, signal.SIGTERM)
    replaying.communicate(timeout=60)
    # The spool of the running session is its shipper's.
    assert numbers(store) == Counter([*range(1, 101), *range(1002, 1101)])


def test_the_sidecar_says_that_it_cannot_read_the_spool_of_another_user(pod: Pod, volume: Path) -> None:
    (volume / "spool").mkdir(mode=0o700)
    container = sidecar()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    replaying = pod.start(*container["command"], *container["args"], **pipes)
    until(lambda: b"sleep" in commands(replaying), "the sidecar waits")
    send(replaying, signal.SIGTERM)
    said, _ = replaying.communicate(timeout=60)
    assert f"The spool belongs to user 0, and this container is user {RAY}: set the same runAsUser" in said


class Claim:
    """Spools on a claim, and the job that sends what is left in them."""

    def __init__(self, pod: Pod, mount: str, volume: Path, job: Document) -> None:
        self.pod = pod
        self._mount = mount
        self._folder = volume / "spans"
        self._job = job

    def record(self, node: str, first: int, last: int) -> subprocess.Popen[str]:
        return record(self.pod, f"{self._mount}/spans/{node}", first, last)

    def run(self) -> str:
        """Run the job; what it said."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        said, _ = self.pod.start(*self._job["command"], *self._job["args"], **pipes).communicate(timeout=60)
        return said

    def a_day_passes(self) -> None:
        for path in self._folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, (0, 0))

    def nodes(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir())


@pytest.fixture
def claim(store: Store, volume: Path, tmp_path: Path) -> Iterator[Claim]:
    documents = combine(tmp_path, MANIFESTS / "base", "collector", "spool-volume")
    ((_, template),) = pods(one(documents, "CronJob"))
    (job,) = template["spec"]["containers"]
    ((mount),) = (each["mountPath"] for each in job["volumeMounts"])
    pod = Pod(mount, volume, store)
    yield Claim(pod, mount, volume, job)
    pod.end()


def test_a_cron_job_sends_what_pods_left_on_a_claim(claim: Claim, store: Store) -> None:
    """Once, with the spools of running nodes left to their shippers, and removed a day later."""
    gone = claim.record("0a1b-00000000", 1, 100)
    claim.record("0c2d-00000000", 1001, 1100)
    kill(gone)
    store.open()
    until(lambda: numbers(store).total() == 99, "the shipper of the running node delivers")
    for _ in range(2):
        said = claim.run()
        assert numbers(store) == Counter([*range(1, 101), *range(1002, 1101)]), said
    assert claim.nodes() == ["0a1b-00000000", "0c2d-00000000"]
    claim.a_day_passes()
    claim.run()
    assert claim.nodes() == ["0c2d-00000000"]


def test_a_cron_job_sends_what_is_written_after_its_last_run(claim: Claim, store: Store) -> None:
    """A spool that was sent in full, and is then in use again, stays there until the rest of it is sent too."""
    kill(claim.record("0a1b-00000000", 1, 100))
    store.open()
    claim.run()
    assert numbers(store) == Counter(range(1, 101))
    claim.a_day_passes()
    store.close()
    again = claim.record("0a1b-00000000", 1001, 1100)
    claim.run()
    assert claim.nodes() == ["0a1b-00000000"]
    kill(again)
    store.open()
    said = claim.run()
    assert numbers(store) == Counter([*range(1, 101), *range(1001, 1101)]), said


def test_a_cron_job_leaves_the_spool_of_a_process_that_writes_nothing(claim: Claim, store: Store) -> None:
    """Its spans were delivered long ago, and its shipper may be gone: the span that it is in is not over."""
    store.open()
    quiet = claim.record("0a1b-00000000", 1, 100)
    until(lambda: numbers(store).total() == 99, "the shipper delivers")
    for process in psutil.Process(quiet.pid).children(recursive=True):
        if "ray_tracing_hooks._ship" in process.cmdline():
            process.kill()
            ended(process)
    for _ in range(2):
        claim.a_day_passes()
        claim.run()
    assert claim.nodes() == ["0a1b-00000000"]
    assert numbers(store) == Counter(range(2, 101))
