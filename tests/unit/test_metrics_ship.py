"""Metrics on their way: real shippers, real kills, a collector that fails."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from calling import MS, T0, Process
from collector import Received, collector
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from shipping import Node, ended, until

from ray_tracing_hooks import names
from ray_tracing_hooks._ship.flush import FlushResult

METRICS, TRACES = "/v1/metrics", "/v1/traces"
RAN = names.EXECUTION_DURATION


@pytest.fixture
def metered(node: Node, server: Received) -> Node:
    """A node whose shipper sends spans and metrics, and writes them to files."""
    node.plan = node.make_plan(exporters=("local", "otlp"), metrics=True)
    return node


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


def is_longer(found: list[Any], than: int) -> bool:
    return len(found) > than


def calls(process: Process, first: int, last: int) -> None:
    for number in range(first, last + 1):
        process.submit(number, at=T0)
        process.execute(number, at=T0 + 2 * MS, took=3 * MS)


def test_a_flush_sends_and_writes_what_has_been_counted(metered: Node, server: Received) -> None:
    """Long before the interval has passed, in one point each, with the sums that the spans have."""
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 100)
    assert metered.flush().done
    for messages in (server.metrics, lines(metered)):
        (ran,) = points(messages)
        assert (ran.value.count, ran.value.min, ran.value.max) == (100, 0.003, 0.003)
        assert ran.value.sum == pytest.approx(0.3)
        assert (ran.start, ran.temporality) == (T0 + MS, pb.AGGREGATION_TEMPORALITY_CUMULATIVE)
        assert abs(ran.time - time.time_ns()) < 60 * 10**9
        ((waited,),) = [points(messages, names.EXECUTION_QUEUE_TIME)]
        assert (waited.value.count, waited.value.sum) == (100, pytest.approx(0.2))
        assert counts(messages, names.SUBMISSION_DURATION) == [100]
    (exemplar,) = points(server.metrics)[0].value.exemplars
    assert exemplar.trace_id == b"t" * 16
    assert exemplar.span_id in {span.span_id for span in server.spans}
    written = json.loads(next((metered.out / "metrics").glob("*.jsonl")).read_text().splitlines()[0])
    metric = written["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["histogram"]
    assert metric["aggregationTemporality"] == 2, "enums are integers in OTLP-JSON"
    assert metric["dataPoints"][0]["exemplars"][0]["traceId"] == (b"t" * 16).hex()
    assert metric["dataPoints"][0]["count"] == "100", "and integers of 64 bits are text"
    process.close()


def test_a_second_flush_sends_nothing_that_is_not_new(metered: Node, server: Received) -> None:
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    assert metered.flush().done
    assert metered.flush().done
    assert counts(server.metrics) == counts(lines(metered)) == [10]
    calls(process, 11, 20)
    assert metered.flush().done
    assert counts(server.metrics) == counts(lines(metered)) == [10, 20]
    process.close()


def test_metrics_go_out_at_every_interval(metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the server also where nothing has changed: what is silent is taken for dead."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    until(lambda: counts(server.metrics)[-3:] == [10] * 3, "they come again and again")
    assert counts(lines(metered))[-1:] == [10]
    assert len(lines(metered)) < len(server.metrics)
    process.close()


def test_a_killed_shipper_counts_nothing_twice_and_misses_nothing(metered: Node, server: Received) -> None:
    """The counts are stored with the read position. The stream continues: same start time, same instance."""
    process = Process(metered.spool)
    written = 0
    for _ in range(4):
        shipper = metered.start()
        calls(process, written + 1, written + 2000)
        written += 2000
        seen = len(server.spans)
        until(partial(is_longer, server.spans, seen), "it is at work")
        shipper.kill()
        ended(shipper)
    metered.start()
    assert metered.flush().done
    for messages in (server.metrics, lines(metered)):
        assert counts(messages)[-1] == written
        assert counts(messages, names.SUBMISSION_DURATION)[-1] == written
        assert len({point.start for point in points(messages)}) == 1
        assert len({message.resource_metrics[0].resource.SerializeToString() for message in messages}) == 1
    process.close()


@pytest.mark.parametrize("how", ["node", "terminate"])
def test_the_last_values_go_out_when_the_shipper_ends(metered: Node, server: Received, raylet: Any, how: str) -> None:
    """With its node, or on a signal."""
    process = Process(metered.spool)
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
    assert counts(server.metrics) == counts(lines(metered)) == [10]


@pytest.mark.parametrize("status", [404, 400, 503])
def test_a_server_that_takes_no_metrics_is_told_once_and_holds_nothing_up(
    metered: Node, server: Received, status: int
) -> None:
    """Spans arrive, their segments go, and a flush does not wait."""
    server.answers[METRICS] = status
    process = Process(metered.spool)
    metered.start()
    for turn in range(1, 4):
        calls(process, 10 * turn, 10 * turn + 9)
        began = time.monotonic()
        result = metered.flush(timeout=20)
        assert time.monotonic() - began < 10
        assert (result.done, result.waiting) == (True, [])
        told = [problem for problem in result.problems if "metrics" in problem]
        # Lasting problems are reported to each caller; messages are logged once.
        assert len(told) == (1 if turn == 1 or status == 503 else 0), result.problems
        assert len(server.spans) == 20 * turn
    process.close()
    until(lambda: not metered.segments(), "the segments are removed")
    assert len([line for line in metered.log().splitlines() if "WARNING" in line]) == 1, metered.log()
    assert counts(lines(metered)) == [10, 20, 30], "the files have them"


def test_a_server_that_never_answers_delays_one_flush_and_no_span(
    metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "10")
    server.answers[METRICS] = 0
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    until(lambda: len(server.spans) == 20, "the spans are delivered")
    waiting = FlushResult(done=False, waiting=["the last metrics have not been accepted yet; sending continues"])
    until(lambda: metered.answer() == waiting, "the metrics are on their way")
    assert len(server.spans) == 20
    until(lambda: "no response within 10 s" in metered.log(), "it gives up")
    calls(process, 11, 20)
    began = time.monotonic()
    result = metered.flush(timeout=20)
    assert result.done
    assert time.monotonic() - began < 5, "nobody waits for a server that did not answer the last time"
    assert len(server.spans) == 40
    process.close()
    until(lambda: not metered.segments(), "the segments are removed")


def test_a_server_that_was_away_gets_the_totals_when_it_is_back(metered: Node, server: Received) -> None:
    server.answers[METRICS] = 503
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    metered.flush()
    server.answers.clear()
    until(lambda: counts(server.metrics) == [10], "the next attempt comes by itself")
    until(lambda: "no longer a problem" in metered.log(), "and that is told")
    process.close()


def test_what_is_sent_as_delta_adds_up(metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over failures and a kill; each point begins where the one before ended. Files hold totals."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    process = Process(metered.spool)
    shipper = metered.start()
    calls(process, 1, 10)
    assert metered.flush().done
    server.answers[METRICS] = 503
    calls(process, 11, 30)
    metered.flush()
    server.answers.clear()
    until(lambda: counts(server.metrics) == [10, 20], "what was not taken comes again")
    assert metered.flush().done
    state = metered.spool / "progress-metrics.json"
    sent = points(server.metrics)[-1].time
    until(lambda: json.loads(state.read_text())["sink"]["sent"][0] == sent, "that is noted")
    shipper.kill()
    ended(shipper)
    metered.start()
    calls(process, 31, 35)
    assert metered.flush(60).done  # it has just started, at a low priority
    ran = points(server.metrics)
    assert [point.value.count for point in ran] == [10, 20, 5]
    assert {point.temporality for point in ran} == {pb.AGGREGATION_TEMPORALITY_DELTA}
    assert [point.start for point in ran[1:]] == [point.time for point in ran[:-1]]
    assert counts(lines(metered)) == [10, 30, 35]
    assert {point.temporality for point in points(lines(metered))} == {pb.AGGREGATION_TEMPORALITY_CUMULATIVE}
    process.close()


def test_what_is_sent_at_the_end_as_delta_is_not_sent_again(
    metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the shipper that takes the place of one that was told to end."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    process = Process(metered.spool)
    for turn in range(3):
        shipper = metered.start()
        calls(process, 10 * turn, 10 * turn + 9)
        seen = 20 * (turn + 1) - 1
        until(partial(is_longer, server.spans, seen), "the spans are delivered")
        shipper.send_signal(signal.SIGTERM)
        ended(shipper)
        assert sum(counts(server.metrics)) == 10 * (turn + 1)
    assert counts(lines(metered)) == [10, 20, 30]
    process.close()


def test_what_is_counted_while_a_delta_waits_for_another_attempt_is_sent_at_the_end(
    metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    server.answers[METRICS] = 503
    process = Process(metered.spool)
    shipper = metered.start()
    calls(process, 1, 10)
    assert metered.flush().problems
    until(lambda: server.asked[METRICS] == 4, "the next attempt is seconds away")
    calls(process, 11, 25)
    until(lambda: len(server.spans) == 50, "further spans are delivered")
    server.answers.clear()
    shipper.send_signal(signal.SIGTERM)
    ended(shipper)
    assert counts(server.metrics) == [10, 15]
    process.close()


def test_a_server_that_says_something_else_each_time_is_told_a_few_times(
    metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    server.counts_refusals = True
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    until(lambda: server.asked[METRICS] > 10, "many answers have come")
    process.close()
    told = [line for line in metered.log().splitlines() if "rejected some metrics" in line]
    assert len(told) == 5
    assert "refusal 1" in told[0]


def test_histograms_can_be_exponential_and_requests_json(
    metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "base2_exponential_bucket_histogram")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json")
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "always_off")
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    assert metered.flush().done
    ((_, _, _, ran),) = points(server.metrics)
    assert isinstance(ran, pb.ExponentialHistogramDataPoint)
    assert (ran.count, list(ran.positive.bucket_counts), len(ran.exemplars)) == (10, [10], 0)
    base = 2 ** (2**-ran.scale)
    assert base**ran.positive.offset < 0.003 <= base ** (ran.positive.offset + 1)
    process.close()


def test_a_metrics_endpoint_of_its_own_counts(metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, as the specification says."""
    with collector() as other:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{other.endpoint}/v1/metrics")
        process = Process(metered.spool)
        metered.start()
        calls(process, 1, 10)
        assert metered.flush().done
        assert (len(server.spans), server.metrics, other.spans) == (20, [], [])
        assert counts(other.metrics) == [10]
        process.close()


def test_files_alone_take_metrics(node: Node) -> None:
    node.plan = node.make_plan(metrics=True)
    process = Process(node.spool)
    node.start()
    calls(process, 1, 10)
    assert node.flush().done
    assert counts(lines(node)) == [10]
    assert len(node.spans()) == 20, "and are not among those of spans"
    assert not (node.out / "metrics").stat().st_mode & 0o77
    process.close()


def test_exporters_that_take_no_metrics_are_told_once(node: Node) -> None:
    """The spans are delivered there, without metrics."""
    node.plan = node.make_plan(exporters=("console",), metrics=True, console_file=str(node.folder / "console.out"))
    process = Process(node.spool)
    node.start()
    calls(process, 1, 10)
    result = node.flush()
    assert result.done
    (told,) = [problem for problem in result.problems if "METRICS" in problem]
    assert told.startswith("RAY_TRACING_METRICS=1 is ignored: expected otlp or local among the exporters")
    assert node.flush().problems == []
    assert not list(node.spool.glob("progress-metrics*"))
    process.close()


def test_files_that_cannot_be_written_hold_nothing_up(metered: Node, server: Received) -> None:
    """Something else stands in their place."""
    metered.out.mkdir(mode=0o700)
    (metered.out / "metrics").write_text("a file")
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    result = metered.flush()
    assert result.done
    (told,) = [problem for problem in result.problems if "metrics" in problem]
    assert told.startswith(f"cannot write metrics to '{metered.out / 'metrics'}'")
    assert counts(server.metrics) == [10]
    assert len(server.spans) == len(metered.spans()) == 20
    process.close()


def test_files_of_metrics_have_a_cap(node: Node) -> None:
    """A tenth of what those of spans may take; the oldest go."""
    node.plan = node.make_plan(metrics=True, local_max_bytes=200_000, exporters=("local",))
    process = Process(node.spool)
    node.start()
    for turn in range(1, 30):
        calls(process, turn, turn)
        assert node.flush().done
    sizes = [path.stat().st_size for path in (node.out / "metrics").iterdir()]
    assert sum(sizes) <= 20_000
    assert counts(lines(node))[-1] == 29
    assert len(lines(node)) < 29
    process.close()


def test_a_spool_that_cannot_be_written_holds_no_span_up(metered: Node, server: Received, mount: Any) -> None:
    """On a full disk the state of metrics cannot grow. They are counted on in memory, and segments go."""
    mount("size=2m", metered.spool)
    process = Process(metered.spool)
    shipper = metered.start()
    calls(process, 1, 5)
    assert metered.flush().done
    shipper.suspend()
    for number in range(300):
        span = process.begin(number, at=T0)
        span.set_attribute(names.ERROR_TYPE, f"Error{number}")
        span.end(T0 + MS)
    ballast = metered.spool / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:  # until the disk is full
            file.write(bytes(1024))
    shipper.resume()
    result = metered.flush(timeout=10)
    assert result.done, (result.problems, result.waiting)
    assert len(server.spans) == 310
    assert sum(point.value.count for point in points(server.metrics)[-301:]) == 305
    process.close()
    until(lambda: not metered.segments(), "the segments are removed")
    assert "cannot write 'progress-metrics.json' in the spool" in metered.log()
    ballast.unlink()


@pytest.mark.parametrize("stored", ["", "{", '{"processes": {}, "sink": {"totals": 7, "files": 8}}'])
def test_a_state_that_makes_no_sense_is_left_aside(metered: Node, server: Received, stored: str) -> None:
    (metered.spool / "progress-metrics.json").write_text(stored)
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    assert metered.flush().done
    assert counts(server.metrics) == [10]
    process.close()


def test_secrets_in_headers_for_metrics_are_told_nobody(
    metered: Node, server: Received, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-key=canary-of-metrics")
    server.answers[METRICS] = 403
    process = Process(metered.spool)
    metered.start()
    calls(process, 1, 10)
    assert metered.flush().done
    assert server.asked[METRICS]
    process.close()
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"canary-of-metrics" not in path.read_bytes(), path
