"""Replay: files and left-over spools go to real servers, once, whatever happens on the way."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import any_spans
import pytest
from click.testing import CliRunner, Result
from google.protobuf.json_format import ParseDict
from http_server import Answer as HttpAnswer
from http_server import Request as HttpRequest
from http_server import http_server
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData
from plans import made_plan

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._formats.otlp import TRACES
from ray_tracing_hooks._formats.otlp_json import resource_json, scope_json, span_json
from ray_tracing_hooks._formats.otlp_json_read import traces
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._settings.table import SINKS
from ray_tracing_hooks._ship.figures import DestinationFigures, Figures
from ray_tracing_hooks._ship.files import STATUS, take_lock
from ray_tracing_hooks._ship.registry import destination_of, make_sink
from ray_tracing_hooks._ship.sink import Batch, SinkContext
from ray_tracing_hooks._spool.layout import MAX_SEGMENT, spool_name
from ray_tracing_hooks._spool.reader import count_spans
from ray_tracing_hooks._spool.writer import SpoolWriter

RESOURCE = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="replayed"))])
SCOPE = InstrumentationScope(name="test", version="1")


# Reading OTLP-JSON.


def read_back(text: str) -> list[Span]:
    """The spans of a line, all of which can be read."""
    groups, wrong = traces(text)
    assert wrong == []
    return [Span.FromString(span) for group in groups for span in group.spans]


attributes = any_spans.attributes(st.floats(allow_nan=False))
spans = any_spans.spans(
    st.binary(min_size=16, max_size=16).filter(any),
    st.binary(min_size=8, max_size=8).filter(any),
    attributes,
    st.integers(0, 9),
)
texts = any_spans.TEXTS


@given(spans, attributes, st.builds(InstrumentationScope, name=texts, version=texts, attributes=attributes))
def test_what_we_write_reads_as_the_same(span: Span, of_resource: list[KeyValue], scope: InstrumentationScope) -> None:
    """Span, Resource and scope, with every field and every type of value."""
    resource = Resource(attributes=of_resource, dropped_attributes_count=3)
    line = TRACES.line(
        resource_json(resource.SerializeToString()),
        scope_json(scope.SerializeToString()),
        [span_json(span.SerializeToString())],
    )
    ((group,), wrong) = traces(line)
    assert wrong == []
    assert Span.FromString(group.spans[0]) == span
    assert Resource.FromString(group.resource) == resource
    assert InstrumentationScope.FromString(group.scope) == scope
    # The ids stand first.
    assert group.spans[0].startswith(b"\x0a\x10" + span.trace_id + b"\x12\x08" + span.span_id)


OTHER_FORMS: dict[str, Any] = {
    "trace_id": "AAECAwQFBgcICQoLDA0ODw==",
    "span_id": "EBESExQVFhc=",
    "parent_span_id": None,
    "name": "of another tool",
    "kind": "SPAN_KIND_CLIENT",
    "start_time_unix_nano": 1700000000000000001,
    "end_time_unix_nano": "1.7e18",
    "attributes": [
        {"key": "a", "value": {"string_value": "x"}},
        {"key": "b", "value": {"int_value": 7}},
        {"key": "c", "value": {"double_value": "NaN"}},
        {"key": "d", "value": {"array_value": {"values": [{"bool_value": True}]}}},
        {"key": "e", "value": {"bytes_value": "_-8"}},
        {"key": "f"},
    ],
    "status": {"code": "STATUS_CODE_ERROR", "message": "bad"},
    "unheard_of": {"x": 1},
}


def test_other_tools_are_read_as_protobuf_reads_them() -> None:
    """Underscores, names of enums, ids in base64, plain numbers, nulls, unknown fields, entities of a resource."""
    resource = {"entity_refs": [{"type": "service", "id_keys": ["service.instance.id"]}]}
    scope_spans = [{"spans": [OTHER_FORMS], "schema_url": "x"}]
    document = {"resource_spans": [{"resource": resource, "scope_spans": scope_spans}, {"resource": None}]}
    expected = ParseDict(document, TracesData(), ignore_unknown_fields=True)
    (span,) = read_back(json.dumps(document))
    assert repr(span) == repr(expected.resource_spans[0].scope_spans[0].spans[0])  # NaN is not equal to itself


@pytest.mark.parametrize("signal_", ["resourceMetrics", "resourceLogs", "resource_profiles"])
def test_other_signals_hold_no_spans(signal_: str) -> None:
    assert traces(json.dumps({signal_: [{}]})) == ([], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"resourceSpans":', "not JSON: Expecting value at character 18"),
        ('{"a": 1}', "not OTLP traces: expected an object with resourceSpans"),
        ("[]", "not OTLP traces: 'list' object has no attribute 'get'"),
        ('{"resourceSpans": 5}', "not OTLP traces: 'int' object is not iterable"),
        ("[" * 100_000, "not JSON: "),
        (b"\xff\xfe{", "not JSON: "),
    ],
)
def test_what_is_no_otlp_says_so(line: str | bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=f"^{re.escape(reason)}"):
        traces(line)


GOOD = {"traceId": "01" * 16, "spanId": "02" * 8, "name": "good"}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"traceId": "01"}, "an id has the wrong size"),
        ({"spanId": ""}, "an id has the wrong size"),
        ({"traceId": "zz" * 16}, "Non-hexadecimal"),
        ({"traceId": "00" * 16}, "its ids are zero"),
        ({"kind": "SPAN_KIND_ODD"}, "could not convert"),
        ({"startTimeUnixNano": "-1"}, "Value out of range: -1"),
        ({"startTimeUnixNano": 1.5}, "1.5 where a whole number"),
        ({"flags": True}, "True where a number"),
        ({"name": 5}, "5 where a text"),
        ({"attributes": {"a": 1}}, "{'a': 1} where a list"),
        ({"attributes": [{"key": "a", "value": {"intValue": str(2**63)}}]}, "Value out of range: 9223372036854775808"),
        ({"attributes": [{"key": "a", "value": {"boolValue": "yes"}}]}, "'yes' where true or false"),
        ({"attributes": [{"key": "a", "value": {"stringValue": 1}}]}, ""),
        ({"events": [None]}, ""),
    ],
)
def test_a_bad_span_costs_itself_alone(wrong: dict[str, Any], reason: str) -> None:
    line = {"resourceSpans": [{"scopeSpans": [{"spans": [{**GOOD, **wrong}, GOOD]}]}]}
    groups, said = traces(json.dumps(line))
    assert [Span.FromString(span).name for group in groups for span in group.spans] == ["good"]
    assert len(said) == 1
    assert said[0].startswith(f"a span that is not OTLP: {reason}")


# Sending.


class Collector:
    """An OTLP/HTTP server that keeps what it takes.

    ``answer`` decides for the number of a request how it is answered: with a status and a body.
    """

    def __init__(self, answer: Callable[[int], tuple[int, bytes]] = lambda _number: (200, b"")) -> None:
        self.answer = answer
        self.url = ""
        self.requests: list[ExportTraceServiceRequest] = []
        self.asked = 0

    def take(self, request: HttpRequest) -> HttpAnswer:
        self.asked += 1
        status, answer = self.answer(self.asked)
        if status == 200:
            self.requests.append(ExportTraceServiceRequest.FromString(request.body))
        return HttpAnswer(status, answer)

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource_spans in request.resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]

    def numbers(self) -> list[int]:
        return sorted(int.from_bytes(span.span_id, "big") for span in self.spans())


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    with http_server(found.take, keeps_alive=True) as found.url:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = found.url
        os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf"
        yield found


def span(number: int, **more: Any) -> Span:
    return Span(
        trace_id=number.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        name="replayed",
        start_time_unix_nano=1000,
        end_time_unix_nano=2000,
        **more,
    )


def line(numbers: Sequence[int], padding: int = 0) -> bytes:
    """A line of these spans, each enlarged by this many bytes."""
    big = [KeyValue(key="big", value=AnyValue(string_value="x" * padding))] if padding else []
    return of([span(number, attributes=big) for number in numbers])


def of(spans: Sequence[Span]) -> bytes:
    """A line of these spans."""
    texts_ = [span_json(each.SerializeToString()) for each in spans]
    resource, scope = resource_json(RESOURCE.SerializeToString()), scope_json(SCOPE.SerializeToString())
    return TRACES.line(resource, scope, texts_).encode()


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def test_files_arrive_as_they_are(collector: Collector, tmp_path: Path) -> None:
    """Plain, packed, an object over many lines: each with its Resource and scope, and the line at the end says so."""
    (tmp_path / "a.jsonl").write_bytes(line([1, 2]) + line([3]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line([4])) + gzip.compress(line([5])))
    (tmp_path / "c.jsonl").write_text(json.dumps(json.loads(line([6])), indent=2) + "\n" + line([7]).decode())
    result = replay(tmp_path)
    assert result.exit_code == 0
    assert re.fullmatch(rf"7 spans sent to OTLP {collector.url}/v1/traces in [\d.]+ m?s\n", result.stdout)
    assert result.stderr == ""
    assert collector.numbers() == [1, 2, 3, 4, 5, 6, 7]
    assert span(3) in collector.spans()
    (resource_spans,) = collector.requests[0].resource_spans
    assert resource_spans.resource == RESOURCE
    assert resource_spans.scope_spans[0].scope == SCOPE


def test_what_subfolders_hold_is_sent_as_other_commands_show_it(collector: Collector, tmp_path: Path) -> None:
    """Also beside files of the folder itself; not what is of another signal, or only set aside. Each is sent once."""
    (tmp_path / "a.jsonl").write_bytes(line([1]))
    for number, folder in enumerate(("run-1", "run-2", "metrics", "aside"), 2):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(line([number]))
    result = replay(tmp_path, tmp_path / "run-1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("3 spans sent to OTLP")
    assert collector.numbers() == [1, 2, 3]
    assert replay(tmp_path).stdout.startswith("nothing is left to send")


def test_what_was_sent_is_not_sent_again(collector: Collector, tmp_path: Path) -> None:
    """Run again it sends what has come since, in files that have grown and new ones; with --again everything."""
    growing = tmp_path / "a.jsonl"
    growing.write_bytes(line([1]) + line([2])[:-20])
    assert replay(tmp_path).exit_code == 0
    assert collector.numbers() == [1]
    growing.write_bytes(line([1]) + line([2]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line([3])))
    result = replay(tmp_path)
    assert result.stdout.startswith("2 spans sent")
    assert collector.numbers() == [1, 2, 3]
    result = replay(tmp_path)
    assert (result.exit_code, result.stdout.partition(" to send")[0]) == (0, "nothing is left")
    # One file alone, and the others are not forgotten.
    replay(growing)
    replay(tmp_path)
    assert collector.numbers() == [1, 2, 3]
    assert replay("--again", tmp_path).exit_code == 0
    assert collector.numbers() == [1, 1, 2, 2, 3, 3]


def test_a_new_file_of_the_same_name_is_sent(collector: Collector, tmp_path: Path) -> None:
    """As after a rotation, even one that begins like the last and is longer."""
    file = tmp_path / "spans.jsonl"
    file.write_bytes(line([1]) + line([2]))
    replay(file)
    file.write_bytes(line([1]) + line([3]) + line([4]))
    replay(file)
    assert collector.numbers() == [1, 1, 2, 3, 4]


def test_a_last_line_without_an_end_is_sent_if_it_is_complete(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_bytes(line([1]).rstrip())
    assert replay(file).exit_code == 0
    file.write_bytes(line([1]) + line([2]))
    replay(file)
    assert collector.numbers() == [1, 2]


@pytest.mark.parametrize("name", [*SINKS, "console"])
def test_each_sink_tells_its_destinations_apart(name: str) -> None:
    """Otherwise a replay to a second one would send nothing there."""
    plan = made_plan((name,), "/one", 1, 1, 1)
    variables = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"RAY_TRACING_{name.upper()}_ENDPOINT")
    environ = dict.fromkeys(variables, "http://one:4317")
    one = destination_of(name, plan, environ, print).identity
    assert one == destination_of(name, plan, environ, print).identity
    plan = plan.with_settings(local_dir="/two")
    environ = dict.fromkeys(variables, "http://two:4317")
    assert one != destination_of(name, plan, environ, print).identity


def test_another_destination_gets_everything(collector: Collector, tmp_path: Path) -> None:
    """Another address or tenant does; another token or time-out makes no other destination."""
    (tmp_path / "a.jsonl").write_bytes(line([1]))
    for headers, times in (
        ("authorization=a,tenant=1", 1),
        ("authorization=b,tenant=1", 1),
        ("authorization=b,tenant=2", 2),
        ("authorization=a,tenant=1", 2),
    ):
        os.environ["OTEL_EXPORTER_OTLP_HEADERS"] = headers
        os.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = str(5 + times)
        assert replay(tmp_path).exit_code == 0
        assert collector.numbers() == [1] * times


def test_damage_is_told_and_skipped(collector: Collector, tmp_path: Path) -> None:
    """With the place, and the exit code says that not all was sent."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(line([1]) + b'{"resourceSpans": [\n\n' + line([2]))
    (tmp_path / "b.jsonl.gz").write_bytes(b"not packed")
    result = replay(tmp_path)
    assert result.exit_code == 1
    assert f"warning: {file}, byte {len(line([1]))}: not JSON: " in result.stderr
    assert f"warning: {tmp_path / 'b.jsonl.gz'}: it is not compressed with gzip" in result.stderr
    assert "warning: 2 lines or spans could not be read and were skipped\n" in result.stderr
    assert collector.numbers() == [1, 2]


def test_refused_spans_are_told(collector: Collector, tmp_path: Path) -> None:
    refusal = ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=1, error_message="too old")
    )
    collector.answer = lambda _number: (200, refusal.SerializeToString())
    (tmp_path / "a.jsonl").write_bytes(line([1, 2]))
    result = replay(tmp_path)
    assert result.exit_code == 1
    assert result.stderr == f"warning: 1 span was refused by {collector.url}/v1/traces and is lost: too old\n"
    assert result.stdout.startswith("1 of 2 spans sent to OTLP")


def test_a_server_that_comes_back_gets_everything_once(collector: Collector, tmp_path: Path) -> None:
    """Failures in between are reported, and no accepted span is sent twice."""
    collector.answer = lambda number: (503, b"") if number in {2, 3} else (200, b"")
    (tmp_path / "a.jsonl").write_bytes(b"".join(line([number], 300_000) for number in range(1, 13)))
    result = replay(tmp_path)
    assert result.exit_code == 0
    assert result.stderr.count("retrying for 60 s") == 1
    assert collector.numbers() == list(range(1, 13))


def test_a_server_that_stays_away_ends_it_and_it_can_go_on(collector: Collector, tmp_path: Path) -> None:
    """With the number of spans that were sent; other exporters get theirs."""
    collector.answer = lambda number: (200, b"") if number <= 2 else (503, b"")
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jsonl").write_bytes(b"".join(line([number], 1_000_000) for number in range(1, 6)))
    os.environ["RAY_TRACING_LOCAL_DIR"] = str(tmp_path / "copy")
    result = replay("--retry-for", "0.3", "--exporter", "otlp", "--exporter", "local", source)
    assert result.exit_code == 1
    assert re.search(
        rf"^error: OTLP {collector.url}/v1/traces: .*503.*\. 2 spans sent; run it again to continue from there",
        result.stderr,
        re.MULTILINE,
    )
    assert f"5 spans sent to {tmp_path / 'copy'} in" in result.stdout
    assert sum(file.read_bytes().count(b'"spanId"') for file in (tmp_path / "copy").glob("*.jsonl")) == 5
    again = replay("--retry-for", "0.3", "--json", "--exporter", "otlp", source)
    described = json.loads(again.stdout)
    assert (again.exit_code, described["exporter"], described["is_dry_run"]) == (1, "otlp", False)
    assert (described["spans"], described["lost"]) == (0, 0)
    assert "503" in described["error"]
    collector.answer = lambda _number: (200, b"")
    assert replay("--exporter", "otlp", source).exit_code == 0
    assert collector.numbers() == [1, 2, 3, 4, 5]


def test_a_server_that_asks_for_more_time_than_there_is_ends_it_at_once() -> None:
    """No waiting process is left waiting."""
    from ray_tracing_hooks._ship.replay import _retried
    from ray_tracing_hooks._ship.sink import DeliveryError

    attempts = []

    def busy() -> None:
        attempts.append(1)
        raise DeliveryError("busy", 30)

    with pytest.raises(DeliveryError, match=r"busy \(it asks for a retry after 30 s\)"):
        _retried(5, lambda _text: None, busy)
    assert len(attempts) == 1


PROGRAM = [sys.executable, "-m", "ray_tracing_hooks", "replay"]


@pytest.mark.parametrize(
    ("exporter", "how"), [("otlp", signal.SIGKILL), ("otlp", signal.SIGINT), ("local", signal.SIGKILL)]
)
def test_killed_in_the_middle_it_goes_on(
    collector: Collector, tmp_path: Path, how: signal.Signals, exporter: str
) -> None:
    """Every span arrives, and none twice but those that were on their way; in local files none at all."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    os.environ["RAY_TRACING_LOCAL_DIR"] = str(copy)
    # A server that hangs with the fifth request, which is in the middle of a portion.
    reached, released = threading.Event(), threading.Event()

    def answer(number: int) -> tuple[int, bytes]:
        if number == 5:
            reached.set()
            released.wait(20)
        return 200, b""

    collector.answer = answer
    lines = [line(range(10 * number, 10 * number + 10), 20_000) for number in range(1, 41)]
    (source / "a.jsonl").write_bytes(b"".join(lines[:20]))
    (source / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[20:])))
    expected = list(range(10, 410))
    with subprocess.Popen(
        [*PROGRAM, "--exporter", exporter, str(source)], stderr=subprocess.PIPE, text=True
    ) as process:
        if exporter == "otlp":
            assert reached.wait(20)
        else:
            wait_for(lambda: any(file.stat().st_size > 2_000_000 for file in copy.glob("*.jsonl")))
        process.send_signal(how)
        if exporter == "otlp" and how == signal.SIGKILL:
            process.wait(20)
        released.set()
        _, stderr = process.communicate(timeout=20)
    if how == signal.SIGINT and exporter == "otlp":
        assert process.returncode == 1
        assert "interrupted. " in stderr
    wait_for(lambda: collector.asked == len(collector.requests))
    result = replay("--exporter", exporter, source)
    assert result.exit_code == 0
    if exporter == "otlp":
        times = Counter(collector.numbers())
        assert sorted(times) == expected
        # One portion is of about 50 spans here.
        assert sum(number - 1 for number in times.values()) <= 60
    else:
        written = [
            int(found["spanId"], 16)
            for file in sorted(copy.glob("*.jsonl"))
            for text in file.read_text().splitlines()
            for resource_spans in json.loads(text)["resourceSpans"]
            for scope_spans in resource_spans["scopeSpans"]
            for found in scope_spans["spans"]
        ]
        assert sorted(written) == expected


def wait_for(condition: Callable[[], bool]) -> None:
    """Look again and again, for at most twenty seconds."""
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("waited in vain")


# Spools.


def left_spool(folder: Path, ended: Sequence[int], begun: Sequence[int] = ()) -> None:
    """A spool whose process has ended: some spans have begun only."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        child = os.fork()
    if not child:
        try:
            writer = SpoolWriter(str(folder), segment_bytes=300)
            prefix = writer.scope(RESOURCE.SerializeToString(), SCOPE.SerializeToString()).to_bytes(2, "little")
            for number in begun:
                writer.start(prefix, span(number).SerializeToString()[:-9])
            for number in ended:
                writer.span(prefix, span(number).SerializeToString())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_left_over_spool_is_delivered(collector: Collector, tmp_path: Path) -> None:
    """Spans that were cut off are closed as errors; nothing is removed, and nothing sent again."""
    spool = tmp_path / "session" / "spool"
    spool.parent.mkdir()
    left_spool(spool, range(1, 20), [20])
    before = sorted(spool.iterdir())
    assert len(before) > 1
    result = replay(tmp_path / "session")
    assert result.stdout.startswith("20 spans sent")
    assert collector.numbers() == list(range(1, 21))
    (cut_off,) = (found for found in collector.spans() if found.span_id[-1] == 20)
    assert (cut_off.status.code, cut_off.status.message) == (Status.STATUS_CODE_ERROR, "worker died")
    assert cut_off.end_time_unix_nano > 0
    assert sorted(spool.iterdir()) == sorted([*before, spool / ".replay-otlp.json"])
    assert replay(spool).stdout.startswith("nothing is left to send")
    left_spool(spool, [30])
    replay(spool)
    assert collector.numbers() == [*range(1, 21), 30]


@pytest.mark.parametrize(("alive", "is_seen"), [(1, True), (0, False)])
def test_if_all_processes_died_at_once_a_span_ends_when_the_shipper_last_saw_them(
    collector: Collector, tmp_path: Path, alive: int, is_seen: bool
) -> None:
    """If the shipper has seen fewer alive than have left segments, any of them may have died before."""
    left_spool(tmp_path / "spool", [], [1])
    (segment,) = (tmp_path / "spool").iterdir()
    began = span(1).start_time_unix_nano
    os.utime(segment, ns=(began + 10**9,) * 2)
    status = tmp_path / "spool" / STATUS
    status.write_text(Figures(writers=alive).as_json())
    os.utime(status, ns=(began + 60 * 10**9,) * 2)
    assert replay(tmp_path / "spool").exit_code == 0
    (found,) = collector.spans()
    assert found.end_time_unix_nano == began + (60 if is_seen else 1) * 10**9
    assert "ray.end_estimated" in {each.key for each in found.attributes}


@pytest.mark.parametrize("same", [True, False])
def test_it_begins_where_the_shipper_stopped(collector: Collector, tmp_path: Path, same: bool) -> None:
    """If that was on its way to the same place. Spans that began in segments that are gone are closed in any case."""
    from ray_tracing_hooks._ship.plan import digest, of_delivery

    spool = tmp_path / "spool"
    left_spool(spool, range(1, 20))
    segment, *others = sorted(spool.glob("*.spool"))
    process = segment.name.partition(".")[0]
    parts = [RESOURCE.SerializeToString(), SCOPE.SerializeToString(), span(99).SerializeToString()[:-9]]
    resource, scope, began = (base64.b64encode(part).decode() for part in parts)
    entry = {"sequence": 1, "offset": 0, "openings": [[resource, scope, [began], [""]]], "in_order": False}
    (spool / "progress-otlp.json").write_text(json.dumps({"version": 1, "processes": {process: entry}, "sink": {}}))
    environment = digest(of_delivery(os.environ), ("otlp",)) if same else "another"
    made_plan(("otlp",), "/x", 1, 1, 1, environment=environment).store(str(spool))
    assert others
    assert replay(spool).exit_code == 0
    shipped, complete = count_spans(str(segment))
    assert complete
    assert 0 < shipped < 19
    assert collector.numbers() == [*range(shipped + 1 if same else 1, 20), 99]


def test_a_spool_is_sent_to_its_own_exporter(collector: Collector, tmp_path: Path) -> None:
    """From where its shipper stopped. That was killed after it had written to the file, and before it noted that."""
    spool, spans = tmp_path / "spool", tmp_path / "spans"
    left_spool(spool, range(1, 20))
    plan = made_plan(("local",), str(spans), 1 << 20, 1 << 30, 1, label="node")
    plan.store(str(spool))
    states: list[Mapping[str, Any]] = []
    sink = make_sink("local", SinkContext(plan, {}, states.append, lambda *_: None, {}, pytest.fail))
    encoded = [span(number).SerializeToString() for number in (1, 2)]
    sink.deliver([Batch(RESOURCE.SerializeToString(), SCOPE.SerializeToString(), encoded)])
    sink.close()
    (spool / "progress-local.json").write_text(json.dumps({"processes": {}, "sink": states[-1]}))
    result = replay(spool)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(rf"19 spans sent to {spans} in [\d.]+ [mu]?s\n", result.stdout)
    lines = [text for path in spans.glob("*.jsonl") for text in path.read_text().splitlines()]
    written = [found for text in lines for found in read_back(text)]
    assert sorted(found.span_id[-1] for found in written) == list(range(1, 20))
    assert collector.asked == 0


def test_a_spool_that_has_been_delivered_meanwhile(collector: Collector, tmp_path: Path) -> None:
    """Its shipper removes it, or is about to."""
    plan = made_plan(("otlp",), "/x", 1, 1, 1)
    (tmp_path / "there").mkdir()
    plan.store(str(tmp_path / "there"))
    spools = tmp_path / "ray_tracing_hooks"
    (spools / spool_name("0123456789abcdef", "89abcdef01")).mkdir(parents=True)
    gone = tmp_path / spool_name("0123456789abcdef", "89abcdef01")
    for path in (gone, tmp_path / "there", spools, *spools.iterdir()):
        result = replay(path)
        assert result.exit_code == 0, path
        assert result.stdout.startswith("nothing is left to send")
    assert collector.asked == 0


def test_a_damaged_spool_is_told(collector: Collector, tmp_path: Path) -> None:
    """What was not hit by the damage is delivered."""
    left_spool(tmp_path, [1, 2])
    (segment,) = tmp_path.glob("*.spool")
    segment.write_bytes(segment.read_bytes()[:-4])
    result = replay(tmp_path)
    assert result.exit_code == 1
    assert re.search(r"^warning: \d+ bytes of the spool were damaged and are lost$", result.stderr, re.MULTILINE)
    assert collector.numbers() == [1]


def test_a_spool_with_a_shipper_is_left_to_it(collector: Collector, tmp_path: Path) -> None:
    left_spool(tmp_path / "spool", [1])
    lock = take_lock(str(tmp_path / "spool"))
    assert lock is not None
    said = f"Error: a shipper is running for the spool {str(tmp_path / 'spool')!r} and delivers it"
    try:
        result = replay(tmp_path)
        assert (result.exit_code, result.stderr) == (1, f"{said}\n")
        failing = DestinationFigures("otlp", "traces", "there", is_failing=True, error="it is away")
        (tmp_path / "spool" / STATUS).write_text(Figures(destinations=(failing,)).as_json())
        assert replay(tmp_path).stderr.startswith(f"{said} once it can: it is away; run this command again once Ray")
    finally:
        os.close(lock)
    assert collector.asked == 0


@pytest.mark.parametrize("place", [0, 1])
def test_a_file_that_no_process_can_have_written_holds_up_no_other(
    place: int, collector: Collector, tmp_path: Path
) -> None:
    """A spool may come from anywhere."""
    left_spool(tmp_path / "spool", range(1, 21))
    large = sorted((tmp_path / "spool").glob("*.spool"))[place]
    lost = count_spans(str(large), 0, time.monotonic() + 60)[0]
    os.truncate(large, MAX_SEGMENT + 1)
    result = replay(tmp_path / "spool")
    assert 0 < lost < 20
    assert len(collector.numbers()) == 20 - lost
    assert "is skipped: it is larger than 64 MiB" in result.stderr


def test_spans_of_a_living_process_are_sent_as_far_as_they_ended(collector: Collector, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o700)
    writer = SpoolWriter(str(spool))
    prefix = writer.scope(RESOURCE.SerializeToString(), SCOPE.SerializeToString()).to_bytes(2, "little")
    writer.start(prefix, span(1).SerializeToString()[:-9])
    writer.span(prefix, span(2).SerializeToString())
    assert replay(spool).exit_code == 0
    assert collector.numbers() == [2]
    writer.span(prefix, span(1).SerializeToString())
    writer.close()
    assert replay(spool).exit_code == 0
    assert collector.numbers() == [1, 2]


# The command.


def test_it_reads_without_sending(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line([1, 2]))
    result = replay("--dry-run", tmp_path)
    assert (result.exit_code, result.stdout) == (
        0,
        f"2 spans would be sent to OTLP {collector.url}/v1/traces\n",
    )
    assert collector.asked == 0
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a.jsonl"]


@pytest.mark.parametrize(
    ("variables", "exporter", "problem", "counts"),
    [
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "otlp", "warning: OTEL_EXPORTER_OTLP_TIMEOUT='soon' is ignored", True),
        ({"RAY_TRACING_JAEGER_PROTOCOL": "no"}, "jaeger", "warning: RAY_TRACING_JAEGER_PROTOCOL='no' is ignored", True),
        ({"RAY_TRACING_JAEGER_PROTOCOL": "thrift-http"}, "jaeger", "error: Jaeger http://localhost:14268", False),
        ({"RAY_TRACING_LOCAL_DIR": "/dev/null"}, "local", "error: cannot write spans to '/dev/null'", False),
        ({"OTEL_EXPORTER_ZIPKIN_ENDPOINT": "no"}, "broken", "error: broken: the exporter 'broken' (", False),
    ],
)
def test_a_dry_run_tells_what_is_wrong_with_the_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    exporter: str,
    problem: str,
    counts: bool,
) -> None:
    """With exit code 2. What cannot work at all is not counted."""
    from importlib.metadata import EntryPoint

    from ray_tracing_hooks._ship.sinks import entry_point

    entry = EntryPoint("broken", "no_such_module:Exporter", "opentelemetry_traces_exporter")
    find = entry_point._find
    monkeypatch.setattr(entry_point, "_find", lambda name: entry if name == "broken" else find(name))
    # What Python keeps of a module that cannot be imported; another test may have imported it.
    monkeypatch.setitem(sys.modules, "ray_tracing_hooks._formats.jaeger_thrift", None)
    monkeypatch.delattr("ray_tracing_hooks._formats.jaeger_thrift", raising=False)
    (tmp_path / "a.jsonl").write_bytes(line([1, 2]))
    os.environ.update(variables)
    result = replay("--dry-run", "--exporter", exporter, tmp_path)
    assert result.exit_code == 2
    (said,) = result.stderr.splitlines()
    assert said.startswith(problem)
    assert result.stdout.startswith("2 spans would be sent to ") == counts
    assert bool(result.stdout) == counts


def test_a_dry_run_takes_no_hint_for_a_mistake(tmp_path: Path) -> None:
    """An address without a scheme is followed."""
    (tmp_path / "a.jsonl").write_bytes(line([1, 2]))
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "localhost:4318"
    os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf"
    result = replay("--dry-run", tmp_path)
    assert "has no scheme" in result.stderr
    assert result.exit_code == 0


def test_the_exporters_are_those_of_the_variable(collector: Collector, tmp_path: Path) -> None:
    """Any installed one can be among them. What `console` prints is all that is printed."""
    (tmp_path / "a.jsonl").write_bytes(line([1]))
    os.environ["OTEL_PROPAGATORS"] = "nonsense"
    os.environ["RAY_TRACING_EXPORTERS"] = "otlp,console"
    done = subprocess.run([*PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    first, _, printed = done.stdout.partition("\n")
    assert first.startswith("1 span sent to OTLP")
    assert json.loads(printed)["name"] == "replayed"
    assert "1 span sent to console in" in done.stderr
    assert collector.numbers() == [1]


@pytest.mark.parametrize("progress", ["", "[]", '{"x": 5}', "{}"])
def test_progress_that_makes_no_sense_is_as_none(collector: Collector, tmp_path: Path, progress: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(line([1]))
    (tmp_path / ".replay-otlp.json").write_text(progress)
    assert replay(tmp_path).exit_code == 0
    assert collector.numbers() == [1]


def test_two_replays_of_a_folder_do_not_run_at_once(collector: Collector, tmp_path: Path) -> None:
    from ray_tracing_hooks._ship.replay import held

    (tmp_path / "a.jsonl").write_bytes(line([1]))
    with held(str(tmp_path), is_spool=False):
        result = replay(tmp_path)
    assert (result.exit_code, result.stderr) == (1, f"Error: another replay is running in {str(tmp_path)!r}\n")
    assert collector.asked == 0


def test_spans_with_an_attribute_go_with_their_ancestors(collector: Collector, tmp_path: Path) -> None:
    """Those may be in other files, and come later. Of what was not selected, another replay sends all."""
    key = [KeyValue(key="gen_ai.operation.name", value=AnyValue(string_value="chat"))]
    parents = {1: 0, 2: 1, 3: 2, 4: 3, 5: 2}
    made = [
        span(number, parent_span_id=parent.to_bytes(8, "big") if parent else b"", attributes=key if number == 3 else [])
        for number, parent in parents.items()
    ]
    for each in made:
        each.trace_id = b"t" * 16
    (tmp_path / "other").mkdir()
    (tmp_path / "a.jsonl").write_bytes(of(made[2:]))
    (tmp_path / "other" / "b.jsonl").write_bytes(of(made[:2]))
    result = replay(tmp_path, "--attribute", "gen_ai.*")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("3 spans sent to OTLP")
    assert collector.numbers() == [1, 2, 3]
    assert replay(tmp_path, "--attribute", "gen_ai.*").stdout.startswith("nothing is left to send")
    assert replay(tmp_path).stdout.startswith("5 spans sent")
    result = replay(tmp_path, "--attribute", "llm.*")
    assert (result.exit_code, "no span has an attribute 'llm.*'" in result.stderr) == (1, True)


def test_wrong_use_is_told(collector: Collector, tmp_path: Path) -> None:
    """With exit code 2; a path without spans, or that is not there, is not an error of use."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(line([1]))
    (tmp_path / "x.000000.spool").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    os.environ["RAY_TRACING_LOCAL_DIR"] = str(tmp_path)
    known = ", ".join(SINKS)
    for arguments, code, text in (
        ([tmp_path / "none"], 1, f"{str(tmp_path / 'none')!r} does not exist"),
        ([tmp_path / "x.000000.spool"], 1, "is part of a spool: expected the spool folder"),
        (["--exporter", "oltp", file], 2, f"unknown exporter 'oltp': expected one of {known}, or an"),
        (["--exporter", "local", file], 2, "which is being replayed: expected another RAY_TRACING_LOCAL_DIR"),
        ([tmp_path / "empty"], 1, "no *.jsonl, *.jsonl.gz or *.spool there"),
        ([], 2, "Missing argument"),
    ):
        result = replay(*arguments)
        assert result.exit_code == code
        assert text in " ".join(result.stderr.split())
    assert collector.asked == 0
