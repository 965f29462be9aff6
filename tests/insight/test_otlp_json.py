"""The quick decoder of lines gives what Python's own gives, whatever the line is."""

from __future__ import annotations

import glob
import gzip
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
