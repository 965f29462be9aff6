"""The layout of progress files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import made_plan

from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.stage import SinkStage, StageContext
from ray_tracing_hooks._spool.progress import (
    Progress,
    StoredSpan,
    decode,
    encode,
    encode_open_spans,
    file_name,
    is_progress_file,
    open_spans,
)

SPANS = [
    StoredSpan(b"resource", b"scope", b"span 1", b""),
    StoredSpan(b"resource", b"scope", b"span 2", b"12345678"),
    StoredSpan(b"resource", b"another scope", b"span 3", b""),
]


def test_progress_reads_as_it_was_written() -> None:
    """Also with the blanks behind it that keep its room on a full disk. Spans of one scope are stored together."""
    openings = encode_open_spans(SPANS)
    assert [len(group[2]) for group in openings] == [2, 1]
    process = {"sequence": 3, "offset": 70, "openings": openings, "in_order": True}
    progress = Progress({"1-2-3": process, "4-5-6": process | {"openings": []}}, {"file": "spans-0001.jsonl"})
    found = decode(encode(progress) + b" " * 100)
    assert found.state == progress.state
    assert found.processes["4-5-6"] == progress.processes["4-5-6"]
    assert list(open_spans(found.processes["1-2-3"])) == SPANS
    # And a later shipper may store it again as it is, before it has read anything.
    assert decode(encode(found)) == found


@pytest.mark.parametrize("text", ["", "{", "7", "[]", "{}", '{"version": 2, "processes": {}, "sink": {}}'])
def test_what_is_no_progress_or_of_a_later_version_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        decode(text)


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        ({"offset": 7}, 0),
        ({"sequence": None, "offset": 7, "openings": [], "in_order": False}, 0),
        ([], 0),
        ({"sequence": "3", "offset": "7", "openings": [], "in_order": False}, 7),
    ],
)
def test_progress_that_makes_no_sense_counts_as_none(tmp_path: Path, entry: Any, read: int) -> None:
    """The file parses, so only its entries show that. A number in quotes is understood."""
    plan = made_plan(("local",), str(tmp_path / "spans"), 1 << 20, 1 << 30, 1 << 20)
    stored = encode(Progress({"1-2-3": entry}, {}))
    (tmp_path / file_name("local")).write_bytes(stored)
    stage = SinkStage("local", StageContext(str(tmp_path), plan, {}, Problems(), lambda: None), reports=True)
    assert stage.read_of("1-2-3", 3) == read


def test_names_of_progress_files_are_known() -> None:
    assert file_name("otlp") == "progress-otlp.json"
    assert file_name("a/b") == "progress-a_b.json"
    assert is_progress_file(file_name("otlp"))
    assert not is_progress_file("plan.json")
