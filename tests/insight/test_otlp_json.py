"""The quick decoder of lines gives what Python's own gives, whatever the line is."""

from __future__ import annotations

import base64
import glob
import gzip
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.ingest import otlp_json
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.quality import Quality

RECORDED = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "recorded", "*.jsonl.gz")))


def refuse(_line: bytes) -> None:
    raise ValueError("left to Python's own reader")


def spans(path: str, monkeypatch: pytest.MonkeyPatch, *, quick: bool) -> tuple[list[Any], Quality]:
    if not quick:
        monkeypatch.setattr(otlp_json, "_decode_line", refuse)
    table = load([path])
    monkeypatch.undo()
    keys = (
        "ray.task_id",
        "ray.parent_task_id",
        "ray.object_ids",
        "ray.ready_object_ids",
        "ray.actor_id",
        "ray.function",
        "ray.name",
    )
    found = [
        (table.span(row), [table.attribute(row, key) for key in keys], table.failed(row)) for row in range(len(table))
    ]
    return sorted(found, key=lambda each: each[0].span_id), table.quality


@pytest.mark.parametrize("path", RECORDED, ids=os.path.basename)
def test_both_ways_read_recorded_runs_alike(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans, quick attributes, outcomes and what is wrong: all the same."""
    assert spans(path, monkeypatch, quick=True) == spans(path, monkeypatch, quick=False)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_lines_are_read_alike(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed, missing or doubled bytes: invalid JSON is refused, and valid JSON is read without differences."""
    chosen = random.Random(seed)
    with gzip.open(next(path for path in RECORDED if "bottleneck.jsonl" in path)) as file:
        lines = file.readlines()
    for place in range(len(lines)):
        line = bytearray(lines[place])
        at = chosen.randrange(len(line) - 1)
        how = chosen.randrange(4)
        if how == 0:
            line[at] = chosen.choice(b'0"{}[],\\x9a \x00')
        elif how == 1:
            del line[at : at + chosen.randrange(1, 200)]
        elif how == 2:
            line[at:at] = line[at : at + chosen.randrange(1, 200)]
        lines[place] = bytes(line).replace(b"\n", b"") + b"\n"
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines))
    assert spans(str(path), monkeypatch, quick=True) == spans(str(path), monkeypatch, quick=False)


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


def test_a_line_with_names_of_kinds_is_exported(tmp_path: Path) -> None:
    """With its kind and its outcome."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(with_hex_ids(MessageToDict(MESSAGE))) + "\n")
    for name, kind in (("otlp", b'"SPAN_KIND_SERVER"'), ("perfetto", b"server")):
        written = CliRunner().invoke(main, ["export", str(path), "--format", name, "-o", "-"])
        assert (written.exit_code, kind in written.stdout_bytes, "skipped" in written.stderr) == (0, True, False)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (
            MessageToDict(MESSAGE),
            "the id 'AAECAwQFBgcICQoLDA0ODw==' is not 16 bytes in hex",
        ),
        (
            MessageToDict(MESSAGE, preserving_proto_field_name=True),
            "not OTLP traces: expected an object with resourceSpans, found resource_spans",
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


@pytest.mark.parametrize("name", ["otlp", "perfetto"])
def test_no_export_leaves_out_a_line_in_silence(name: str, tmp_path: Path) -> None:
    """Whether it decodes the lines or copies them."""
    other = MessageToDict(MESSAGE, preserving_proto_field_name=True)
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(with_hex_ids(MessageToDict(MESSAGE)))}\n{json.dumps(other)}\n")
    written = CliRunner().invoke(main, ["export", str(path), "--format", name, "-o", "-"])
    assert written.exit_code == 0
    assert f"1 bad line skipped (the first: {path}:2: not OTLP" in written.stderr
    assert "expected an object with resourceSpans, found resource_spans" in written.stderr
