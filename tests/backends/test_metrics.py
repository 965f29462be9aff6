"""What a real collector receives as metrics is what the spans of the same run say."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from peers import Rotel, local_files, spans_of
from shipping import until
from support import run_program

Series = tuple[str, str, str]
"""Metric, function, error."""

OF_DELIVERY = "ray.tracing."
"""Begins the names of the metrics of the delivery itself, which have tests of their own."""

POINT = re.compile(
    r"Data point attributes:\n(?P<attributes>(?:     -> .*\n)*)StartTimestamp: \d+\nTimestamp: \d+\n"
    r"(?:Count: (?P<count>\d+)\nSum: (?P<sum>\S+)|Value: (?P<value>\d+))"
)


def of_spans(spans: list[Span]) -> dict[Series, tuple[int, float]]:
    """Number and sum in seconds of what is to be measured, counted from the spans as the README says."""
    starts = {span.span_id: span.start_time_unix_nano for span in spans}
    values: dict[Series, list[float]] = defaultdict(list)
    for span in spans:
        found = {pair.key: pair.value for pair in span.attributes}
        if "ray.function" not in found:
            continue
        function = found["ray.function"].string_value
        error = found["error.type"].string_value if "error.type" in found else ""
        took = span.end_time_unix_nano - span.start_time_unix_nano
        if span.kind == Span.SPAN_KIND_PRODUCER:
            values["ray.submission.duration", function, error].append(took)
            continue
        values["ray.execution.duration", function, error].append(took)
        if "ray.attempt" in found:
            values["ray.execution.retries", function, ""].append(0)
            continue
        told = found.get("ray.submit_time_unix_nano")
        submitted = told.int_value if told is not None else starts[span.parent_span_id]
        values["ray.execution.queue_time", function, ""].append(max(0, span.start_time_unix_nano - submitted))
    return {series: (len(each), sum(each) / 1e9) for series, each in values.items()}


def of_files(folder: Path) -> dict[Series, tuple[int, float]]:
    """The last point of each series in the files of metrics."""
    found: dict[Series, tuple[int, float]] = {}
    for path in sorted((folder / "metrics").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            for metric in json_format.Parse(line, MetricsData()).resource_metrics[0].scope_metrics[0].metrics:
                if metric.name.startswith(OF_DELIVERY):
                    continue
                data: Any = getattr(metric, str(metric.WhichOneof("data")))
                for point in data.data_points:
                    attributes = {pair.key: pair.value.string_value for pair in point.attributes}
                    series = (metric.name, attributes["ray.function"], attributes.get("error.type", ""))
                    is_counter = metric.WhichOneof("data") == "sum"
                    found[series] = (point.as_int, 0.0) if is_counter else (point.count, point.sum)
    return found


def of_rotel(printed: str) -> dict[Series, tuple[int, float]]:
    """The last point of each series of calls that it has printed."""
    found: dict[Series, tuple[int, float]] = {}
    for metric in re.split(r"^Metric #\d+\n", printed, flags=re.MULTILINE)[1:]:
        name = re.findall(r"-> Name: (\S+)", metric)[0]
        if name.startswith(OF_DELIVERY):
            continue
        for point in POINT.finditer(metric):
            attributes = dict(re.findall(r"-> ([\w.]+): Str\((.*)\)", point["attributes"]))
            series = (name, attributes["ray.function"], attributes.get("error.type", ""))
            found[series] = (int(point["count"] or point["value"]), float(point["sum"] or 0))
    return found


def test_rotel_receives_the_numbers_that_the_spans_say(rotel: Rotel, tmp_path: Path) -> None:
    """Of tasks, actors, retries, failures, a worker that died, and calls made by the driver and by tasks. By gRPC; unit
    tests have metrics by HTTP.
    """
    variables: dict[str, Any] = {
        "RTH_HOOK": "ray_tracing_hooks:setup",
        "RTH_FOLDER": str(tmp_path),
        "RAY_TRACING_EXPORTERS": "local,otlp",
        "RAY_TRACING_METRICS": "1",
        "RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans"),
        "RAY_TRACING_FLUSH_TIMEOUT": "20",
        **rotel.variables("grpc"),
    }
    run = run_program("metered", **variables)
    assert run.result == [*(number**2 for number in range(20)), 5, "at last", "failed", "failed", *[0.02] * 5, 1]
    spans = [span for _, _, span in spans_of(local_files(tmp_path / "spans"))]
    expected = of_spans(spans)
    numbers = {series: number for series, (number, _) in expected.items()}
    function = "__main__."
    assert numbers["ray.execution.duration", f"{function}square", ""] == 23
    assert numbers["ray.execution.queue_time", f"{function}square", ""] == 23
    assert numbers["ray.execution.duration", f"{function}flaky", "FileNotFoundError"] == 1
    assert numbers["ray.execution.retries", f"{function}flaky", ""] == 1
    assert numbers["ray.execution.duration", f"{function}dying", "worker_died"] == 1
    assert numbers["ray.execution.duration", "Worker.work", ""] == 5
    assert expected["ray.execution.duration", "Worker.work", ""][1] >= 5 * 0.02
    until(lambda: of_rotel(rotel.printed()).keys() >= numbers.keys(), "all are printed")
    for received in (of_files(tmp_path / "spans"), of_rotel(rotel.printed())):
        assert {series: number for series, (number, _) in received.items()} == numbers
        for series, (_, total) in received.items():
            assert total == pytest.approx(expected[series][1]), series
