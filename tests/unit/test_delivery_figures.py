"""The figures of delivery: real shippers, whose `status.json` and metrics say what they did."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calling import T0, Process
from collector import Received, collector
from ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from shipping import Node, ended, until

from ray_tracing_hooks._ship.figures import DestinationFigures, Figures, read
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.metrics.exporters import prometheus
from ray_tracing_hooks._ship.status import Unread, measure
from ray_tracing_hooks._spool.layout import SPAN, segment_name
from ray_tracing_hooks._spool.reader import segments
from ray_tracing_hooks._spool.writer import SpoolWriter

pytestmark = pytest.mark.apart

TRACES = "/v1/traces"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "0")
        yield received


def figures_when(node: Node, reached: Callable[[Figures], bool], what: str) -> Figures:
    """The figures as soon as they are so."""

    def found() -> Figures | None:
        figures = read(str(node.spool))
        return figures if figures is not None and figures.destinations and reached(figures) else None

    figures: Figures = until(found, what)
    return figures


def scraped(address: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The labels and values at an address, by metric; none where nothing listens."""
    connection = http.client.HTTPConnection(address, timeout=20)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    try:
        connection.request("GET", "/metrics")
        exposed = connection.getresponse().read().decode()
    except OSError:
        return {}
    finally:
        connection.close()
    families = list(text_string_to_metric_families(exposed))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_what_was_delivered_is_counted_for_each_destination(node: Node, server: Received) -> None:
    """One that works says so, one that fails says why, and what waits for it, and since when."""
    server.answers[TRACES] = 503
    node.plan = node.make_plan(exporters=("local", "otlp"))
    shipper = node.start()
    process = Process(node.spool)
    for number in range(1, 51):
        process.execute(number, at=T0, took=1_000_000)
    figures = figures_when(
        node, lambda it: it.destinations[0].delivered == 50 and it.destinations[1].retries > 1, "it failed twice"
    )
    local, otlp = figures.destinations
    assert (local.exporter, local.address, local.received, local.waiting) == ("local", str(node.out), 50, 0)
    assert (local.refused, local.dropped, local.retries, local.is_failing, local.oldest_ns) == (0, 0, 0, False, 0)
    assert local.delivered_bytes > 50 * 30
    assert abs(local.delivered_ns - time.time_ns()) < 60e9
    assert (otlp.exporter, otlp.received, otlp.delivered, otlp.waiting) == ("otlp", 50, 0, 50)
    assert otlp.waiting_bytes > local.delivered_bytes
    assert (otlp.is_estimate, otlp.oldest_ns, otlp.is_failing) == (False, T0 + 1_000_000, True)
    assert "503" in otlp.error
    assert otlp.error in figures.problems
    assert (figures.pid, figures.writers, figures.unwritten) == (shipper.pid, 1, 0)
    assert figures.bytes >= otlp.waiting_bytes
    assert figures.limit_bytes == node.plan.settings.spool_max_bytes
    status = os.stat(node.spool / "status.json")
    assert stat.S_IMODE(status.st_mode) == 0o600

    del server.answers[TRACES]
    assert node.flush().done
    otlp = figures_when(node, lambda it: it.destinations[1].waiting == 0, "nothing waits").destinations[1]
    assert (otlp.delivered, otlp.received, otlp.is_failing) == (50, 50, False)
    assert otlp.failed_ns < otlp.delivered_ns
    process.close()


def test_what_is_lost_is_counted_by_its_cause(node: Node, server: Received) -> None:
    """A server that refuses, and a spool without room: together with the rest they are all that was received."""
    server.answers[TRACES] = 413
    node.plan = node.make_plan(exporters=("otlp",))
    node.start()
    writer = node.writer()
    writer.do("span 1 10")
    figures = figures_when(node, lambda it: it.destinations[0].refused == 10, "they are refused")
    (otlp,) = figures.destinations
    (message,) = figures.messages
    assert message.startswith("some spans"), "without a number, so that each process logs it once"
    assert (otlp.received, otlp.delivered, otlp.dropped, otlp.retries) == (10, 0, 0, 0)
    for shipper in node.shippers():
        shipper.kill()
        ended(shipper)
    writer.end()

    server.answers[TRACES] = 503
    os.unlink(node.spool / "plan.json")
    node.plan = node.make_plan(exporters=("otlp",), spool_max_bytes=100_000)
    node.start()
    writer = node.writer(segment_bytes=5000)
    writer.do("span 11 20")
    # So that its first request has only these, whenever it starts.
    figures_when(node, lambda it: it.destinations[0].retries > 0, "the first ones are refused for now")
    writer.do("span 21 5000")
    writer.end()
    # What has been read of the oldest segment does not count.
    figures_when(
        node, lambda it: bool(it.destinations[0].dropped) and it.bytes <= 100_000 + 5000, "it is below its cap"
    )
    (told,) = [problem for problem in node.answer(0.3).problems if "are lost" in problem]
    lost = int(told.split()[0])
    (otlp,) = figures_when(node, lambda it: it.destinations[0].dropped == lost, "it is counted").destinations
    assert otlp.refused == 0, "the counts begin with the shipper"
    assert 0 < otlp.waiting <= 4990 - lost


def test_prometheus_finds_all_metrics(node: Node) -> None:
    """Those of calls by service, and those of the node, with an exporter that takes none."""
    address = f"127.0.0.1:{free_port()}"
    console = str(node.folder / "console.out")
    node.plan = node.make_plan(
        exporters=("console",), metrics=True, utilization=0.1, prometheus=address, console_file=console
    )
    node.start()
    processes = [Process(node.spool, {"service.name": name}) for name in ("one", "two")]
    for process in processes:
        process.execute(1, at=T0, took=1_000_000)
    assert node.flush().problems == []
    found = until(lambda: (found := scraped(address)).get("system_cpu_utilization") and found, "the node is sampled")
    ran = {labels["service_name"]: value for labels, value in found["ray_execution_duration_seconds_count"]}
    assert ran == {"one": 1, "two": 1}
    buckets = {labels["le"]: value for labels, value in found["ray_execution_duration_seconds_bucket"]}
    assert (buckets["0.0005"], buckets["0.001"], buckets["+Inf"]) == (0, 1, 1)
    for process in processes:
        process.close()


def test_an_address_that_another_program_has_is_a_problem(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and delivery goes on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        node.plan = node.make_plan(prometheus=f"127.0.0.1:{taken.getsockname()[1]}")
        node.start()
        node.trouble(
            f"metrics are not served: cannot listen at {node.plan.settings.prometheus} (RAY_TRACING_PROMETHEUS): "
            "Address already in use"
        )
        writer = node.writer()
        writer.do("span 1 5")
        until(lambda: node.numbers() == [1, 2, 3, 4, 5], "they are delivered")
        writer.end()


def test_without_its_package_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    problems = Problems()
    assert prometheus("127.0.0.1:9464", problems) is None
    (told,) = problems.take_unreported()
    assert told.startswith("metrics are not served at 127.0.0.1:9464: RAY_TRACING_PROMETHEUS needs the package ")
    assert "pip install 'ray-tracing-hooks[prometheus]'" in told


def test_what_waits_is_extrapolated_where_counting_takes_long(tmp_path: Path) -> None:
    """A hundredth of a second does not suffice for a million records; the estimate is close, and marked."""
    writer = SpoolWriter(str(tmp_path), segment_bytes=1 << 20)
    process = Process(tmp_path)
    process.close()
    prefix = writer.scope(b"", b"\x0a\x01t").to_bytes(2, "little")
    spans = 60_000
    for number in range(spans):
        ids = number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")
        writer.span(prefix, b"\x0a\x10" + ids + b"\x2a\x01s\x39" + bytes(8) + b"\x41" + (T0).to_bytes(8, "little"))
    writer.close()
    unread = [
        [Unread(path, 0, os.path.getsize(path)) for _, path in pairs] for pairs in segments(str(tmp_path)).values()
    ]
    whole = measure(unread, SPAN, 60)
    assert (whole.items, whole.is_estimate, whole.oldest_ns) == (spans, False, T0)
    part = measure(unread, SPAN, 0.002)
    assert part.is_estimate
    assert part.bytes == whole.bytes
    assert part.items == pytest.approx(spans, rel=0.2)
    # From the middle of a segment on.
    first = unread[0][0]
    counted = [measure([[first._replace(offset=offset)]], SPAN, 60).items for offset in (0, first.size)]
    assert counted == [measure([[first]], SPAN, 60).items, 0]
    # A file that is no segment, or is gone, has nothing that waits.
    (tmp_path / segment_name("1-1-1", 1)).write_bytes(b"\xff" * 1000)
    broken = Unread(str(tmp_path / segment_name("1-1-1", 1)), 0, 1000)
    assert measure([[broken], [broken._replace(path="/nowhere")]], SPAN, 60).items == 0


def test_figures_of_other_releases_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    """What is missing has its default."""
    path = tmp_path / "status.json"
    figures = Figures(pid=7, destinations=(DestinationFigures(exporter="otlp", delivered=3),), problems=("one",))
    path.write_text(figures.as_json())
    assert read(str(tmp_path)) == figures
    path.write_text(json.dumps({"writers": 2, "later": 1, "destinations": [{"exporter": "a"}]}))
    assert read(str(tmp_path)) == Figures(writers=2, destinations=(DestinationFigures(exporter="a"),))
    for broken in ("", "[]", "{", '"x"'):
        path.write_text(broken)
        assert read(str(tmp_path)) is None
    path.unlink()
    assert read(str(tmp_path)) is None
