"""Spans that wait for a wrong address are delivered once it is corrected, while Ray runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from collector import Received
from ports import free_port
from shipping import Node, Writer, running_shippers, until

from ray_tracing_hooks._ship.figures import read
from ray_tracing_hooks._ship.plan import ShipPlan, digest
from ray_tracing_hooks._ship.start import ensure_running, reinstate, retire
from ray_tracing_hooks._spool.layout import SUFFIX


@pytest.fixture
def following(node: Node) -> Iterator[Path]:
    """The spool after a change of settings."""
    path = node.folder / "following"
    path.mkdir(mode=0o700)
    yield path
    for shipper in running_shippers(str(path)):
        shipper.kill()


def numbers(server: Received) -> list[int]:
    return sorted(int.from_bytes(span.span_id, "big") for span in server.spans)


def settings(node: Node, endpoint: str) -> tuple[ShipPlan, dict[str, str]]:
    """A plan of two exporters, with the address of one, and its environment."""
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "NO_PROXY": "*",
    }
    exporters = ("local", "otlp")
    return node.make_plan(exporters=exporters, environment=digest(environ, exporters)), environ


def is_failing(spool: Path, waiting: int) -> bool:
    figures = read(str(spool))
    return figures is not None and any(each.is_failing and each.waiting == waiting for each in figures.destinations)


def test_what_waits_for_a_wrong_address_is_delivered_once_it_is_corrected(
    node: Node, following: Path, server: Received
) -> None:
    """By the shipper of the spool that follows. It comes once to each exporter, and the spool is removed."""
    plan, environ = settings(node, f"http://127.0.0.1:{free_port()}")
    ensure_running(str(node.spool), plan, environ)
    writer = node.writer()
    writer.do("span 1 20")
    until(lambda: node.numbers() == list(range(1, 21)), "local files have all")
    until(lambda: is_failing(node.spool, 20), "spans wait")
    retire(str(node.spool), str(following))
    right, environ = settings(node, server.endpoint)
    ensure_running(str(following), right, environ)
    node.writers.append(Writer(following, 1 << 20))
    node.writers[-1].do("span 30")
    until(lambda: numbers(server) == [*range(1, 21), 30], "the collector has all")
    writer.do("span 21")  # it was open when the settings changed
    writer.end()
    until(lambda: numbers(server) == [*range(1, 22), 30], "the collector has the late one too")
    until(lambda: not node.spool.exists(), "nothing is left")
    assert node.numbers() == [*range(1, 22), 30]


def test_a_spool_that_was_taken_over_can_come_back(node: Node, server: Received) -> None:
    """Then its own plan applies again. Nothing is started with settings other than those of the plan."""
    wrong, other = settings(node, f"http://127.0.0.1:{free_port()}")
    plan, environ = settings(node, server.endpoint)
    wrong.store(str(node.spool))
    writer = node.writer()
    writer.do("span 1")
    assert not ensure_running(str(node.spool), plan, environ)
    assert ensure_running(str(node.spool), wrong, other)
    until(lambda: is_failing(node.spool, 1), "spans wait")
    reinstate(str(node.spool), plan)
    until(lambda: ensure_running(str(node.spool), plan, environ), "the other shipper has ended")
    until(lambda: numbers(server) == [1], "it is delivered")


def test_what_is_left_for_a_spool_that_is_left_is_for_the_next_one(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / f"1-1-a.000000{SUFFIX}").touch()
    retire(str(tmp_path / "a"), str(tmp_path / "b"))
    retire(str(tmp_path / "b"), str(tmp_path / "c"))
    assert [(tmp_path / name / "left").read_text() for name in ("a", "b")] == ["c", "c"]
    retire(str(tmp_path / "c"), None)
    assert [(tmp_path / name / "left").read_text() for name in ("a", "b", "c")] == ["", "", ""]
