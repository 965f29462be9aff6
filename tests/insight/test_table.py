"""Spans as columns: what a table holds, whatever the files look like that it is read from."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from made_spans import TRACE_ID, line, span
from test_read import RESOURCE, SCOPE, encoded

from ray_tracing_hooks._insight.ingest import load as parts
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.span import PRODUCER
from ray_tracing_hooks._insight.model.table import RUNNING, Table
from ray_tracing_hooks._insight.views.exports.otlp import _attributes
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

OTHER_TRACE = "1af7651916cd43dd8448eb211c80319c"


def described(
    number: int, parent: int = 0, start: int = 10, end: int = 20, trace: str = TRACE_ID, **attributes: Any
) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}",
        "name": f"span {number}",
        "kind": 1,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": _attributes({key.replace("__", "."): value for key, value in attributes.items()}),
    }


def table(path: Path) -> Table:
    return load(span_files([str(path)]))


def names(found: Table) -> list[str]:
    return [found.name_of(row) for row in range(len(found))]


def assert_columns_are_of_the_spans(found: Table) -> None:
    """The columns say of each span what it says when it is read again from its file."""
    assert list(found.start) == sorted(found.start)
    for row in range(len(found)):
        span = found.span(row)
        assert (span.trace_id, span.span_id) == (found.trace_id_of(row), found.span_id_of(row))
        assert (span.start_ns, span.end_ns) == (found.start[row], found.end[row])
        assert (found.name_of(row), found.kind[row], found.status[row]) == (span.name, span.kind, span.status_code)
        assert found.failed(row) == span.failed
        assert {key: found.attribute(row, key) for key in span.attributes} == span.attributes
        assert found.resources[found.resource[row]] == span.resource


def test_rows_are_spans_by_start(tmp_path: Path) -> None:
    """Columns and the spans made of them say the same, in the order of time."""
    (tmp_path / "a.jsonl").write_text(
        line(
            described(3, 1, 30, 40, ray__task_id="ab", ray__parent_task_id="cd", ray__arg_object_ids=["x", "y"]),
            described(1, 0, 10, 90, step=7, ray__node_id="n", ray__submit_time_unix_nano=8),
        )
        + line(described(2, 1, 20, 25, ray__ready_object_ids=["z"]), resource={"process.pid": 2})
    )
    found = table(tmp_path)
    assert names(found) == ["span 1", "span 2", "span 3"]
    assert list(found.parent) == [-1, 0, 0]
    assert list(found.children(0)) == [1, 2]
    assert list(found.children(2)) == []
    assert found.roots() == [0]
    assert (list(found.start), list(found.end)) == ([10, 20, 30], [90, 25, 40])
    assert [found.attribute(0, key) for key in ("step", "ray.node_id", "no.such")] == [7, "n", None]
    assert [found.attribute(row, "ray.task_id") for row in range(3)] == [None, None, "ab"]
    assert found.objects == {2: ("x", "y")}
    assert found.ready == {1: ("z",)}
    assert_columns_are_of_the_spans(found)


@pytest.mark.parametrize(("part", "processes"), [(100, 1), (1000, 1), (1 << 30, 1), (1000, 2)])
def test_files_may_be_read_in_parts_and_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, processes: int
) -> None:
    """However files are split, each line is read once, and problems are reported with its number in the file."""
    monkeypatch.setattr(parts, "_PART", part)
    chosen = random.Random(7)
    lines = [
        line(
            described(number, chosen.randrange(1, number + 1), chosen.randrange(1, 100), 200),
            resource={"process.pid": number % 3},
        )
        for number in range(1, 60)
    ]
    lines.insert(41, "no json\n")
    (tmp_path / "a.jsonl").write_text("".join(lines[:50]))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write("".join(lines[50:]))
    monkeypatch.setattr(parts, "_WORTH_A_PROCESS", 1 if processes > 1 else 1 << 40)
    found = table(tmp_path)
    assert_columns_are_of_the_spans(found)
    assert len(found) == 59
    assert [(os.path.basename(problem.file), problem.line) for problem in found.quality.problems] == [("a.jsonl", 42)]


def test_a_lack_of_memory_ends_the_reading_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised, and nobody waits for the answer that never comes."""

    def fails(*_: object) -> None:
        raise MemoryError

    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(line(described(1, 0, 1, 2)))
    monkeypatch.setattr(parts, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(parts, "_asked", fails)
    with pytest.raises(MemoryError):
        table(tmp_path)


def test_what_was_read_is_told(tmp_path: Path) -> None:
    """Progress goes up to the size of all files."""
    text = line(described(1))
    (tmp_path / "a.jsonl").write_text(text)
    (tmp_path / "b.jsonl").write_text(line(described(2)))
    told: list[int] = []
    load(span_files([str(tmp_path)]), told.append)
    assert sum(told) == sum(os.path.getsize(path) for path in tmp_path.iterdir())


def test_two_traces_may_have_a_span_id_in_common(tmp_path: Path) -> None:
    """Ids of spans are unique in their trace, and a parent is one of the same trace."""
    (tmp_path / "a.jsonl").write_text(
        line(described(1, 0, 10), described(2, 1, 11), described(1, 0, 12, trace=OTHER_TRACE))
        + line(described(3, 1, 13, trace=OTHER_TRACE), described(4, 2, 14, trace=OTHER_TRACE))
    )
    found = table(tmp_path)
    assert list(found.parent) == [-1, 0, -1, 2, -1]
    assert found.quality.orphans == 1


@pytest.mark.parametrize("start", [0, 1])
def test_circles_of_parents_are_cut_and_counted(tmp_path: Path, start: int) -> None:
    """The first span of a circle counts as one without parent; what hangs on the circle stays."""
    circle = [described(number, number % 3 + 1, 10 + number * start) for number in (1, 2, 3)]
    (tmp_path / "a.jsonl").write_text(line(*circle, described(4, 4), described(5, 2, 50)))
    found = table(tmp_path)
    assert found.quality.circles == 2
    row_of = {found.name_of(row): row for row in range(5)}
    reached = set()
    pending = found.roots()
    while pending:
        row = pending.pop()
        assert row not in reached
        reached.add(row)
        pending.extend(found.children(row))
    assert reached == set(row_of.values())


def test_a_chain_of_twenty_thousand_is_read(tmp_path: Path) -> None:
    """Depth costs nothing, also where each span begins before its parent."""
    count = 20_000
    spans = [described(number, number + 1, count - number + 1, count * 2) for number in range(1, count + 1)]
    (tmp_path / "a.jsonl").write_text("".join(line(*spans[first : first + 1000]) for first in range(0, count, 1000)))
    found = table(tmp_path)
    depth = 0
    row = 0
    while children := found.children(row):
        (row,) = children
        depth += 1
    assert depth == count - 1
    assert found.quality.orphans == 1


def test_a_span_that_ended_before_it_began_took_no_time(tmp_path: Path) -> None:
    """It is counted, and ends when it began."""
    (tmp_path / "a.jsonl").write_text(line(described(1, start=10, end=5)))
    found = table(tmp_path)
    assert (found.end[0], found.span(0).end_ns, found.quality.negative) == (10, 10, 1)


def test_ends_that_are_not_known(tmp_path: Path) -> None:
    """A lost span ends with the last record of its process, a running one now."""
    (tmp_path / "a.jsonl").write_text(line(described(1, end=0), described(2, end=70), described(3, start=80, end=0)))
    found = table(tmp_path)
    assert [found.end_or_now(row) for row in range(3)] == [80, 70, 80]
    span = found.span(0)
    span.state = "running"
    found = Table.of([span, found.span(1)], now_ns=500)
    assert [found.end_or_now(row) for row in range(2)] == [500, 70]
    assert [found.duration(row) for row in range(2)] == [490, 60]
    assert found.state[0] == RUNNING


def test_attributes_outlive_their_file(tmp_path: Path) -> None:
    """Where a file is gone or another one has its name, a span has what the columns hold."""
    (tmp_path / "a.jsonl").write_text(line(described(1, ray__node_id="n", ray__task_id="t", step=7)))
    found = table(tmp_path)
    (tmp_path / "a.jsonl").write_text(line(described(9, ray__node_id="m")))
    assert found.span(0).attributes == {"ray.node_id": "n", "ray.task_id": "t"}
    assert found.span(0).name == "span 1"
    submitted = described(2, ray__node_id="n", ray__submit_time_unix_nano=5) | {"kind": PRODUCER}
    (tmp_path / "a.jsonl").write_text(line(submitted))
    found = table(tmp_path)
    (tmp_path / "a.jsonl").unlink()
    assert found.span(0).attributes == {"ray.node_id": "n"}


def test_a_table_of_spans_has_them(tmp_path: Path) -> None:
    """Spans that a test makes are kept whole."""
    spans = [
        span(1, 6, 7, attributes={"ray.task_id": "ab", "own": 1}),
        span(2, 5, 6),
        span(3, 5, 6, 2),
    ]
    found = Table.of(spans)
    assert [found.span(row) for row in range(3)] == [spans[1], spans[2], spans[0]]
    assert list(found.parent) == [-1, 0, -1]
    assert found.attribute(2, "ray.task_id") == "ab"
    assert len(Table.of([])) == 0


def test_a_spool_is_read_and_its_spans_are_read_again_when_asked_for(tmp_path: Path) -> None:
    """Running, lost and ended spans, as reading span by span has them; a segment that is gone costs attributes only."""
    writer = SpoolWriter(str(tmp_path))
    prefix = U16.pack(writer.scope(RESOURCE, SCOPE))
    for number in (1, 2, 3):
        writer.start(prefix, encoded(number))
    writer.span(prefix, encoded(1, end=9))
    try:
        found = table(tmp_path)
        assert [found.span(row).state for row in range(3)] == ["ended", "running", "running"]
        assert [found.attribute(row, "step") for row in range(3)] == [1, 2, 3]
    finally:
        writer.close()
    assert_columns_are_of_the_spans(table(tmp_path))
    (segment,) = tmp_path.iterdir()
    segment.unlink()
    later = table(tmp_path)
    assert len(later) == 0
    assert (found.span(0).end_ns, found.span(0).name) == (9, "span 1")


@pytest.mark.parametrize("processes", [1, 2])
def test_segments_may_be_read_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Open, dropped and damaged records are reported as when reading the segments one after the other."""
    monkeypatch.setattr(parts, "_WORTH_A_PROCESS", 1 if processes > 1 else 1 << 40)
    writers = [SpoolWriter(str(tmp_path)) for _ in range(4)]
    for number, writer in enumerate(writers, 1):
        prefix = U16.pack(writer.scope(RESOURCE, SCOPE))
        writer.start(prefix, encoded(number))
        if number % 2:
            writer.span(prefix, encoded(number, end=9))
    writers[3].close()
    with open(min(tmp_path.glob("*.spool")), "ab") as segment:
        segment.write(b"no record" * 9)
    try:
        found = table(tmp_path)
        assert_columns_are_of_the_spans(found)
        assert [found.span(row).state for row in range(4)] == ["ended", "running", "ended", "lost"]
    finally:
        for writer in writers[:3]:
            writer.close()


def test_hostile_values_are_values(tmp_path: Path) -> None:
    """Attributes of unexpected types and long texts are kept, and lone surrogates replaced; nothing raises."""
    text = '"\\ud800</script>' + "x" * (1 << 20) + '"'
    span = described(1)
    span["attributes"] = [
        {"key": "ray.node_id", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"intValue": "1"}}]}}},
        {"key": "ray.arg_object_ids", "value": {"intValue": "5"}},
        {"key": "ray.actor_class", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}},
        {"key": "ray.task_id", "value": {"stringValue": "é"}},
    ]
    (tmp_path / "a.jsonl").write_text(line(span).replace('"span 1"', text))
    found = table(tmp_path)
    assert found.name_of(0) == json.loads(text).replace("\ud800", "?")
    assert found.attribute(0, "ray.node_id") == "{'k': 1}"
    assert found.attribute(0, "ray.task_id") == "é"
    assert found.objects == {}
