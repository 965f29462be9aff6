"""Reading spans: every form that they are stored in, also damaged, cut, repeated and still being written."""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from made_spans import line
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData

from ray_tracing_hooks._insight.ingest import lines as line_reading
from ray_tracing_hooks._insight.ingest import load as reading
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import Link, Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.outline import Trace, traces
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def span_id(number: int) -> str:
    return f"{number:016x}"


def described(number: int, **fields: Any) -> dict[str, Any]:
    """A span in OTLP-JSON with the id ``number``; it takes from 1 to 2 seconds after the epoch."""
    return {
        "traceId": TRACE_ID,
        "spanId": span_id(number),
        "name": f"span {number}",
        "startTimeUnixNano": "1000000000",
        "endTimeUnixNano": "2000000000",
        **fields,
    }


def read(*paths: Path) -> tuple[list[Span], Quality]:
    spans, quality = reading.read(span_files(map(str, paths)))
    return sorted(spans, key=lambda span: span.span_id), quality


def test_everything_that_a_span_has_is_read(tmp_path: Path) -> None:
    """A span keeps its ids, times, kind, status, attributes of every type, events, links, resource and scope."""
    span = described(
        1,
        parentSpanId=span_id(7),
        kind=4,
        status={"code": 2, "message": "bad"},
        attributes=[
            {"key": "text", "value": {"stringValue": "x"}},
            {"key": "yes", "value": {"boolValue": True}},
            {"key": "large", "value": {"intValue": "9223372036854775807"}},
            {"key": "half", "value": {"doubleValue": 0.5}},
            {"key": "nan", "value": {"doubleValue": "NaN"}},
            {"key": "bare", "value": {"doubleValue": math.inf}},
            {"key": "list", "value": {"arrayValue": {"values": [{"intValue": 1}, {}]}}},
            {"key": "map", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}}},
            {"key": "bytes", "value": {"bytesValue": "AP8="}},
            {"key": "none"},
        ],
        events=[{"name": "e", "timeUnixNano": "5", "attributes": [{"key": "k", "value": {"intValue": "6"}}]}],
        links=[{"traceId": TRACE_ID.upper(), "spanId": span_id(9)}],
    )
    (tmp_path / "a.jsonl").write_text(line(span, resource={"host.name": "h"}))
    (found,), quality = read(tmp_path)
    assert (found.trace_id, found.span_id, found.parent_id) == (TRACE_ID, span_id(1), span_id(7))
    assert (found.name, found.kind, found.start_ns, found.end_ns) == ("span 1", 4, 10**9, 2 * 10**9)
    assert (found.status_code, found.status_message, found.state) == (2, "bad", "ended")
    assert math.isnan(found.attributes.pop("nan"))
    assert found.attributes == {
        "text": "x",
        "yes": True,
        "large": 2**63 - 1,
        "half": 0.5,
        "bare": math.inf,
        "list": [1, None],
        "map": {"k": "v"},
        "bytes": "AP8=",
        "none": None,
    }
    assert found.events == [("e", 5, {"k": 6})]
    assert found.links == [Link(TRACE_ID, span_id(9), {})]
    assert (found.resource, found.scope) == ({"host.name": "h"}, "tests")
    assert (quality.files, quality.lines, quality.spans, quality.bad_lines) == (1, 1, 1, 0)


def test_times_may_be_numbers(tmp_path: Path) -> None:
    """Some writers put 64-bit integers as numbers."""
    (tmp_path / "a.jsonl").write_text(line(described(1, startTimeUnixNano=5, endTimeUnixNano=7)))
    (found,), _ = read(tmp_path)
    assert (found.start_ns, found.end_ns) == (5, 7)


def test_plain_and_compressed_files_are_found_in_a_folder_and_by_name(tmp_path: Path) -> None:
    """A folder stands for its span files and nothing else in it; spans of one resource share it."""
    (tmp_path / "a.jsonl").write_text(
        line(described(1), resource={"host": "h"}) + "\n" + line(described(2), resource={"host": "h"})
    )
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(line(described(3), resource={"host": "h"}))
    (tmp_path / "notes.txt").write_text("not spans")
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    spans, quality = read(tmp_path)
    assert [span.name for span in spans] == ["span 1", "span 2", "span 3"]
    assert len({id(span.resource) for span in spans}) == 1
    assert (quality.files, quality.lines, quality.bad_lines) == (2, 3, 0)
    assert [span.name for span in read(tmp_path / "b.jsonl.gz")[0]] == ["span 3"]


def test_the_cut_end_of_a_file_that_is_being_written_is_no_error(tmp_path: Path) -> None:
    """What a live writer has not finished is left for the next time."""
    text = line(described(1)) + line(described(2))
    (tmp_path / "a.jsonl").write_text(text[:-20])
    spans, quality = read(tmp_path)
    assert "span 1" in {span.name for span in spans}
    assert "span 2" not in {span.name for span in spans}
    assert quality.problems == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"resourceSpans": [}', "not JSON"),
        ("\x00\x01", "not JSON"),
        ('{"cut', "not JSON: Invalid control character at character 6"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not OTLP traces: Expected `object`, got `array`"),
        ('{"spans": []}', "not OTLP traces: expected an object with resourceSpans"),
        ("7", "not OTLP traces"),
        ('{"resourceSpans": 7}', "not OTLP traces"),
        (line({"traceId": TRACE_ID}).rstrip(), "a span that is not OTLP: 'spanId' is missing"),
        (line(described(5, traceId="abc0")).rstrip(), "the id 'abc0' is not 16 bytes in hex"),
        (line(described(5, spanId="0" * 16)).rstrip(), "its ids are zero"),
        (line(described(5, startTimeUnixNano="soon")).rstrip(), "a span that is not OTLP"),
        (line(described(5, startTimeUnixNano=str(1 << 63), endTimeUnixNano=str(1 << 63))).rstrip(), "an invalid time"),
        (line(described(5, attributes=[{"key": 5}])).rstrip(), "a span that is not OTLP"),
    ],
)
def test_a_bad_line_is_told_and_skipped(tmp_path: Path, bad: str, reason: str) -> None:
    """Lines that are not OTLP are counted with file, line and reason; the other lines are read."""
    (tmp_path / "a.jsonl").write_text(line(described(1)) + bad + "\n" + line(described(2)))
    spans, quality = read(tmp_path)
    assert [span.name for span in spans] == ["span 1", "span 2"]
    assert (quality.bad_lines, quality.bad_spans) == ((0, 1) if bad.startswith('{"resourceSpans": [{') else (1, 0))
    (problem,) = quality.problems
    assert str(problem).startswith(f"{tmp_path / 'a.jsonl'}:2: ")
    assert reason in problem.reason


def test_a_bad_span_costs_itself_and_not_its_line(tmp_path: Path) -> None:
    """The other spans of the line are read."""
    (tmp_path / "a.jsonl").write_text(line(described(1), {"no": "span"}, described(2)))
    spans, quality = read(tmp_path)
    assert [span.name for span in spans] == ["span 1", "span 2"]
    assert (quality.bad_lines, quality.bad_spans) == (0, 1)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_an_object_over_many_lines_is_read(
    tmp_path: Path, name: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As other programs write it: alone, or one after the other, and between others; also in the parts of a table."""
    events = [{"name": "only read again", "timeUnixNano": "1000000001"}]
    one, two, four = (json.dumps(json.loads(line(described(number, events=events))), indent=2) for number in (1, 2, 4))
    text = "\n".join([one, two, line(described(3)) + "{bad", four, ""])
    packed = text.replace("\n", ending).encode()
    (tmp_path / name).write_bytes(gzip.compress(packed) if name.endswith(".gz") else packed)
    for part in (reading._PART, 400):
        monkeypatch.setattr(reading, "_PART", part)
        spans, quality = read(tmp_path)
        assert [span.name for span in spans] == ["span 1", "span 2", "span 3", "span 4"]
        assert [span.events[0].name for span in spans if span.name != "span 3"] == ["only read again"] * 3
        assert [problem.line for problem in quality.problems] == [text[: text.index("{bad")].count("\n") + 1]


def test_what_is_left_out_is_zero(tmp_path: Path) -> None:
    """As protobuf's JSON has it: a start of 0 is unknown, so it is the end. A span without both is none."""
    empty = {"traceId": TRACE_ID, "attributes": [{}], "events": [{}], "links": [{}]}
    (tmp_path / "a.jsonl").write_text(
        line(
            {**empty, "spanId": f"{1:016x}"},
            {**empty, "spanId": f"{2:016x}", "endTimeUnixNano": "70"},
            described(3, startTimeUnixNano="50", endTimeUnixNano="0"),
        )
    )
    spans, quality = read(tmp_path)
    times = {span.span_id[-1]: (span.start_ns, span.end_ns) for span in spans}
    assert times == {"2": (70, 70), "3": (50, 0)}
    assert (quality.bad_spans, quality.unended) == (1, 1)
    assert (spans[0].attributes, spans[0].events[0], spans[0].links[0][:2]) == ({"": None}, ("", 0, {}), ("", ""))


def test_an_endless_line_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line over the limit is never held in memory; what follows it is read."""
    monkeypatch.setattr(line_reading, "MAX_LINE", 1024)
    (tmp_path / "a.jsonl").write_text("x" * 5000 + "\n" + line(described(1)))
    spans, quality = read(tmp_path)
    assert [span.name for span in spans] == ["span 1"]
    assert [(problem.line, problem.reason) for problem in quality.problems] == [(1, "the line is longer than 0 MiB")]


def test_other_signals_are_no_error(tmp_path: Path) -> None:
    """The Collector may write metrics and logs beside traces."""
    (tmp_path / "a.jsonl").write_text('{"resourceMetrics": []}\n{"resourceLogs": []}\n' + line(described(1)))
    spans, quality = read(tmp_path)
    assert (len(spans), quality.bad_lines) == (1, 0)


def test_a_file_that_is_not_what_its_name_says_is_told(tmp_path: Path) -> None:
    """One bad file does not hide the others."""
    (tmp_path / "a.jsonl.gz").write_text("not compressed")
    (tmp_path / "b.jsonl").write_text(line(described(1)))
    spans, quality = read(tmp_path)
    assert (len(spans), quality.bad_lines, quality.incomplete_files) == (1, 0, 1)
    assert (quality.problems[0].file, quality.problems[0].line) == (str(tmp_path / "a.jsonl.gz"), 0)


def test_a_span_found_twice_is_taken_once(tmp_path: Path) -> None:
    """Delivery may repeat. An end beats none, a recorded end an estimated one, and of two the later."""
    estimated = [{"key": "ray.end_estimated", "value": {"boolValue": True}}]
    (tmp_path / "a.jsonl").write_text(
        line(
            described(1),
            described(2, endTimeUnixNano="0"),
            described(3, endTimeUnixNano="9000000000", attributes=estimated),
        )
        + line(described(1, endTimeUnixNano="3000000000"), described(2), described(3, endTimeUnixNano="8000000000"))
        + line(
            described(1),
            described(2, endTimeUnixNano="0"),
            described(3, endTimeUnixNano="9000000000", attributes=estimated),
        )
    )
    spans, quality = read(tmp_path)
    assert [(span.end_ns, span.state) for span in spans] == [
        (3_000_000_000, "ended"),
        (2_000_000_000, "ended"),
        (8_000_000_000, "ended"),
    ]
    assert (quality.spans, quality.duplicates) == (3, 6)


def test_a_path_that_does_not_exist_is_an_error() -> None:
    """The caller named it, so he should know."""
    with pytest.raises(FileNotFoundError):
        span_files(["/no/such/folder"])


# --- text, and what encoders of protobuf write ----------------------------------------------------------------------


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
        table = reading.load([file.name])
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


def read_line(line: Any, path: Path) -> tuple[list[tuple[int, int, bool]], list[str]]:
    """Kind, status and failure of the spans of a line, and what is wrong with it."""
    path.write_text(json.dumps(line) + "\n")
    table = reading.load([str(path)])
    found = [(table.kind[row], table.status[row], table.failed(row)) for row in range(len(table))]
    spans = [table.span(row) for row in range(len(table))]
    assert [(span.kind, span.status_code, span.failed) for span in spans] == found
    return found, [problem.reason for problem in table.quality.problems]


def test_names_of_kinds_and_codes_are_read_as_their_numbers(tmp_path: Path) -> None:
    """OTLP demands numbers; protobuf's own JSON has names unless it is told otherwise."""
    numbers = with_hex_ids(MessageToDict(MESSAGE, use_integers_for_enums=True))
    written = with_hex_ids(MessageToDict(MESSAGE))
    for document in (numbers, written):
        assert read_line(document, tmp_path / "a.jsonl") == ([(2, 2, True)], [])
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
    found, problems = read_line(written, tmp_path / "a.jsonl")
    assert found == []
    assert [problem.removeprefix("a span that is not OTLP: ") for problem in problems] == [reason]


# --- the spool ------------------------------------------------------------------------------------------------------


RESOURCE = Resource(attributes=[KeyValue(key="host.name", value=AnyValue(string_value="h"))]).SerializeToString()
SCOPE = InstrumentationScope(name="tests").SerializeToString()


def encoded(number: int, end: int = 0) -> bytes:
    """A span whose events were dropped, with its number as an attribute."""
    message: bytes = SpanMessage(
        trace_id=bytes.fromhex(TRACE_ID),
        span_id=number.to_bytes(8, "big"),
        name=f"span {number}",
        start_time_unix_nano=5,
        end_time_unix_nano=end,
        dropped_events_count=2,
        attributes=[KeyValue(key="step", value=AnyValue(int_value=number))],
    ).SerializeToString()
    return message


def test_a_spool_shows_what_runs_and_what_was_cut_off(tmp_path: Path) -> None:
    """An opening without end is running while its process lives and lost when it is dead."""
    writer = SpoolWriter(str(tmp_path))
    prefix = U16.pack(writer.scope(RESOURCE, SCOPE))
    for number in (1, 2):
        writer.start(prefix, encoded(number))
    writer.span(prefix, encoded(1, end=9))
    try:
        spans, quality = read(tmp_path)
    finally:
        writer.close()
    assert [(span.name, span.state, span.end_ns) for span in spans] == [
        ("span 1", "ended", 9),
        ("span 2", "running", 0),
    ]
    assert (spans[0].resource, spans[0].scope) == ({"host.name": "h"}, "tests")
    assert (quality.running, quality.lost, quality.duplicates) == (1, 0, 0)
    assert quality.truncated == 1
    assert spans[1].duration_ns(now_ns=25) == 20

    spans, quality = read(tmp_path)
    assert [span.state for span in spans] == ["ended", "lost"]
    assert (quality.running, quality.lost) == (0, 1)
    assert spans[1].duration_ns(now_ns=25) is None


def test_a_damaged_spool_gives_what_is_left(tmp_path: Path) -> None:
    """A record with a wrong checksum is reported and skipped, and so is one without a valid span."""
    writer = SpoolWriter(str(tmp_path))
    prefix = U16.pack(writer.scope(RESOURCE, SCOPE))
    writer.span(prefix, encoded(1, end=9))
    writer.span(prefix, encoded(2, end=9))
    writer.span(prefix, b"\x0a")
    writer.close()
    (segment,) = tmp_path.iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"span 1", b"spam 1") + data[-7:])
    spans, quality = read(tmp_path)
    assert [span.name for span in spans] == ["span 2"]
    assert quality.bad_lines == 2
    assert {problem.file for problem in quality.problems} == {str(segment)}


# --- traces ---------------------------------------------------------------------------------------------------------


def made(number: int, parent: int = 0, start: int = 0, trace: str = TRACE_ID) -> Span:
    return Span(
        trace, span_id(number), span_id(parent) if parent else "", "f", 1, start, 9, 0, "", {}, [], [], {}, "", "ended"
    )


def names_of(trace: Trace, rows: Iterable[int]) -> list[int]:
    return [int(trace.spans[row].span_id, 16) for row in rows]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 14), st.integers(0, 3)), min_size=1, max_size=12))
def test_every_span_is_in_the_tree_once(edges: list[tuple[int, int, int]]) -> None:
    """Whatever the parents say, circles and spans that are their own parent included."""
    unique = {number: made(number, parent, start) for number, parent, start in edges}
    (trace,) = traces(Table.of(unique.values()))
    assert sorted(names_of(trace, trace.walk())) == sorted(unique)
    assert len(trace.orphans) == sum(bool(trace.spans[root].parent_id) for root in trace.roots)


def test_a_folder_of_folders_stands_for_what_they_hold(tmp_path: Path) -> None:
    """The spools of a session are one folder a node, and their parent is what a user can name."""
    (tmp_path / "node" / "deeper").mkdir(parents=True)
    (tmp_path / "node" / "a.spool").touch()
    (tmp_path / "node" / "plan.json").touch()
    (tmp_path / "node" / "deeper" / "b.spool").touch()
    assert span_files([str(tmp_path)]) == [str(tmp_path / "node" / "a.spool")]
    (tmp_path / "own.jsonl").touch()
    assert span_files([str(tmp_path)]) == [str(tmp_path / "own.jsonl")]
    for other in ("metrics", "logs", "aside"):
        (tmp_path / other).mkdir()
        (tmp_path / other / "a.jsonl").touch()
    both = [str(tmp_path / "own.jsonl"), str(tmp_path / "node" / "a.spool")]
    assert span_files([str(tmp_path)], with_subfolders=True) == both


@pytest.mark.parametrize("text", ['{"resource": {}, "scope_spans": []}', '{"instrumentationLibrarySpans": []}'])
def test_other_spellings_are_counted_as_bad(tmp_path: Path, text: str) -> None:
    """Those of older exporters, and of the definitions of the messages."""
    file = tmp_path / "spans.jsonl"
    file.write_text('{"resourceSpans": [' + text + "]}\n")
    spans, quality = reading.read([str(file)])
    assert (spans, quality.bad_lines) == ([], 1)
    assert quality.problems[0].reason == "not OTLP traces: expected scopeSpans beside a resource"
