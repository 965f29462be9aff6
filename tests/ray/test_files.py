"""The local files are OTLP-JSON as others read it, and the examples run as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cluster
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from protobuf_json import with_protobuf_ids
from support import EXAMPLES as EXAMPLES_FOLDER
from support import logs_in_json, run_example, with_data, with_extras

pytestmark = pytest.mark.xdist_group("runs")  # files that look at the same runs of programs

EXAMPLES = sorted(EXAMPLES_FOLDER.glob("*.py"))
OTHERS = {EXAMPLES_FOLDER / name for name in ("training.py", "slow_job.py")}
"""The tests of training run the one, and those of snippets the other, which has no hook of its own."""


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


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each not in OTHERS], ids=lambda path: str(path.stem))
def test_an_example_runs_as_it_stands_and_its_trace_can_be_shown(example: Path, tmp_path: Path) -> None:
    if 'encoding="JSON"' in example.read_text() and not logs_in_json():
        pytest.skip("this Ray does not write its logs as JSON")
    text = example.read_text()
    extras = with_extras() if "from ray import serve" in text else with_data() if "from ray import data" in text else {}
    printed, _ = run_example(example, tmp_path, **extras)
    if example.stem == "logs_to_trace":
        there, back = printed.split("and back, the lines of span ")
        assert "✗ ValueError: card refused" in there
        assert [line.split()[-1] for line in back.splitlines()[1:]] == ["3", "refused"]
    if example.stem == "skywalking_serve":
        assert printed.splitlines()[:2] == [
            "the client sends sw8",
            """{'downstream says': "I'M DOWNSTREAM", 'joined by': 'sw8'}""",
        ]
