"""Lines of OTLP-JSON: any text, and what other encoders of protobuf write."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData

from ray_tracing_hooks._insight.ingest.load import load


@given(st.text(), st.text())
def test_names_and_attributes_are_what_they_are(name: str, value: str) -> None:
    """Texts that look like JSON, and all others, come out as they went in."""
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "0af7651916cd43dd",
        "flags": 256,
        "startTimeUnixNano": "1795309993312410230",
        "endTimeUnixNano": "1795309993312410231",
        "name": name,
        "kind": 5,
        "attributes": [
            {"key": "ray.remote", "value": {"stringValue": value}},
            {"key": "ray.task_id", "value": {"stringValue": "ab" * 24}},
            {"key": "ray.name", "value": {"stringValue": name}},
        ],
    }
    document = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": value}, "spans": [span, span]}]}]}
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
        file.flush()
        table = load([file.name])
    assert (len(table), table.quality.duplicates) == (1, 1)
    assert table.name_of(0) == name
    assert table.attribute(0, "ray.remote") == value
    assert table.attribute(0, "ray.task_id") == "ab" * 24
    assert table.attribute(0, "ray.name") == (name or None)
    assert table.scopes == [value]


MESSAGE = TracesData()
_SPAN = (
    MESSAGE.resource_spans.add()
    .scope_spans.add()
    .spans.add(
        trace_id=bytes(range(16)),
        span_id=bytes(range(1, 9)),
        name="n",
        kind=2,
        start_time_unix_nano=5,
        end_time_unix_nano=9,
    )
)
_SPAN.status.code = Status.STATUS_CODE_ERROR


def with_hex_ids(document: Any) -> Any:
    """Protobuf's own JSON with the ids as OTLP has them."""
    (span,) = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for key in ("traceId", "spanId"):
        span[key] = base64.b64decode(span[key]).hex()
    return document


def read(line: Any, path: Path) -> tuple[list[tuple[int, int, bool]], list[str]]:
    """Kind, status and failure of the spans of a line, and what is wrong with it."""
    path.write_text(json.dumps(line) + "\n")
    table = load([str(path)])
    found = [(table.kind[row], table.status[row], table.failed(row)) for row in range(len(table))]
    spans = [table.span(row) for row in range(len(table))]
    assert [(span.kind, span.status_code, span.failed) for span in spans] == found
    return found, [problem.reason for problem in table.quality.problems]


def test_names_of_kinds_and_codes_are_read_as_their_numbers(tmp_path: Path) -> None:
    """OTLP demands numbers; protobuf's own JSON has names unless it is told otherwise."""
    numbers = with_hex_ids(MessageToDict(MESSAGE, use_integers_for_enums=True))
    written = with_hex_ids(MessageToDict(MESSAGE))
    for document in (numbers, written):
        assert read(document, tmp_path / "a.jsonl") == ([(2, 2, True)], [])
    (span,) = written["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (span["kind"], span["status"]["code"]) == ("SPAN_KIND_SERVER", "STATUS_CODE_ERROR")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (
            MessageToDict(MESSAGE),
            "the id 'AAECAwQFBgcICQoLDA0ODw==' is not 16 bytes in hex",
        ),
        (
            MessageToDict(MESSAGE, preserving_proto_field_name=True),
            "not OTLP traces: expected an object with resourceSpans",
        ),
        (
            json.loads(json.dumps(with_hex_ids(MessageToDict(MESSAGE))).replace("SPAN_KIND_SERVER", "SERVER")),
            "its kind is 'SERVER': expected a number, or a name such as SPAN_KIND_CONSUMER",
        ),
        (
            json.loads(json.dumps(with_hex_ids(MessageToDict(MESSAGE))).replace("STATUS_CODE_ERROR", "failed")),
            "its status code is 'failed': expected a number, or a name such as STATUS_CODE_ERROR",
        ),
    ],
)
def test_other_forms_of_protobuf_are_bad_lines(written: Any, reason: str, tmp_path: Path) -> None:
    """They are not read in part: it is said what is there and what is expected."""
    found, problems = read(written, tmp_path / "a.jsonl")
    assert found == []
    assert [problem.removeprefix("a span that is not OTLP: ") for problem in problems] == [reason]
