"""``ray-tracing-hooks export``: files for other viewers, and what is in them."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from google.protobuf.json_format import Parse
from hand_made import MS, HandMade
from made_spans import CONSUMER, PRODUCER, TRACE_ID, lines, process, span
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from protobuf_json import with_protobuf_ids

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.clocks import correct
from ray_tracing_hooks._insight.model.span import Event, Link, Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.exports import FORMATS, writer
from ray_tracing_hooks._insight.views.exports.perfetto import Scene, lane_label, scene, title, told_of
from ray_tracing_hooks._insight.views.redaction import Redaction
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

EPOCH = 1_795_300_404_477_229_122
"""A time whose nanoseconds no double holds."""

DRIVER = process(pid=1, **{"ray.worker.process_type": "driver"})
HOSTILE = "</script><b>\x1b[31m\u202e\ud800\"'&\u2028"
TASK, OBJECT = "ab" * 24, "ab" * 24 + "01000000"


def program() -> list[Span]:
    """A driver that calls a task on another node and waits for it; the task fails in a span of the user's."""
    at = EPOCH
    error = Event("exception", at + 4_000_001, {"exception.type": "ValueError", "secret": "hush"})
    return [
        span(1, at, at + 9_000_000, name="run.py ray.driver", where=DRIVER),
        span(2, at + 1_000, at + 2_001, 1, name="m.f ray.remote", kind=PRODUCER, where=DRIVER,
             attributes={"ray.task_id": TASK, "ray.function": "m.f"}),
        span(3, at + 3_000_003, at + 5_000_000, 2, name="m.f ray.remote_worker", kind=CONSUMER,
             where=process("ccccdddd", pid=2), attributes={"ray.task_id": TASK, "ray.function": "m.f", "ok": True},
             status_code=2, status_message="boom", events=[error]),
        span(4, at + 3_500_000, at + 4_999_999, 3, name=HOSTILE, where=process("ccccdddd", pid=2),
             attributes={"half": 0.5, "nan": float("nan"), "many": [1, 2], HOSTILE: HOSTILE},
             links=[Link(TRACE_ID, "00000000000000ff", {})]),
        span(5, at + 2_500, at + 6_000_000, 1, name="ray.get", where=DRIVER,
             attributes={"ray.object_ids": [OBJECT], "ray.object_count": 1}),
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the spans of the program."""
    made = tmp_path / "spans"
    made.mkdir()
    (made / "a.jsonl").write_text(lines(*program()))
    return made


def export(folder: Path, name: str, *arguments: str, output: str = "out") -> tuple[Result, Path]:
    out = folder.parent / output
    result = CliRunner().invoke(main, ["export", str(folder), "--format", name, "-o", str(out), *arguments])
    return result, out


def exported(folder: Path, name: str, *arguments: str, output: str = "out") -> Path:
    result, out = export(folder, name, *arguments, output=output)
    assert result.exit_code == 0, result.output
    return out


EVERYWHERE = list(FORMATS)


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_file_is_this_users_alone_and_compressed_by_its_name(folder: Path, name: str) -> None:
    """It says what it wrote. Packed or not, the content is the same."""
    result, out = export(folder, name)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{out}: 5 spans, ")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    packed = exported(folder, name, output="out.gz")
    assert gzip.decompress(packed.read_bytes()) == out.read_bytes()
    assert sorted(os.listdir(folder.parent)) == ["out", "out.gz", "spans"]


def test_a_file_that_exists_is_kept_unless_told_otherwise(folder: Path) -> None:
    """Nothing is lost to a slip."""
    (folder.parent / "out").write_text("mine")
    result, out = export(folder, "otlp")
    assert (result.exit_code, out.read_text()) == (1, "mine")
    assert "exists: --force overwrites it" in result.output
    assert len(otlp(exported(folder, "otlp", "--force"))) == 5


def test_what_cannot_be_written_leaves_nothing_behind(folder: Path) -> None:
    """A folder that is not there; a file without spans."""
    result, _ = export(folder, "perfetto", output="missing/out")
    assert result.exit_code == 1
    assert f"there is no folder '{folder.parent / 'missing'}'" in "".join(result.output.splitlines())
    (folder / "a.jsonl").write_text("{}\n")
    result, _ = export(folder, "perfetto")
    assert result.exit_code == 1
    assert "no spans in the files of" in result.output
    assert os.listdir(folder.parent) == ["spans"]


def test_the_name_is_by_the_format_where_none_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current folder."""
    monkeypatch.chdir(folder.parent)
    result = CliRunner().invoke(main, ["export", str(folder), "--format", "perfetto", "--json"])
    assert result.exit_code == 0
    assert sorted(os.listdir(".")) == ["spans", "spans.pftrace"]
    taken = os.path.getsize("spans.pftrace")
    written = {"output": "spans.pftrace", "format": "perfetto", "spans": 5, "bytes": taken}
    assert json.loads(result.stdout) == written


@pytest.mark.parametrize("name", ["otlp", "perfetto"])
def test_a_full_disk_ends_the_command_with_an_error(folder: Path, name: str) -> None:
    """And not with a note that the input is damaged."""
    command = [sys.executable, "-m", "ray_tracing_hooks", "export", str(folder), "--format", name, "-o", "-"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "missing" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", EVERYWHERE)
def test_attributes_can_be_left_out(folder: Path, name: str) -> None:
    """All of them, with messages of errors, or the values of some keys."""
    every = exported(folder, name).read_bytes()
    few = exported(folder, name, "--redact", "SECRET", "--redact", "exception.*", output="few").read_bytes()
    none = exported(folder, name, "--no-attributes", output="none").read_bytes()
    assert b"hush" in every
    assert b"boom" in every
    for secret in (b"hush", b"ValueError", b"boom"):
        assert secret not in few
    assert b"half" in few
    for secret in (b"hush", b"boom", b"ValueError", b"half"):
        assert secret not in none
    assert b"m.f" in none


@pytest.mark.parametrize("name", EVERYWHERE)
def test_one_run_or_one_trace_can_be_chosen(folder: Path, name: str) -> None:
    """Otherwise it is the newest run. A line with spans of others is not written with them."""
    other = "f" * 32
    older = [span(1, EPOCH - 500, EPOCH - 400, trace_id=other), span(2, EPOCH - 490, EPOCH - 480, 1, trace_id=other)]
    (folder / "b.jsonl").write_text(lines(*older))
    for arguments, expected in (((), 5), (("--all",), 7), (("--trace", "FFF"), 2), (("--trace", TRACE_ID[:5]), 5)):
        result, out = export(folder, name, "--force", *arguments)
        assert result.exit_code == 0, result.output
        assert f"{expected} spans, " in result.stdout
        if name == "otlp":
            assert len(otlp(out)) == expected
    for wrong, code in (("0000", 1), ("xyz", 2)):
        assert export(folder, name, "--trace", wrong, output="wrong")[0].exit_code == code
    assert sorted(os.listdir(folder.parent)) == ["out", "spans"]


def test_bad_spans_are_counted_and_the_others_of_their_line_are_there(folder: Path) -> None:
    """As in the other formats."""
    document = json.loads(lines(*program()[:1]))
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["spanId"] = f"{77:016x}"
    spans += [{"no": "span"}, {"no": "span"}]
    (folder / "b.jsonl").write_text(json.dumps(document) + "\n")
    for name in EVERYWHERE:
        result, _ = export(folder, name, output=name)
        assert f"2 bad spans skipped (the first: {folder}/b.jsonl:1: a span that is not OTLP: " in result.stderr
        assert "6 spans, " in result.stdout


def test_an_object_over_many_lines_is_read_as_a_line_is(folder: Path) -> None:
    document = json.loads(lines(*program()[:1]))
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] = f"{77:016x}"
    (folder / "b.jsonl").write_text(json.dumps(document, indent=2))
    result, path = export(folder, "otlp", output="otlp")
    assert f"{77:016x}" in {each.span_id.hex() for each in otlp(path)}
    assert (result.stderr, "6 spans, " in result.stdout) == ("", True)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_hostile_spans_are_written_as_text(tmp_path: Path, name: str) -> None:
    """Very long and very deep ones, circles of parents, ends before starts, numbers of any size, ids that come twice.

    Each span is written once, by every format, in a time that does not grow faster than they do.
    """
    folder = tmp_path / "spans"
    folder.mkdir()
    long = "x" * (1 << 20)
    made = [
        span(1, EPOCH, EPOCH + 10**9, name=HOSTILE),
        span(2, EPOCH + 5, EPOCH + 3, 1, name=long, attributes={long: long, "huge": 1 << 70}),
        span(3, EPOCH, EPOCH + 9, 4, name=""),
        span(4, EPOCH, EPOCH + 9, 3, events=[Event(HOSTILE, (1 << 64) - 1, {HOSTILE: HOSTILE})]),
        span(5, EPOCH, EPOCH + 9, 5),
        span(6, EPOCH, 0, 77, kind=99),
        span(1, EPOCH, EPOCH + 10**9, name=HOSTILE),
        *[span(n, EPOCH + n, EPOCH + 10**6 - n, n - 1) for n in range(100, 2_100)],
    ]
    (folder / "a.jsonl").write_text(lines(*made))
    result, out = export(folder, name)
    assert result.exit_code == 0, result.output
    assert f": {len(made) - 1:,} spans, " in result.stdout
    content = out.read_bytes()
    if name == "otlp":
        for each in content.decode().splitlines():
            json.loads(each, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


def test_a_spool_is_written_as_files_are(tmp_path: Path) -> None:
    """With what still runs; a span that is in a file as well is written once."""
    (tmp_path / "spans").mkdir()
    finished = program()[1]
    (tmp_path / "spans" / "a.jsonl").write_text(lines(*program()[:2]))
    writer = SpoolWriter(str(tmp_path / "spool"))
    prefix = U16.pack(writer.scope(Resource().SerializeToString(), InstrumentationScope().SerializeToString()))
    ids: dict[str, Any] = {"trace_id": bytes.fromhex(TRACE_ID), "start_time_unix_nano": EPOCH, "name": "m.g"}
    running = SpanMessage(span_id=(77).to_bytes(8, "big"), **ids)
    again = SpanMessage(span_id=bytes.fromhex(finished.span_id), end_time_unix_nano=finished.end_ns, **ids)
    writer.start(prefix, running.SerializeToString())
    writer.span(prefix, again.SerializeToString())
    try:
        arguments = [str(tmp_path / "spans"), str(tmp_path / "spool"), "--format"]
        found = {}
        for name in EVERYWHERE:
            result = CliRunner().invoke(main, ["export", *arguments, name, "-o", str(tmp_path / name)])
            assert "3 spans, " in result.stdout, result.output
            found[name] = result.stderr
    finally:
        writer.close()
    assert "1 span without an end: still running" in found["otlp"]
    assert "1 span still running, drawn up to" in found["perfetto"]
    assert Counter(each.name for each in otlp(tmp_path / "otlp")) == {
        "run.py ray.driver": 1,
        finished.name: 1,
        "m.g": 1,
    }


# --- Timelines ----------------------------------------------------------------------------------------------------


def drawn(folder: Path) -> Scene:
    return scene(correct(load([str(folder / "a.jsonl")])))


def test_a_timeline_has_nodes_and_lanes(folder: Path) -> None:
    seen = drawn(folder)
    assert [seen.places.places[there[0]].node_label for there in seen.nodes] == [
        "node aaaabbbb (10.0.0.7)",
        "node ccccdddd (10.0.0.7)",
    ]
    labels = [lane_label(seen.places.places[lane.place], lane.number) for lane in seen.lanes.lanes]
    assert labels == ["driver (pid 1)", "worker 00000002 (pid 2)"]
    assert [title(seen.table, row) for row in seen.by_lane()[1]] == ["m.f", HOSTILE.replace("\ud800", "?")]


def test_a_bar_has_the_attributes_of_its_span_with_its_ids_and_outcome(folder: Path) -> None:
    seen = drawn(folder)
    told = told_of(seen.table.span(3), Redaction())
    assert (told["span_id"], told["parent_span_id"]) == (f"{3:016x}", f"{2:016x}")
    assert (told["status"], told["status_message"], told["ok"]) == ("ERROR", "boom", True)


def test_arrows_lead_to_executions_and_from_what_a_get_waited_for(folder: Path) -> None:
    """The second points to a slice at the end of the wait, which begins after the execution did."""
    seen = drawn(folder)
    (start,), (wake,) = seen.starts.values(), seen.wakes.values()
    names = [seen.table.name_of(row) for arrow in (start, wake) for row in (arrow.source, arrow.target)]
    assert names == ["m.f ray.remote", "m.f ray.remote_worker", "m.f ray.remote_worker", "ray.get"]
    assert seen.wake_ns(wake.target) == EPOCH + 6_000_000 - 1000


@pytest.mark.parametrize("other", ["session_2", ""])
def test_runs_whose_tasks_have_the_same_ids_keep_their_arrows(other: str) -> None:
    """Clusters give their tasks the same ids; without the span of a submission only the id joins it to its call."""
    spans = []
    for number, session in enumerate(("session_1", other), 1):
        run = HandMade()
        run.session = session
        driver = run.driver(0, 100)
        first, second = run.submit(driver, "f", 1), run.submit(driver, "g", 2, arguments=[])
        run.run(first, 3, 40)
        run.run(second, 41, 80)
        run.get(driver, [first], 3, 41)
        run.get(driver, [second], 42, 81)
        for each in run.spans:
            each.trace_id = f"{number:032x}"
            each.start_ns += number * 1000 * MS
            each.end_ns += number * 1000 * MS
            if each.name == "f ray.remote_worker":
                each.parent_id = "f" * 16
        spans += run.spans
    table = Table.of(spans)
    seen = scene(table)
    arrows = [*seen.starts.values(), *seen.wakes.values()]
    assert (len(seen.starts), len(seen.wakes)) == (4, 4)
    assert all(table.trace[arrow.source] == table.trace[arrow.target] for arrow in arrows)


def test_queued_calls_are_those_of_the_node_that_ran_them(folder: Path) -> None:
    """A call is queued from the end of its submission to the beginning of its execution."""
    seen = drawn(folder)
    ((_, since, until),) = seen.queues()
    assert (since, until) == (EPOCH + 2_001, EPOCH + 3_000_003)


def test_clocks_that_differ_are_set_right_and_that_is_told(tmp_path: Path) -> None:
    """An arrow would point the wrong way. Formats that hold the spans themselves have the times as recorded."""
    folder = tmp_path / "spans"
    folder.mkdir()
    submission = span(1, 10_000, 20_000, name="f ray.remote", kind=PRODUCER, where=DRIVER)
    execution = span(2, 5_000, 30_000, 1, name="f ray.remote_worker", kind=CONSUMER, where=process("ccccdddd", pid=2))
    driver = span(9, 10_000, 50_000, name="run.py ray.driver", where=DRIVER)
    (folder / "a.jsonl").write_text(lines(driver, submission, execution))
    assert "the clock of host-cccc was set forward by 0.005 ms" in export(folder, "perfetto")[0].stderr
    (arrow,) = drawn(folder).starts.values()
    assert drawn(folder).table.start[arrow.target] == 10_000
    assert {each.start_time_unix_nano for each in otlp(exported(folder, "otlp", output="otlp"))} == {5_000, 10_000}


def test_a_span_without_end_is_drawn_and_told(tmp_path: Path) -> None:
    """Until its process was last heard of."""
    folder = tmp_path / "spans"
    folder.mkdir()
    killed = span(3, 200, 300, 1, state="lost", attributes={"ray.end_estimated": True})
    (folder / "a.jsonl").write_text(lines(span(1, 100, 0, state="lost"), span(2, 150, 400, 1), killed))
    assert export(folder, "perfetto")[0].stderr.splitlines() == [
        f"note: 1 span {what}, drawn up to the last known time, with state=lost"
        for what in ("interrupted by the death of its process", "without an end")
    ]
    assert drawn(folder).ends[0] == 400


# --- OTLP ---------------------------------------------------------------------------------------------------------


def otlp(path: Path) -> list[Any]:
    """The spans of a file, as protobuf's own parser reads them."""
    messages = [
        Parse(json.dumps(with_protobuf_ids(json.loads(line))), TracesData()) for line in path.read_text().splitlines()
    ]
    return [
        each
        for message in messages
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for each in scope.spans
    ]


def test_otlp_lines_are_taken_over_as_they_are(folder: Path) -> None:
    """Byte for byte, except for text that is not valid Unicode, which strict readers refuse."""
    written, read = exported(folder, "otlp").read_bytes().splitlines(), (folder / "a.jsonl").read_bytes().splitlines()
    assert [line for line in written if line not in read] == [
        read[3].replace(b"\\ud800", b"?").replace(b", ", b",").replace(b": ", b":")
    ]
    assert all(line.isascii() for line in written)


def test_otlp_has_each_span_once_and_its_best_record(folder: Path) -> None:
    """An end that was recorded is better than an estimated one, and that than none, in whatever file."""
    cut = span(3, EPOCH, 0)
    estimated = span(3, EPOCH, EPOCH + 10**12, attributes={"ray.end_estimated": True})
    (folder / "0.jsonl").write_text(lines(cut, estimated))
    (folder / "b.jsonl").write_text(lines(estimated, cut, *program()[:2]))
    metrics = json.dumps({"resourceMetrics": []}) + "\n"
    (folder / "c.jsonl").write_text(metrics + lines(span(6, EPOCH, EPOCH + 5)).rstrip("\n"))
    found = otlp(exported(folder, "otlp"))
    assert Counter(each.span_id.hex() for each in found) == {f"{n:016x}": 1 for n in range(1, 7)}
    assert {each.end_time_unix_nano for each in found if each.span_id.hex() == f"{3:016x}"} == {EPOCH + 5_000_000}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_file_that_goes_away_meanwhile_costs_its_attributes_alone(folder: Path, tmp_path: Path, name: str) -> None:
    """A shipper removes the oldest local files past their limit."""
    gone = folder / "gone.jsonl"
    gone.write_text(lines(span(6, EPOCH, EPOCH + 5, attributes={"mine": 1})))
    table = load([str(gone), str(folder / "a.jsonl")])
    gone.unlink()
    with open(tmp_path / "out", "wb") as out:
        notes = writer(name)(table, Redaction(), out, lambda _spans: None)
    assert "1 span could not be read again: most of their attributes are missing" in notes
    if name == "otlp":
        assert len(otlp(tmp_path / "out")) == len(program()) + 1


def test_otlp_that_is_redacted_is_still_otlp(folder: Path) -> None:
    """Of all spans, with their times."""
    found = otlp(exported(folder, "otlp", "--redact", "secret", "--redact", "half"))
    assert sorted(each.start_time_unix_nano for each in found) == sorted(each.start_ns for each in program())
    (event,) = (event for each in found for event in each.events)
    assert [(each.key, each.value.string_value) for each in event.attributes][1] == ("secret", "***")


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_redacted_key_is_hidden_within_values_and_a_message_with_it(tmp_path: Path, name: str) -> None:
    """In values that are maps or lists of maps, and in the message of a status, which is that of an exception."""
    secret = "hush-7f3a"
    nested = {"db": {"password": secret, "host": "seen"}, "many": [{"PASSWORD": secret}]}
    made = span(1, EPOCH, EPOCH + 5, attributes=nested, status_code=2, status_message=secret)
    folder = tmp_path / "spans"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines(made))
    held = exported(folder, name, "--redact", "password", "--redact", "exception.message").read_bytes()
    assert secret.encode() not in held
    assert b"seen" in held
