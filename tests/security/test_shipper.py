"""A real shipper while others do what they can to its files, and what it shows to the users of its machine."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from plans import made_plan
from shipping import until

from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._ship.flush import flush
from ray_tracing_hooks._ship.start import ensure_running
from ray_tracing_hooks._spool.writer import SpoolWriter

pytestmark = pytest.mark.timeout(90)


def span(number: int) -> bytes:
    head = b"\x0a\x10" + number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")
    return head + b"\x2a\x01s\x39" + (1000).to_bytes(8, "little") + b"\x41" + (2000).to_bytes(8, "little")


class Node:
    """A spool with its shipper, and a process that writes to it, which is this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.out = folder / "spans"
        self.log = folder / "ship.log"
        self.writers: list[SpoolWriter] = []
        self._record = self.recorder(self.spool)

    def recorder(self, spool: Path) -> Callable[[int], None]:
        writer = SpoolWriter(str(spool))
        self.writers.append(writer)
        prefix = writer.scope(b"", b"").to_bytes(2, "little")
        return lambda number: writer.span(prefix, span(number))

    def record(self, number: int) -> None:
        self._record(number)

    def start(self) -> psutil.Process:
        plan = made_plan(("local",), str(self.out), raylet_socket=str(self.folder / "raylet"), log_file=str(self.log))
        assert ensure_running(str(self.spool), plan, {"OTEL_EXPORTER_OTLP_HEADERS": "key=canary-of-the-headers"})
        found: psutil.Process = until(self.shipper, "the shipper runs")
        return found

    def shipper(self) -> psutil.Process | None:
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or []
            if "ray_tracing_hooks._ship" in command and str(self.spool) in command and command[0] != "sh":
                return process
        return None

    def delivered(self) -> list[int]:
        found = read(span_files([str(self.out)]))[0] if self.out.exists() else []
        return sorted(int(each.span_id, 16) for each in found)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with socket.socket(socket.AF_UNIX) as raylet:
        descriptor = os.open(tmp_path, os.O_PATH)
        raylet.bind(f"/proc/self/fd/{descriptor}/raylet")
        os.close(descriptor)
        raylet.listen(100)
        node = Node(tmp_path)
        yield node
        for writer in node.writers:
            writer.close()
        if (shipper := node.shipper()) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                shipper.kill()
    until(lambda: node.shipper() is None, "the shipper has ended")


def _link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def _fifo(path: Path, _victim: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (_link, "it is a symbolic link"),
        (_hard_link, "it is a file that has a second name"),
        (_fifo, "it is not a file"),
    ],
)
def test_a_planted_log_is_said_and_spans_are_delivered(
    node: Node, plant: Callable[[Path, Path], None], reason: str
) -> None:
    """The folder of Ray's logs can be written to by everybody. A FIFO there would have held all delivery up."""
    victim = node.folder / "victim"
    victim.write_text("mine")
    plant(node.log, victim)
    node.start()
    node.record(1)
    result = flush(str(node.spool), 40)
    assert result.done
    assert node.delivered() == [1]
    (said,) = result.problems
    assert said.startswith(f"delivery is not logged: {str(node.log)!r} cannot be written to: {reason}")
    assert victim.read_text() == "mine"


def test_what_is_put_in_place_of_the_spool_is_never_sent(node: Node) -> None:
    """The shipper continues in the folder that it has opened, and so do the writers there: nothing is lost."""
    node.start()
    node.record(1)
    until(lambda: node.delivered() == [1], "the first span is delivered")
    os.rename(node.spool, node.folder / "moved")
    # Of the same user's making, so that nothing but the place tells it from ours.
    node.recorder(node.spool)(666)
    made_plan(("local",), str(node.folder / "stolen"), 1, 1, 1).store(str(node.spool))
    before = sorted(node.spool.iterdir())
    for number in (2, 3):
        node.record(number)
        until(lambda: node.delivered()[-1] == number, "the next span is delivered")  # noqa: B023
    assert node.delivered() == [1, 2, 3]
    assert sorted(node.spool.iterdir()) == before
    assert not (node.folder / "stolen").exists()


def test_a_shipper_shows_nothing_and_listens_nowhere(node: Node) -> None:
    """Its arguments, which everybody can see, name a folder; its environment is for its owner; it has no port."""
    shipper = node.start()
    node.record(1)
    assert flush(str(node.spool), 40).done
    assert "canary" not in " ".join(shipper.cmdline())
    assert shipper.environ()["OTEL_EXPORTER_OTLP_HEADERS"] == "key=canary-of-the-headers"
    assert stat.S_IMODE(os.stat(f"/proc/{shipper.pid}/environ").st_mode) == 0o400
    assert shipper.net_connections("inet") == []
    assert "canary" not in "".join(path.read_text() for path in node.spool.glob("*.json"))
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in [*node.spool.iterdir(), node.log]}
    print(modes)
    assert len(modes) >= 5
    assert set(modes.values()) == {0o600}
