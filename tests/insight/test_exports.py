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
from made_spans import CONSUMER, PRODUCER, TRACE_ID, process, span
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from protobuf_json import with_protobuf_ids

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.model.span import Event, Link, Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.exports import FORMATS
from ray_tracing_hooks._insight.views.exports.otlp import _attributes, _described
from ray_tracing_hooks._insight.views.exports.scene import scene
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

EPOCH = 1_795_300_404_477_229_122
"""A time whose nanoseconds no double holds."""

DRIVER = process(pid=1, **{"ray.worker.process_type": "driver"})
HOSTILE = "</script><b>\x1b[31m\u202e\ud800\"'&\u2028"
TASK, OBJECT = "ab" * 24, "ab" * 24 + "01000000"


def lines(spans: list[Span]) -> str:
    """A file of these spans, one line for each."""
    return "".join(
        json.dumps(
            {
                "resourceSpans": [
                    {
                        "resource": {"attributes": _attributes(each.resource)},
                        "scopeSpans": [{"scope": {"name": each.scope}, "spans": [_described(each)]}],
                    }
                ]
            }
        )
        + "\n"
        for each in spans
    )


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
    (made / "a.jsonl").write_text(lines(program()))
    return made


def export(folder: Path, name: str, *arguments: str, output: str = "out") -> tuple[Result, Path]:
    out = folder.parent / output
    result = CliRunner().invoke(main, ["export", str(folder), "--format", name, "-o", str(out), *arguments])
    return result, out


def exported(folder: Path, name: str, *arguments: str, output: str = "out") -> Path:
    result, out = export(folder, name, *arguments, output=output)
    assert result.exit_code == 0, result.output
    return out


def with_parquet(names: list[str]) -> list[str]:
    return [name for name in names if name != "parquet"]


EVERYWHERE = with_parquet(list(FORMATS))
"""The formats that need nothing that is not there."""


@pytest.mark.parametrize("name", EVERYWHERE)
def test_times_that_a_correction_of_clocks_moves_before_1970_are_exported(name: str, tmp_path: Path) -> None:
    """The clock of one node is years ahead of that of the driver, which began near zero."""
    (tmp_path / "spans").mkdir()
    elsewhere = process("ccccdddd", pid=2)
    spans = [
        span(1, 1_000, 9_000, name="run.py ray.driver", where=DRIVER),
        span(2, 2_000, 2_500, 1, name="f ray.remote", kind=PRODUCER, where=DRIVER, attributes={"ray.task_id": TASK}),
        span(3, EPOCH, EPOCH + 500, 2, name="f ray.remote_worker", kind=CONSUMER, where=elsewhere,
             attributes={"ray.task_id": TASK}),
        span(4, 3_000, 4_000, 1, name="ray.get", where=DRIVER,
             attributes={"ray.object_ids": [OBJECT], "ray.object_count": 1}),
        span(5, EPOCH // 2, EPOCH, name="earlier", where=elsewhere),
    ]  # fmt: skip
    (tmp_path / "spans" / "a.jsonl").write_text(lines(spans))
    assert exported(tmp_path / "spans", name).stat().st_size


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
    result, out = export(folder, "chrome")
    assert (result.exit_code, out.read_text()) == (2, "mine")
    assert "exists: --force overwrites it" in result.output
    assert json.loads(exported(folder, "chrome", "--force").read_text())["displayTimeUnit"] == "ns"


def test_what_cannot_be_written_leaves_nothing_behind(folder: Path) -> None:
    """A folder that is not there; a file without spans."""
    result, _ = export(folder, "chrome", output="missing/out")
    assert result.exit_code == 2
    assert f"there is no folder '{folder.parent / 'missing'}'" in "".join(result.output.splitlines())
    (folder / "a.jsonl").write_text("{}\n")
    result, _ = export(folder, "chrome")
    assert result.exit_code == 1
    assert "no spans in the files of" in result.output
    assert os.listdir(folder.parent) == ["spans"]


def test_the_name_is_by_the_format_where_none_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current folder."""
    monkeypatch.chdir(folder.parent)
    assert CliRunner().invoke(main, ["export", str(folder), "-f", "speedscope"]).exit_code == 0
    assert sorted(os.listdir(".")) == ["spans", "spans.speedscope.json"]


def test_standard_output_takes_the_file(folder: Path) -> None:
    """For a pipe."""
    result = CliRunner().invoke(main, ["export", str(folder), "-f", "otlp", "-o", "-"])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 5)


@pytest.mark.parametrize("name", ["otlp", "chrome"])
def test_a_full_disk_ends_the_command_with_an_error(folder: Path, name: str) -> None:
    """And not with a note that the input is damaged."""
    command = [sys.executable, "-m", "ray_tracing_hooks", "export", str(folder), "-f", name, "-o", "-"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "missing" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_that_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result, _ = export(folder, "parquet")
    assert result.exit_code == 2
    assert "--format parquet needs pyarrow: pip install 'ray-tracing-hooks[insight]'" in result.output
    assert os.listdir(folder.parent) == ["spans"]


@pytest.mark.parametrize("name", EVERYWHERE)
def test_attributes_can_be_left_out(folder: Path, name: str) -> None:
    """All of them, with messages of errors, or the values of some keys."""
    every = exported(folder, name).read_bytes()
    few = exported(folder, name, "--redact", "SECRET", "--redact", "exception.*", output="few").read_bytes()
    none = exported(folder, name, "--no-attributes", output="none").read_bytes()
    assert (b"hush" in every) == (b"boom" in every) == (name != "speedscope")
    for secret in (b"hush", b"ValueError", b"boom"):
        assert secret not in few
    assert (b"half" in few) == (name != "speedscope")
    for secret in (b"hush", b"boom", b"ValueError", b"half"):
        assert secret not in none
    assert b"m.f" in none


@pytest.mark.parametrize("name", EVERYWHERE)
def test_one_run_or_one_trace_can_be_chosen(folder: Path, name: str) -> None:
    """Otherwise all are written. A line with spans of others is not written with them."""
    other = "f" * 32
    older = [span(1, EPOCH - 500, EPOCH - 400, trace_id=other), span(2, EPOCH - 490, EPOCH - 480, 1, trace_id=other)]
    (folder / "b.jsonl").write_text(lines(older))
    for arguments, expected in (((), 7), (("--newest",), 5), (("--trace", "FFF"), 2), (("--trace", TRACE_ID[:5]), 5)):
        result, out = export(folder, name, "--force", *arguments)
        assert result.exit_code == 0, result.output
        assert f"{expected} spans, " in result.stdout
        if name == "otlp":
            assert len(otlp(out)) == expected
    for wrong in ("0000", "xyz"):
        assert export(folder, name, "--trace", wrong, output="wrong")[0].exit_code == 2
    assert sorted(os.listdir(folder.parent)) == ["out", "spans"]


def test_damage_is_told(folder: Path) -> None:
    """The rest is written."""
    with (folder / "a.jsonl").open("a") as file:
        file.write("no json\n")
    for name in EVERYWHERE:
        result, _ = export(folder, name, output=name)
        assert result.exit_code == 0
        assert "note: 1 bad line skipped (the first: " in result.stderr
        assert "5 spans" in result.stdout


def test_bad_spans_are_counted_and_the_others_of_their_line_are_there(folder: Path) -> None:
    """As in the other formats."""
    document = json.loads(lines(program()[:1]))
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["spanId"] = f"{77:016x}"
    spans += [{"no": "span"}, {"no": "span"}]
    (folder / "b.jsonl").write_text(json.dumps(document) + "\n")
    for name in EVERYWHERE:
        result, _ = export(folder, name, output=name)
        assert f"2 bad spans skipped (the first: {folder}/b.jsonl:1: a span that is not OTLP: " in result.stderr
        assert "6 spans, " in result.stdout


def test_an_object_over_many_lines_becomes_one_line(folder: Path) -> None:
    document = json.loads(lines(program()[:1]))
    span = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["spanId"] = f"{77:016x}"
    del span["startTimeUnixNano"]
    (folder / "b.jsonl").write_text(json.dumps(document, indent=2))
    result, path = export(folder, "otlp", output="otlp")
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert document in written
    assert (result.stderr, "6 spans, " in result.stdout) == ("", True)


@pytest.mark.parametrize("times", [{"startTimeUnixNano": -5}, {"endTimeUnixNano": str(1 << 64)}])
def test_a_span_whose_time_is_none_is_in_no_format(folder: Path, times: dict[str, Any]) -> None:
    document = json.loads(lines(program()[:1]))
    (span,) = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    span |= {"spanId": f"{77:016x}"} | times
    (folder / "b.jsonl").write_text(json.dumps(document) + "\n")
    for name in EVERYWHERE:
        result, _ = export(folder, name, output=name)
        assert f"1 bad span skipped (the first: {folder}/b.jsonl:1: a span that is not OTLP: " in result.stderr
        assert "5 spans, " in result.stdout


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
        span(6, 0, 0, 77, kind=99),
        span(1, EPOCH, EPOCH + 10**9, name=HOSTILE),
        *[span(n, EPOCH + n, EPOCH + 10**6 - n, n - 1) for n in range(100, 2_100)],
    ]
    (folder / "a.jsonl").write_text(lines(made))
    result, out = export(folder, name)
    assert result.exit_code == 0, result.output
    assert f": {len(made) - 1:,} spans, " in result.stdout
    content = out.read_bytes()
    if name != "perfetto":
        for each in content.decode().splitlines() if name == "otlp" else [content.decode()]:
            json.loads(each, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


def test_a_spool_is_written_as_files_are(tmp_path: Path) -> None:
    """With what still runs; a span that is in a file as well is written once."""
    (tmp_path / "spans").mkdir()
    finished = program()[1]
    (tmp_path / "spans" / "a.jsonl").write_text(lines(program()[:2]))
    writer = SpoolWriter(str(tmp_path / "spool"))
    prefix = U16.pack(writer.scope(Resource().SerializeToString(), InstrumentationScope().SerializeToString()))
    ids: dict[str, Any] = {"trace_id": bytes.fromhex(TRACE_ID), "start_time_unix_nano": EPOCH, "name": "m.g"}
    running = SpanMessage(span_id=(77).to_bytes(8, "big"), **ids)
    again = SpanMessage(span_id=bytes.fromhex(finished.span_id), end_time_unix_nano=finished.end_ns, **ids)
    writer.start(prefix, running.SerializeToString())
    writer.span(prefix, again.SerializeToString())
    try:
        arguments = [str(tmp_path / "spans"), str(tmp_path / "spool"), "-f"]
        found = {}
        for name in EVERYWHERE:
            result = CliRunner().invoke(main, ["export", *arguments, name, "-o", str(tmp_path / name)])
            assert "3 spans, " in result.stdout, result.output
            found[name] = result.stderr
    finally:
        writer.close()
    assert "1 spans have no end" in found["otlp"]
    assert "1 spans are still running" in found["jaeger"]
    assert "1 span still running, drawn up to" in found["perfetto"]
    assert Counter(each.name for each in otlp(tmp_path / "otlp")) == {
        "run.py ray.driver": 1,
        finished.name: 1,
        "m.g": 1,
    }


# --- Chrome -------------------------------------------------------------------------------------------------------


def chrome(folder: Path, *arguments: str) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The document, and its events by kind."""
    document = json.loads(exported(folder, "chrome", *arguments).read_bytes())
    events: dict[str, list[dict[str, Any]]] = {}
    for event in document["traceEvents"]:
        events.setdefault(event["ph"], []).append(event)
    return document, events


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def test_chrome_has_every_span_with_its_nanoseconds_and_its_attributes(folder: Path) -> None:
    """Times are from the first span on."""
    document, events = chrome(folder)
    assert document["otherData"]["start_unix_nano"] == str(EPOCH)
    spans = {event["name"]: event for event in events["X"] if event["cat"] != "wake"}
    assert {name: (ns(each["ts"]), ns(each["dur"])) for name, each in spans.items()} == {
        "run.py ray.driver": (0, 9_000_000),
        "m.f ray.remote": (1_000, 1_001),
        "m.f": (3_000_003, 1_999_997),
        HOSTILE.replace("\ud800", "?"): (3_500_000, 1_499_999),
        "ray.get": (2_500, 5_997_500),
    }
    told = spans["m.f"]["args"]
    assert (told["span_id"], told["parent_span_id"]) == (f"{3:016x}", f"{2:016x}")
    assert (told["status"], told["status_message"], told["ok"]) == ("ERROR", "boom", True)
    assert spans[HOSTILE.replace("\ud800", "?")]["args"]["nan"] == "nan"
    (instant,) = events["i"]
    assert (instant["name"], ns(instant["ts"]), instant["args"]["secret"]) == ("exception", 4_000_001, "hush")


def test_chrome_names_nodes_and_lanes(folder: Path) -> None:
    """Nodes are processes, lanes threads."""
    _, events = chrome(folder)
    named = [(each["name"], each["args"]) for each in events["M"] if each["name"] in ("process_name", "thread_name")]
    assert named == [
        ("process_name", {"name": "node aaaa (10.0.0.7)"}),
        ("process_name", {"name": "node cccc (10.0.0.7)"}),
        ("thread_name", {"name": "driver (pid 1)"}),
        ("thread_name", {"name": "worker 0000 (pid 2)"}),
    ]
    tracks = {(each["pid"], each["tid"]) for each in events["X"]}
    assert len(tracks) == 2
    assert len({tid for _, tid in tracks} | {pid for pid, _ in tracks}) == 4


def test_chrome_has_arrows_to_executions_and_from_what_a_get_waited_for(folder: Path) -> None:
    """The second points to a slice at the end of the wait, which begins after the execution did."""
    _, events = chrome(folder)
    (wake,) = [each for each in events["X"] if each["cat"] == "wake"]
    assert (ns(wake["ts"]), ns(wake["dur"])) == (6_000_000 - 1000, 1000)
    arrows: dict[int, list[tuple[str, str, int]]] = {}
    for each in (*events["s"], *events["f"]):
        arrows.setdefault(each["id"], []).append((each["ph"], each["cat"], ns(each["ts"])))
    assert sorted(arrows.values()) == [
        [("s", "get", 3_000_003), ("f", "get", 5_999_000)],
        [("s", "submit", 1_000), ("f", "submit", 3_000_003)],
    ]
    assert all(each["bp"] == "e" for each in events["f"])


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
    drawn = scene(table)
    arrows = [*drawn.starts.values(), *drawn.wakes.values()]
    assert (len(drawn.starts), len(drawn.wakes)) == (4, 4)
    assert all(table.trace[arrow.source] == table.trace[arrow.target] for arrow in arrows)


def test_chrome_shows_queued_calls_and_counts(folder: Path) -> None:
    """A call is queued from the end of its submission to the beginning of its execution, on the node that runs it."""
    _, events = chrome(folder)
    (begin,), (end,) = events["b"], events["e"]
    assert (begin["name"], begin["id"]) == (end["name"], end["id"]) == ("queued m.f", 1)
    assert (ns(begin["ts"]), ns(end["ts"])) == (2_001, 3_000_003)
    counts = [(each["pid"], ns(each["ts"]), each["args"]) for each in events["C"]]
    assert [each for each in counts if "running" in each[2]] == [
        (2, 2_001, {"running": 0}),
        (2, 3_000_003, {"running": 1}),
        (2, 5_000_000, {"running": 0}),
    ]
    assert [queued["queued"] for _, _, queued in counts if "queued" in queued] == [1, 0, 0]


def test_clocks_that_differ_are_set_right_and_that_is_told(tmp_path: Path) -> None:
    """An arrow would point the wrong way. Formats that hold the spans themselves have the times as recorded."""
    folder = tmp_path / "spans"
    folder.mkdir()
    submission = span(1, 10_000, 20_000, name="f ray.remote", kind=PRODUCER, where=DRIVER)
    execution = span(2, 5_000, 30_000, 1, name="f ray.remote_worker", kind=CONSUMER, where=process("ccccdddd", pid=2))
    driver = span(9, 10_000, 50_000, name="run.py ray.driver", where=DRIVER)
    (folder / "a.jsonl").write_text(lines([driver, submission, execution]))
    result, out = export(folder, "chrome")
    assert "the clock of host-cccc was set forward by 0.005 ms" in result.stderr
    (arrow,) = [event for event in json.loads(out.read_text())["traceEvents"] if event["ph"] == "s"]
    assert ns(arrow["ts"]) == 0
    assert {each.start_time_unix_nano for each in otlp(exported(folder, "otlp", output="otlp"))} == {5_000, 10_000}


def test_a_span_without_end_is_drawn_and_told(tmp_path: Path) -> None:
    """Until its process was last heard of."""
    folder = tmp_path / "spans"
    folder.mkdir()
    killed = span(3, 200, 300, 1, state="lost", attributes={"ray.end_estimated": True})
    (folder / "a.jsonl").write_text(lines([span(1, 100, 0, state="lost"), span(2, 150, 400, 1), killed]))
    result, out = export(folder, "chrome")
    assert result.stderr.splitlines() == [
        f"note: 1 span {what}, drawn up to the last known time, with state=lost"
        for what in ("interrupted by the death of its process", "without an end")
    ]
    drawn = [event for event in json.loads(out.read_text())["traceEvents"] if event["ph"] == "X"]
    assert (ns(drawn[0]["dur"]), drawn[0]["args"]["state"]) == (300, "lost")


# --- speedscope ---------------------------------------------------------------------------------------------------


def test_speedscope_has_a_profile_of_all_and_one_for_each_lane(folder: Path) -> None:
    """In the merged one a stack weighs what its last span took without its children and waits; the others nest."""
    document = json.loads(exported(folder, "speedscope").read_bytes())
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    merged, *lanes = document["profiles"]
    stacks = {
        tuple(frames[frame] for frame in stack): weight
        for stack, weight in zip(merged["samples"], merged["weights"], strict=True)
    }
    driver, submit, call = "run.py ray.driver", "m.f ray.remote", "m.f"
    assert stacks == {
        (driver,): 9_000_000 - 1_001 - 5_997_500,
        (driver, submit): 1_001,
        (driver, submit, call): 1_999_997 - 1_499_999,
        (driver, submit, call, HOSTILE.replace("\ud800", "?")): 1_499_999,
    }
    assert [lane["name"] for lane in lanes] == [
        "driver (pid 1) on node aaaa (10.0.0.7)",
        "worker 0000 (pid 2) on node cccc (10.0.0.7)",
    ]
    for lane in lanes:
        stack: list[int] = []
        at = lane["startValue"]
        for event in lane["events"]:
            assert event["at"] >= at
            at = event["at"]
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert stack.pop() == event["frame"]
        assert not stack
        assert at <= lane["endValue"]
    assert sum(len(lane["events"]) for lane in lanes) == 2 * 5


def test_speedscope_cuts_stacks_that_are_too_deep_and_says_so(tmp_path: Path) -> None:
    """Their time is not lost."""
    folder = tmp_path / "spans"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines([span(n, n, 2000 - n, n - 1) for n in range(1, 301)]))
    result, out = export(folder, "speedscope")
    assert "100 spans are deeper than 200 levels" in result.stderr
    merged = json.loads(out.read_text())["profiles"][0]
    assert max(map(len, merged["samples"])) == 200
    assert sum(merged["weights"]) == 1998


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
    (folder / "0.jsonl").write_text(lines([cut, estimated]))
    (folder / "b.jsonl").write_text(lines([estimated, cut, *program()[:2]]))
    metrics = json.dumps({"resourceMetrics": []}) + "\n"
    (folder / "c.jsonl").write_text(metrics + lines([span(6, EPOCH, EPOCH + 5)]).rstrip("\n"))
    found = otlp(exported(folder, "otlp"))
    assert Counter(each.span_id.hex() for each in found) == {f"{n:016x}": 1 for n in range(1, 7)}
    assert {each.end_time_unix_nano for each in found if each.span_id.hex() == f"{3:016x}"} == {EPOCH + 5_000_000}


def test_otlp_that_is_redacted_is_still_otlp(folder: Path) -> None:
    """Of all spans, with their times."""
    found = otlp(exported(folder, "otlp", "--redact", "secret", "--redact", "half"))
    assert [each.start_time_unix_nano for each in found] == [each.start_ns for each in program()]
    (event,) = found[2].events
    assert [(each.key, each.value.string_value) for each in event.attributes][1] == ("secret", "***")


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_redacted_key_is_hidden_within_values_and_a_message_with_it(tmp_path: Path, name: str) -> None:
    """In values that are maps or lists of maps, and in the message of a status, which is that of an exception."""
    secret = "hush-7f3a"
    nested = {"db": {"password": secret, "host": "seen"}, "many": [{"PASSWORD": secret}]}
    made = span(1, EPOCH, EPOCH + 5, attributes=nested, status_code=2, status_message=secret)
    folder = tmp_path / "spans"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines([made]))
    held = exported(folder, name, "--redact", "password", "--redact", "exception.message").read_bytes()
    assert secret.encode() not in held
    assert b"seen" in held or name == "speedscope"


# --- Jaeger -------------------------------------------------------------------------------------------------------


def test_jaeger_has_traces_with_their_processes(folder: Path) -> None:
    """As its query service answers, which its page takes as an upload."""
    document = json.loads(exported(folder, "jaeger").read_bytes())
    (trace,) = document["data"]
    assert trace["traceID"] == TRACE_ID
    spans = {each["spanID"]: each for each in trace["spans"]}
    assert len(spans) == 5
    call = spans[f"{3:016x}"]
    assert (call["startTime"], call["duration"]) == ((EPOCH + 3_000_003) // 1000, 5_000_000 // 1000 - 3_000_003 // 1000)
    assert call["references"] == [{"refType": "CHILD_OF", "traceID": TRACE_ID, "spanID": f"{2:016x}"}]
    tags = {tag["key"]: (tag["type"], tag["value"]) for tag in call["tags"]}
    assert tags["error"] == ("bool", True)
    assert tags["span.kind"] == ("string", "consumer")
    assert call["logs"][0]["fields"][0] == {"key": "event", "type": "string", "value": "exception"}
    service = trace["processes"][call["processID"]]
    assert service["serviceName"] == "ray"
    assert {"key": "process.pid", "type": "int64", "value": 2} in service["tags"]
    assert spans[f"{4:016x}"]["references"][1]["refType"] == "FOLLOWS_FROM"
