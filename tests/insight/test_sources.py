"""Spans from elsewhere: other formats, object stores, and back ends by their address."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result
from google.protobuf.json_format import Parse
from hand_made import MS, HandMade
from http_server import Answer, Request, http_server
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from protobuf_json import with_protobuf_ids

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._cli.inputs import Which
from ray_tracing_hooks._cli.summary.ray_tables import _of_files
from ray_tracing_hooks._insight.ingest.sources import unfetched
from ray_tracing_hooks._insight.model.span import CONSUMER

RECORDED = Path(__file__).parent / "corpus" / "recorded" / "actor_restarts.jsonl.gz"
LINES = gzip.decompress(RECORDED.read_bytes()).splitlines(keepends=True)
TRACE_ID = json.loads(LINES[0])["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]


pytestmark = pytest.mark.usefixtures("packages")


def run(*arguments: object, code: int = 0) -> Result:
    """A command that ends with this exit code."""
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result


def summary(place: object) -> dict[str, Any]:
    """The summary of a place, without what depends on how many files and lines its spans are in."""
    found: dict[str, Any] = json.loads(run("summary", place, "--json").stdout)
    del found["quality"]["files"], found["quality"]["lines"]
    return found


# --- Formats --------------------------------------------------------------------------------------------------------


def messages() -> list[bytes]:
    """The spans as OTLP protobuf."""
    documents = (with_protobuf_ids(json.loads(line)) for line in LINES)
    return [Parse(json.dumps(document), TracesData()).SerializeToString() for document in documents]


def compressed(data: bytes) -> bytes:
    """As zstd does."""
    arrow = import_module("pyarrow")
    out = arrow.BufferOutputStream()
    with arrow.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue())


def by_collector(parts: list[bytes]) -> bytes:
    """As the Collector's file exporter writes messages."""
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


FORMATS: dict[str, Callable[[], bytes]] = {
    "traces.json": lambda: b"".join(LINES),
    "traces.pb": lambda: by_collector(messages()),
    "bare": lambda: b"".join(messages()),
    "traces-of-collector.pb": lambda: by_collector([compressed(message) for message in messages()]),
    "traces-of-collector.json": lambda: by_collector([compressed(line) for line in LINES]),
    "traces.jsonl.zst": lambda: compressed(b"".join(LINES)),
    "two-frames.zst": lambda: compressed(b"".join(LINES[:3])) + compressed(b"".join(LINES[3:])),
    "traces.pb.zst": lambda: compressed(by_collector(messages())),
    "gzip": lambda: gzip.compress(b"".join(LINES)),
    "base64-ids.jsonl": lambda: b"".join(
        json.dumps(with_protobuf_ids(json.loads(line))).encode() + b"\n" for line in LINES
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_another_format_has_the_same_summary(name: str, tmp_path: Path) -> None:
    """Known by its content, whatever its name."""
    (tmp_path / name).write_bytes(FORMATS[name]())
    assert summary(tmp_path / name) == summary(RECORDED)


def test_what_is_missing_of_such_a_file_is_said(tmp_path: Path) -> None:
    """And the rest is read; nothing is made of a file that is none."""
    (tmp_path / "cut").write_bytes(by_collector(messages())[:-10])
    assert "the rest of the file is missing" in run("summary", tmp_path / "cut").stderr
    (tmp_path / "junk").write_bytes(bytes(range(256)) * 20)
    assert "nothing of it can be read as OTLP" in " ".join(run("summary", tmp_path / "junk", code=1).output.split())


def test_a_message_that_cannot_be_read_costs_itself_alone(tmp_path: Path) -> None:
    """Such as one with text that is not UTF-8."""
    parts = messages()
    (tmp_path / "whole.pb").write_bytes(by_collector(parts[:1] + parts[2:]))
    parts[1] = parts[1].replace(b"service.name", b"\xff" * 12)
    (tmp_path / "damaged.pb").write_bytes(by_collector(parts))
    assert summary(tmp_path / "damaged.pb") == summary(tmp_path / "whole.pb")
    assert "a message of it cannot be read" in " ".join(run("summary", tmp_path / "damaged.pb").stderr.split())


def test_zstd_without_its_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    (tmp_path / "traces.zst").write_bytes(compressed(b"".join(LINES)))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    shown = " ".join(run("summary", tmp_path / "traces.zst", code=1).output.split())
    assert "zstd needs pyarrow: pip install 'ray-tracing-hooks[insight]'" in shown


# --- Object stores --------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket() -> Iterator[Any]:
    """An object store in memory."""
    system = import_module("fsspec").filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_files_of_an_object_store_are_read(bucket: Any) -> None:
    """A folder and a file."""
    bucket.pipe("/bucket/spans/a.jsonl.gz", RECORDED.read_bytes())
    bucket.pipe("/bucket/spans/notes.txt", b"nothing")
    assert summary("memory://bucket/spans") == summary(RECORDED)
    assert summary("memory://bucket/spans/a.jsonl.gz") == summary(RECORDED)
    assert "does not exist" in run("summary", "memory://bucket/other", code=1).output


def test_what_is_wrong_with_fetched_files_names_their_place(bucket: Any, tmp_path: Path) -> None:
    """Not that of their copies here: of spans, of task states, of runs and of job events."""
    bucket.pipe("/bucket/spans/a.jsonl.gz", RECORDED.read_bytes())
    bucket.pipe("/bucket/spans/b.jsonl", b"{nonsense}\n")
    bucket.pipe("/bucket/spans/task-states-s.ndjson", b"{}\n")
    bucket.pipe("/bucket/runs/run=kkk/run.json", b"{}\n")
    bucket.pipe("/bucket/history/s/n/job_events/01/a.jsonl", b"{nonsense}\n")
    said = [
        *(run(command, "memory://bucket/spans", *more).output for command, more in (("summary", ()), ("tree", ()))),
        run("export", "memory://bucket/spans", "--format", "otlp", "-o", tmp_path / "spans.jsonl").output,
        run("runs", "memory://bucket/runs", code=1).output,
        run("states", tmp_path / "states", "--events", "memory://bucket/history", code=1).output,
    ]
    assert not [each for each in said if tempfile.gettempdir() + "/ray-tracing-hooks-" in each]
    assert "memory://bucket/spans/task-states-s.ndjson: it is not a file of task states" in said[0]
    for number, place in enumerate(("spans/b.jsonl", "spans/b.jsonl", "spans/b.jsonl", "runs/run=kkk/run.json")):
        assert f"memory://bucket/{place}" in "".join(said[number].split("\n"))
    assert "memory://bucket/history/s/n/job_events/01/a.jsonl: lines that are not events" in said[4]


def test_a_store_in_an_object_store_is_written_listed_and_read(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the run that is shown is fetched, and one that is written again is there once."""
    other = RECORDED.with_name("awaits.jsonl.gz")
    for source in (RECORDED, other, RECORDED):
        run("export", source, "--format", "parquet", "-o", "memory://bucket/runs")
    assert len(bucket.glob("/bucket/runs/run=*/traces-*.parquet")) == 2
    fetched: list[str] = []
    get = bucket.get_file

    def noted(_self: object, name: str, to: str) -> None:
        fetched.append(name)
        get(name, to)

    monkeypatch.setattr(type(bucket), "get_file", noted)
    listed = json.loads(run("runs", "memory://bucket/runs", "--json").stdout)
    assert len(listed) == 2
    assert [name for name in fetched if not name.endswith("run.json")] == []
    wanted = next(each["id"] for each in listed if each["program"]["name"] == "actors.py")
    assert summary(f"memory://bucket/runs@{wanted}") == summary(RECORDED)
    assert sum(name.endswith(".parquet") for name in fetched) == 1


EARLY, LATE = "early", "late"


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders of a run: one from before its last calls, with the task states of then. A store has three files of each
    or more.
    """
    monkeypatch.setattr("ray_tracing_hooks._insight.store.write._ROWS_OF_FILE", 2)
    found, driver = HandMade.driven(100)
    found.session = "session_a"
    folders = {EARLY: tmp_path / EARLY, LATE: tmp_path / LATE}
    about = {"format": "ray_tracing_hooks.task_states", "version": 1, "session": "session_a", "dropped": 0}
    for number, folder in enumerate(folders.values()):
        for call in range(2):
            at = 40.0 * number + 20 * call + 1
            found.run(found.submit(driver, "f", at), at + 5, at + 10)
        folder.mkdir()
        (folder / "a.jsonl").write_bytes(found.as_json_lines())
        states = [about]
        for each in found.spans:
            if each.kind == CONSUMER:
                times = {"PENDING_NODE_ASSIGNMENT": each.start_ns - 3 * MS - number, "RUNNING": each.start_ns}
                task = {"task_id": each.attributes[names.RAY_TASK_ID], "attempt": 0, "states": times}
                states.append({**task, "name": "f", "kind": "NORMAL_TASK", "job_id": "01000000"})
        (folder / "task-states-session_a.ndjson").write_text("".join(json.dumps(each) + "\n" for each in states))
    return folders


def kept(folder: Path) -> None:
    run("export", folder, "--format", "parquet", "-o", "memory://bucket/runs")


@pytest.mark.parametrize("begun", ["traces", "task-states", "run.json"])
def test_a_reader_sees_one_of_two_writers_of_a_run(
    begun: str, bucket: Any, copies: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a whole, at any time, with the states of its tasks. The last one that ends is there, and nothing of it is lost
    to the other one, whatever that one had written by then.
    """
    expected = {name: summary(folder) for name, folder in copies.items()}
    assert expected[EARLY]["queues"] != expected[LATE]["queues"]
    put, seen, other = bucket.put_file, [], [copies[EARLY]]

    def noted(_self: object, path: str, name: str) -> None:
        if begun in name and other:
            kept(other.pop())  # from beginning to end, while this one writes
        put(path, name)
        if bucket.glob("/bucket/runs/run=*/run.json"):
            seen.append(summary("memory://bucket/runs"))

    monkeypatch.setattr(type(bucket), "put_file", noted)
    kept(copies[LATE])
    assert not other
    assert [name for each in seen for name in copies if each == expected[name]] == [*[EARLY] * (len(seen) - 1), LATE]


def test_a_run_that_is_written_again_while_it_is_read_is_no_mix(
    bucket: Any, copies: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the new copy if that was there before the description was fetched, else the command says what to do."""
    get = bucket.get_file

    def read_while_written(begun: str) -> Result:
        other = [copies[LATE]]

        def noted(_self: object, name: str, to: str) -> None:
            if begun in name and other:
                kept(other.pop())
            get(name, to)

        kept(copies[EARLY])
        with monkeypatch.context() as patched:
            patched.setattr(type(bucket), "get_file", noted)
            return CliRunner().invoke(main, ["summary", "memory://bucket/runs", "--json"])

    found = json.loads(read_while_written("run.json").stdout)
    assert (found["run"], found["queues"]) == tuple(summary(copies[LATE])[key] for key in ("run", "queues"))
    failed = read_while_written("traces")
    assert failed.exit_code == 1
    assert "written again meanwhile. Repeat the command" in " ".join(failed.output.split())


def test_a_node_counts_a_file_of_an_object_store_where_it_is(bucket: Any) -> None:
    """It is not fetched to the machine of the command."""
    run("export", RECORDED, "--format", "parquet", "-o", "memory://bucket/runs")
    which = Which()
    assert which.files(["memory://bucket/runs"], fetches=False) == []
    (kept,) = which.kept
    assert not any(Path(file).exists() for file in kept.files)
    system, names = unfetched(kept.folder)
    counted = list(_of_files({"file": [name for name in names if name.endswith(".parquet")]}, system, None))
    calls = [row["number"] for counts in counted for row in counts.to_pylist() if row["member"] == "calls"]
    assert sum(calls) == summary(RECORDED)["run"]["calls"]
    assert bucket.glob("/bucket/runs/run=*/traces-*.parquet") == [name for name in names if name.endswith(".parquet")]


def test_a_scheme_without_its_package_is_said() -> None:
    """With what to install, and without the password."""
    shown = run("summary", "nothing://me:hunter2@bucket/spans", code=1).output
    assert "it needs fsspec and the package for its scheme" in " ".join(shown.split())
    assert "hunter2" not in shown


def test_a_file_that_cannot_be_fetched_is_said_without_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system of HTTP names a file by its URL, and so do its errors, some without the user."""
    url = "https://me:hunter2@host/a.jsonl?sig=k3y"

    def refused(name: str, _to: str) -> None:
        raise OSError(f"{name}: 403, url='https://host/a.jsonl?sig=k3y'")

    system = SimpleNamespace(find=lambda name: [name], get_file=refused)
    monkeypatch.setattr(import_module("fsspec.core"), "url_to_fs", lambda url: (system, url))
    shown = run("summary", url, code=1).output
    assert "cannot read https://********@host/a.jsonl" in shown
    assert "hunter2" not in shown
    assert "k3y" not in shown


# --- Back ends ------------------------------------------------------------------------------------------------------

JAEGER = [{"result": json.loads(line)} for line in LINES]
"""A stream of objects, as Jaeger's gateway writes it."""


def tempo_trace() -> dict[str, Any]:
    """A trace as Tempo's JSON has it: ids in base64, enums by name."""
    batches = [batch for line in LINES for batch in with_protobuf_ids(json.loads(line))["resourceSpans"]]
    return {"resourceSpans": batches}


class Backend:
    """A server with recorded answers, by path."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | int] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.address = ""

    def answer(self, request: Request) -> Answer:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append((parts.path, query, request.headers))
        if parts.path in self.redirects:
            return Answer(302, headers={"Location": self.redirects[parts.path]})
        answer = self.answers.get(parts.path, 404)
        return Answer(body=answer) if isinstance(answer, bytes) else Answer(answer, b'{"message": "no"}')


@contextmanager
def serving() -> Iterator[Backend]:
    found = Backend()
    with http_server(found.answer) as found.address:
        yield found


@pytest.fixture
def backend() -> Iterator[Backend]:
    with serving() as found:
        yield found


def test_a_trace_of_jaeger_is_read_by_its_id(backend: Backend) -> None:
    """With the same summary as its files."""
    backend.answers[f"/api/v3/traces/{TRACE_ID}"] = json.dumps({"result": merged()}).encode()
    assert summary(f"jaeger:{backend.address}?trace={TRACE_ID}") == summary(RECORDED)


def test_the_password_of_an_address_does_not_go_to_the_server_of_a_redirect(backend: Backend) -> None:
    path = f"/api/v3/traces/{TRACE_ID}"
    with serving() as other:
        backend.redirects[path] = other.address + path
        other.answers[path] = json.dumps({"result": merged()}).encode()
        address = backend.address.replace("//", "//me:hunter2@")
        assert summary(f"jaeger:{address}?trace={TRACE_ID}") == summary(RECORDED)
    ((_, _, first),) = backend.asked
    ((_, _, second),) = other.asked
    assert "authorization" in first
    assert "authorization" not in second


def merged() -> dict[str, Any]:
    return {"resourceSpans": [each for line in LINES for each in json.loads(line)["resourceSpans"]]}


def test_traces_of_jaeger_are_read_by_service_and_time(backend: Backend) -> None:
    """A stream of answers. That there may be more than were asked for is said."""
    backend.answers["/ui/api/v3/traces"] = "\n".join(map(json.dumps, JAEGER)).encode()
    when = "start=2026-11-28T22:00:00Z&end=2026-11-28T23:00:00Z"
    place = f"jaeger:http://me:hunter2@{backend.address[7:]}/ui/?service=ray&{when}&limit=1"
    result = run("summary", place, "--json")
    assert "there may be more (limit=1 in the address)" in " ".join(result.stderr.split())
    assert "hunter2" not in result.output
    assert summary(place) == summary(RECORDED)
    _, query, headers = backend.asked[0]
    assert query["query.service_name"] == "ray"
    assert query["query.start_time_min"] == "2026-11-28T22:00:00.000000Z"
    assert query["query.start_time_max"] == "2026-11-28T23:00:00.000000Z"
    assert query["query.search_depth"] == "1"
    assert headers["authorization"] == f"Basic {base64.b64encode(b'me:hunter2').decode()}"


@pytest.mark.parametrize("version", [1, 2])
def test_traces_of_tempo_are_read_by_service_and_time(backend: Backend, version: int) -> None:
    """By the search, and then each by its id; an older Tempo has another path and another shape."""
    backend.answers["/api/search"] = json.dumps({"traces": [{"traceID": TRACE_ID.lstrip("0")}]}).encode()
    if version == 2:
        backend.answers[f"/api/v2/traces/{TRACE_ID}"] = json.dumps({"trace": tempo_trace()}).encode()
    else:
        backend.answers[f"/api/traces/{TRACE_ID}"] = json.dumps({"batches": tempo_trace()["resourceSpans"]}).encode()
    assert summary(f"tempo:{backend.address}?service=ray&last=2h&tenant=team") == summary(RECORDED)
    _, query, headers = backend.asked[0]
    assert query["q"] == '{ resource.service.name = "ray" }'
    assert 7200 <= int(query["end"]) - int(query["start"]) <= 7202
    assert headers["x-scope-orgid"] == "team"


def clickhouse_rows(*, is_old: bool = False) -> list[dict[str, Any]]:
    """The spans as rows of the table that the Collector's exporter writes; an older one has other columns and enums."""

    def texts(attributes: list[dict[str, Any]]) -> dict[str, str]:
        return {each["key"]: text(each["value"]) for each in attributes}

    def text(value: dict[str, Any]) -> str:
        (kind, found) = next(iter(value.items()))
        if kind == "arrayValue":
            return json.dumps([each.get("stringValue", each) for each in found.get("values", ())])
        return str(found).lower() if kind == "boolValue" else str(found)

    rows = []
    for of_resource in merged()["resourceSpans"]:
        resource = texts(of_resource["resource"]["attributes"])
        for scope, span in ((each["scope"], span) for each in of_resource["scopeSpans"] for span in each["spans"]):
            kinds, statuses = ("", "Internal", "Server", "Client", "Producer", "Consumer"), ("Unset", "Ok", "Error")
            kind, status = kinds[span["kind"]], statuses[span.get("status", {}).get("code", 0)]
            events, links = span.get("events", []), span.get("links", [])
            row = {
                "Timestamp": nanoseconds(span["startTimeUnixNano"]),
                "TraceId": span["traceId"],
                "SpanId": span["spanId"],
                "ParentSpanId": span.get("parentSpanId", ""),
                "TraceState": span.get("traceState", ""),
                "SpanName": span["name"],
                "SpanKind": f"SPAN_KIND_{kind.upper()}" if is_old else kind,
                "ServiceName": resource.get("service.name", ""),
                "ResourceAttributes": resource,
                "SpanAttributes": texts(span.get("attributes", [])),
                "Duration": str(int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])),
                "StatusCode": f"STATUS_CODE_{status.upper()}" if is_old else status,
                "StatusMessage": span.get("status", {}).get("message", ""),
                "Events.Timestamp": [nanoseconds(each["timeUnixNano"]) for each in events],
                "Events.Name": [each["name"] for each in events],
                "Events.Attributes": [texts(each.get("attributes", [])) for each in events],
                "Links.TraceId": [each["traceId"] for each in links],
                "Links.SpanId": [each["spanId"] for each in links],
                "Links.TraceState": [each.get("traceState", "") for each in links],
                "Links.Attributes": [texts(each.get("attributes", [])) for each in links],
            }
            rows.append(row if is_old else row | {"ScopeName": scope.get("name", ""), "ScopeVersion": ""})
    return rows


def nanoseconds(text: str) -> str:
    """A time as ClickHouse writes it."""
    when = datetime.fromtimestamp(int(text) // 10**9, timezone.utc)
    return f"{when:%Y-%m-%d %H:%M:%S}.{int(text) % 10**9:09}"


def clickhouse_answer(rows: list[dict[str, Any]]) -> bytes:
    """With the columns that the query adds."""
    spans = [span for each in merged()["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]
    added = (
        {"start_ns": span["startTimeUnixNano"], "event_ns": [each["timeUnixNano"] for each in span.get("events", [])]}
        for span in spans
    )
    return "".join(json.dumps(row | more) + "\n" for row, more in zip(rows, added, strict=True)).encode()


@pytest.mark.parametrize("is_old", [False, True])
def test_traces_of_clickhouse_are_read_by_service_and_time(backend: Backend, is_old: bool) -> None:
    """With the same summary as their files: numbers, booleans and lists are such again."""
    backend.answers["/"] = clickhouse_answer(clickhouse_rows(is_old=is_old))
    place = f"clickhouse:http://me:hunter2@{backend.address[7:]}?database=otel&service=o'ray&last=2h&limit=1"
    result = run("summary", place, "--json")
    assert "there may be more (limit=1 in the address)" in " ".join(result.stderr.split())
    assert summary(place) == summary(RECORDED)
    _, query, headers = backend.asked[0]
    assert "o'ray" not in query["query"], "what is given is sent beside the query"
    assert (query["param_service"], query["param_limit"], query["param_ids"]) == ("o'ray", "1", "[]")
    assert (query["param_database"], query["param_table"]) == ("otel", "otel_traces")
    assert int(query["param_end"]) - int(query["param_start"]) == pytest.approx(7200 * 10**9, rel=1e-6)
    assert headers["authorization"] == f"Basic {base64.b64encode(b'me:hunter2').decode()}"


def test_a_trace_of_clickhouse_is_read_by_its_id(backend: Backend) -> None:
    """And it is said which of them are not there, or that the table is not, or is another one."""
    place = f"clickhouse:{backend.address}?trace={TRACE_ID}&trace=1"
    assert "has no table default.otel_traces" in " ".join(run("summary", place, code=1).output.split())
    backend.answers["/"] = clickhouse_answer(clickhouse_rows())
    told = " ".join(run("summary", place).stderr.split())
    assert f"has no trace {'0' * 31}1" in told
    assert backend.asked[-1][1]["param_ids"] == f"['{TRACE_ID}','{'0' * 31}1']"
    backend.answers["/"] = b'{"TraceId": "a"}\n'
    assert "has a table of another kind" in " ".join(run("summary", place, code=1).output.split())


def test_what_a_back_end_left_out_is_said(backend: Backend) -> None:
    """A part of a trace, a whole one, and what cannot be read."""
    answer = {"trace": tempo_trace(), "status": "PARTIAL", "message": "trace exceeds max size"}
    backend.answers[f"/api/v2/traces/{TRACE_ID}"] = json.dumps(answer).encode()
    result = run("summary", f"tempo:{backend.address}?trace={TRACE_ID}&trace={'0' * 31}1")
    told = " ".join(result.stderr.split())
    assert f"left out a part of trace {TRACE_ID}: trace exceeds max size" in told
    assert f"has no trace {'0' * 31}1" in told
    bad = merged()
    bad["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = "zz"
    backend.answers[f"/api/v3/traces/{TRACE_ID}"] = json.dumps({"result": bad}).encode()
    told = " ".join(run("summary", f"jaeger:{backend.address}?trace={TRACE_ID}").stderr.split())
    assert "1 spans of jaeger" in told


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (500, "answers 500"),
        (b"<html>", "something else than JSON objects"),
        (b'{"error": {"httpCode": 400, "message": "malformed"}}', "malformed"),
        (b'{"result": {"spans": []}}', "something else than OTLP"),
        (b'{"result": {"resourceSpans": []}}', "no spans in"),
        (b'{"result": null}', "something else than traces"),
        (b'{"result": {"resourceSpans": {"a": 1}}}', "something else than traces"),
        (b"[" * 100_000, "something else than traces"),
    ],
)
def test_an_answer_without_spans_is_said(backend: Backend, answer: bytes | int, why: str) -> None:
    """What is at that address instead."""
    backend.answers["/api/v3/traces"] = answer
    address = backend.address.replace("//", "//user:s3cret@")
    shown = " ".join(run("summary", f"jaeger:{address}?service=ray", code=1).output.split())
    assert why in shown
    assert "Traceback" not in shown
    assert "s3cret" not in shown


def test_a_back_end_that_is_not_there_is_said() -> None:
    """With its address."""
    with serving() as gone:
        address = gone.address
    shown = " ".join(run("summary", f"tempo:{address}?service=ray", code=1).output.split())
    assert f"tempo at {address} does not answer" in shown


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("jaeger:http://h?x=1", "'x' is no parameter"),
        ("jaeger:http://h?service=ray&tenant=team", "'tenant' is no parameter: expected trace, service, last"),
        ("jaeger:http://h", "give a trace (?trace=ID), or a service"),
        ("tempo:ftp://h?service=ray", "expected an address such as tempo:http://"),
        ("tempo:http://h?trace=xyz", "is no trace id"),
        ("tempo:http://h?service=ray&last=soon", "expected a number and s, m, h or d"),
        ("tempo:http://h?service=ray&start=soon", "is no time"),
        ("tempo:http://h?service=ray&start=0001-01-01", "is no time"),
        ("tempo:http://me:s3cret/@h?service=ray", "tempo: the port is no number up to 65535; in a password, write /"),
        ("tempo:http://h?service=ray&limit=0", "expected a number of traces"),
        ("tempo:http://h?service=ray&start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z", "not before the end"),
    ],
)
def test_a_wrong_address_is_said(place: str, why: str) -> None:
    """With what is expected."""
    shown = " ".join(run("summary", place, code=2).output.split())
    assert why in shown
    assert "s3cret" not in shown
    assert run("summary", place, "--engine", "ray", code=2).output
