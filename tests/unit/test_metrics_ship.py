"""Metrics on their way: real shippers, real kills, a collector that fails."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from calling import MS, T0, Process
from collector import Received
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from shipping import Node, ended, until

from ray_tracing_hooks import names

pytestmark = pytest.mark.apart

METRICS, TRACES = "/v1/metrics", "/v1/traces"
RAN = names.EXECUTION_DURATION


@pytest.fixture
def metered(node: Node, server: Received) -> Node:
    """A node whose shipper sends spans and metrics, and writes them to files."""
    node.plan = node.make_plan(exporters=("local", "otlp"), metrics=True)
    return node


@pytest.fixture
def process(node: Node) -> Iterator[Process]:
    """One of the node, which ends with the test at the latest."""
    running = Process(node.spool)
    yield running
    running.close()


class Point(NamedTuple):
    start: int
    time: int
    temporality: int
    value: Any


def points(messages: Iterable[Any], name: str = RAN) -> list[Point]:
    """The points of the metric, in the order in which they came."""
    data = [
        getattr(metric, str(metric.WhichOneof("data")))
        for message in messages
        for resource in message.resource_metrics
        for metric in resource.scope_metrics[0].metrics
        if metric.name == name
    ]
    return [
        Point(point.start_time_unix_nano, point.time_unix_nano, each.aggregation_temporality, point)
        for each in data
        for point in each.data_points
    ]


def counts(messages: Iterable[Any], name: str = RAN) -> list[int]:
    return [point.value.count for point in points(messages, name)]


def lines(node: Node) -> list[pb.MetricsData]:
    """What was written, read by protobuf's parser, for which ids are base64."""
    found = []
    for path in sorted((node.out / "metrics").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            message = json_format.Parse(line, pb.MetricsData())
            # Hexadecimal digits are base64 too, and give half as many bytes more.
            found.append(message)
    return found


def calls(process: Process, first: int, last: int) -> None:
    for number in range(first, last + 1):
        process.submit(number, at=T0)
        process.execute(number, at=T0 + 2 * MS, took=3 * MS)


def test_a_flush_sends_and_writes_what_has_been_counted(metered: Node, process: Process, server: Received) -> None:
    """Long before the interval has passed, in one point each, with the sums that the spans have."""
    metered.start()
    calls(process, 1, 100)
    assert metered.flush().done
    for messages in (server.metrics, lines(metered)):
        (ran,) = points(messages)
        assert (ran.value.count, ran.value.min, ran.value.max) == (100, 0.003, 0.003)
        assert ran.value.sum == pytest.approx(0.3)
        assert ran.temporality == pb.AGGREGATION_TEMPORALITY_CUMULATIVE
        assert abs(ran.time - time.time_ns()) < 60 * 10**9
        ((waited,),) = [points(messages, names.EXECUTION_QUEUE_TIME)]
        assert (waited.value.count, waited.value.sum) == (100, pytest.approx(0.2))
        assert counts(messages, names.SUBMISSION_DURATION) == [100]
    (exemplar,) = points(server.metrics)[0].value.exemplars
    assert exemplar.trace_id == b"t" * 16
    assert exemplar.span_id in {span.span_id for span in server.spans}
    written = [json.loads(line) for line in next((metered.out / "metrics").glob("*.jsonl")).read_text().splitlines()]
    metrics = [line["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0] for line in written]
    (metric,) = (metric["histogram"] for metric in metrics if metric["name"] == RAN)
    assert metric["aggregationTemporality"] == 2, "enums are integers in OTLP-JSON"
    assert metric["dataPoints"][0]["exemplars"][0]["traceId"] == (b"t" * 16).hex()
    assert metric["dataPoints"][0]["count"] == "100", "and integers of 64 bits are text"


def test_metrics_go_out_at_every_interval(metered: Node, process: Process, server: Received) -> None:
    os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = "100"
    metered.start()
    calls(process, 1, 10)
    until(lambda: counts(server.metrics)[-3:] == [10] * 3, "they come again and again")
    until(lambda: counts(lines(metered))[-3:] == [10] * 3, "to files too")


def test_a_shipper_after_a_killed_one_counts_on_from_there(metered: Node, process: Process, server: Received) -> None:
    """From zero, as the same instance: what the killed one had counted since its last export is lost."""
    for turn in range(2):
        shipper = metered.start()
        calls(process, 10 * turn + 1, 10 * turn + 10)
        assert metered.flush().done
        shipper.kill()
        ended(shipper)
    for messages in (server.metrics, lines(metered)):
        assert counts(messages) == [10, 10]
        (first, second) = points(messages)
        assert first.time < second.start
        assert len({message.resource_metrics[0].resource.SerializeToString() for message in messages}) == 1


@pytest.mark.parametrize("how", ["node", "terminate"])
def test_the_last_values_go_out_when_the_shipper_ends(
    metered: Node, process: Process, server: Received, raylet: Any, how: str
) -> None:
    """With its node, or on a signal."""
    shipper = metered.start()
    calls(process, 1, 10)
    until(lambda: len(server.spans) == 20, "the spans are delivered")
    process.close()
    assert server.metrics == []
    if how == "terminate":
        shipper.send_signal(signal.SIGTERM)
    else:
        raylet.close()
    ended(shipper)
    assert set(counts(server.metrics)) == set(counts(lines(metered))) == {10}


def test_a_server_that_takes_no_metrics_is_a_problem_and_holds_nothing_up(
    metered: Node, process: Process, server: Received
) -> None:
    """Spans arrive, their segments go, and a flush does not wait."""
    server.answers[METRICS] = 404
    metered.start()
    for turn in range(1, 4):
        calls(process, 10 * turn, 10 * turn + 9)
        result = metered.flush(timeout=20)
        assert (result.done, result.waiting) == (True, [])
        (told,) = [problem for problem in result.problems if "metrics" in problem]
        assert told.startswith(f"metrics are not sent to {server.endpoint}{METRICS}: ")
        assert "404" in told
        assert len(server.spans) == 20 * turn
    assert server.asked[METRICS] == 1, "a flush does not ask again"
    process.close()
    until(lambda: not metered.segments(), "the segments are removed")
    assert counts(lines(metered)) == [10, 20, 30], "the files have them"


def test_programs_with_other_names_on_a_node_have_metrics_of_their_own(metered: Node, server: Received) -> None:
    """The resource is that of the node and service: two processes of one service share it."""
    processes = [
        Process(metered.spool, {"service.name": name, "service.instance.id": str(pid), "process.pid": pid, "team": "a"})
        for name, pid in (("one", 1), ("one", 2), ("two", 3))
    ]
    metered.start()
    for process in processes:
        calls(process, 1, 10)
    assert metered.flush().done
    found = {}
    for message in server.metrics:
        resource = {each.key: each.value.string_value for each in message.resource_metrics[0].resource.attributes}
        assert resource.keys() == {"service.name", "service.instance.id", "team"}
        found[resource["service.name"]] = (resource["service.instance.id"], sum(counts([message])))
    assert [count for _, count in (found["one"], found["two"])] == [20, 10]
    assert found["one"][0] != found["two"][0]
    for process in processes:
        process.close()


def test_files_alone_take_metrics(node: Node, process: Process) -> None:
    node.plan = node.make_plan(metrics=True)
    node.start()
    calls(process, 1, 10)
    assert node.flush().done
    assert counts(lines(node)) == [10]
    assert len(node.spans()) == 20, "and are not among those of spans"
    assert not (node.out / "metrics").stat().st_mode & 0o77


def test_files_that_cannot_be_written_hold_nothing_up(metered: Node, process: Process, server: Received) -> None:
    """Something else stands in their place."""
    metered.out.mkdir(mode=0o700)
    (metered.out / "metrics").write_text("a file")
    metered.start()
    calls(process, 1, 10)
    result = metered.flush()
    assert result.done
    (told,) = [problem for problem in result.problems if "metrics" in problem]
    assert told.startswith(f"cannot write metrics to '{metered.out / 'metrics'}'")
    assert counts(server.metrics) == [10]
    assert len(server.spans) == len(metered.spans()) == 20


def test_secrets_in_headers_for_metrics_are_told_nobody(
    metered: Node, process: Process, server: Received, tmp_path: Path
) -> None:
    os.environ["OTEL_EXPORTER_OTLP_METRICS_HEADERS"] = "x-key=canary-of-metrics"
    server.answers[METRICS] = 403
    metered.start()
    calls(process, 1, 10)
    assert metered.flush().done
    assert server.asked[METRICS]
    process.close()
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"canary-of-metrics" not in path.read_bytes(), path
