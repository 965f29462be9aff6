"""The local files are OTLP-JSON as others read it."""

from __future__ import annotations

import json

import pytest
from conftest import Cluster
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from protobuf_json import with_protobuf_ids

pytestmark = pytest.mark.xdist_group("runs")  # files that look at the same runs of programs


def test_each_line_is_a_traces_data_for_an_independent_parser(cluster: Cluster) -> None:
    """Every line of the files of a real run is read by protobuf's JSON parser, and no field is unknown to it."""
    run = cluster.once("actors")
    seen = set()
    for path in cluster.spans.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            assert len(line) < 1 << 20, "the Collector's receiver cuts off longer lines"
            data = json_format.ParseDict(with_protobuf_ids(json.loads(line)), TracesData(), ignore_unknown_fields=False)
            (resource_spans,) = data.resource_spans
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    assert (len(span.trace_id), len(span.span_id)) == (16, 8)
                    assert span.start_time_unix_nano <= span.end_time_unix_nano
                    seen.add(span.span_id.hex())
    assert {span.span_id for span in run.spans} <= seen


def test_files_are_for_their_owner_alone(cluster: Cluster) -> None:
    cluster.once("actors")
    # Among them is a folder of log records where another test has written some.
    assert {(path.is_dir(), path.stat().st_mode & 0o777) for path in [cluster.spans, *cluster.spans.rglob("*")]} == {
        (True, 0o700),
        (False, 0o600),
    }
