"""With ``otlp`` log records are OTLP's: written to the spool by their process, and delivered beside the spans."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import stand_ins
from collector import collector as listening
from google.protobuf import json_format
from grpc_server import grpc_server
from http_server import Answer, Request, http_server, port_of
from opentelemetry import trace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from plans import made_plan
from protobuf_json import attributes, with_protobuf_ids
from recording import PRELUDE
from shipping import Node, until

from ray_tracing_hooks import _logs
from ray_tracing_hooks._formats.otlp import LOGS
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._logs import severity_number
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._settings.table import SINKS
from ray_tracing_hooks._ship.plan import take_log_records
from ray_tracing_hooks._ship.registry import takes
from ray_tracing_hooks._ship.sink import Batch, RefusesAllError, SinkContext
from ray_tracing_hooks._ship.sinks import otlp
from ray_tracing_hooks._spool import layout, reader

PROTOCOLS = ["grpc", "http/protobuf", "http/json"]
TRACE_ID = bytes(range(1, 17))

Recording = tuple[Recorder, Callable[[], list[tuple[str, LogRecord]]]]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    """The recorder of a process in which log records are written, and what gives them with their scopes."""
    recorder = stand_ins.recorder(tmp_path)
    end = _logs.begin(frozenset({"otlp"}), stand_ins.joined(recorder, folder=str(tmp_path)))
    yield recorder, lambda: written(tmp_path)
    end()


@pytest.fixture
def logger() -> logging.Logger:
    return logging.Logger("tests.records")  # noqa: LOG001  pytest has handlers at those that the module knows


def written(folder: Path) -> list[tuple[str, LogRecord]]:
    """The log records in a spool, as protobuf reads them, with the names of their scopes."""
    found = []
    for _, paths, _ in reader.iterate(str(folder)):
        for path in paths:
            scopes = {}
            for kind, payload, _ in reader.SegmentReader(path).read():
                if kind == layout.SCOPE:
                    scopes[payload[:2]] = InstrumentationScope.FromString(payload[4:]).name
                elif kind == layout.LOG:
                    found.append((scopes[payload[:2]], LogRecord.FromString(payload[2:])))
    return found


def begin(recorder: Recorder) -> RecordedSpan:
    return recorder.start(Template("work", 5, {}), TRACE_ID, 1, None)


def test_a_log_record_says_all_that_logging_knows(recording: Recording, logger: logging.Logger) -> None:
    recorder, found = recording
    before = time.time_ns()
    with trace.use_span(begin(recorder)) as span:
        try:
            open("no/such/file").close()
        except FileNotFoundError:
            logger.exception("failed %d times", 2, extra={"attempt": 2, "tags": ["a", "b"], "trace_id": "own"})
    logger.info("outside")
    (scope, record), (_, outside) = found()
    context = span.get_span_context()
    assert scope == "tests.records"
    assert (record.trace_id, record.span_id) == (TRACE_ID, context.span_id.to_bytes(8, "big"))
    assert record.flags == 1
    assert (record.severity_number, record.severity_text) == (17, "ERROR")
    assert record.body.string_value == "failed 2 times"
    assert before - 1000 <= record.time_unix_nano <= record.observed_time_unix_nano <= time.time_ns()
    said = attributes(record)
    assert said["code.file.path"] == __file__
    assert said["code.function.name"] == "test_a_log_record_says_all_that_logging_knows"
    assert said["code.line.number"] > 0
    assert (said["thread.id"], said["thread.name"]) == (threading.get_ident(), "MainThread")
    assert said["exception.type"] == "FileNotFoundError"
    assert "no/such/file" in said["exception.message"]
    assert "Traceback" in said["exception.stacktrace"]
    assert said["attempt"] == 2
    assert [value.string_value for value in said["tags"].values] == ["a", "b"]
    assert not {"message", "args", "msg", "trace_id"} & {*said}
    assert (outside.trace_id, outside.span_id, outside.flags) == (b"", b"", 0)
    assert outside.body.string_value == "outside"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_whatever_is_logged_costs_itself_alone(
    recording: Recording, logger: logging.Logger, reports: list[str]
) -> None:
    """What cannot be shown is left out and counted; what is long is cut."""
    _, found = recording
    logger.info("%s", Hostile(), extra={"hostile": Hostile(), "fine": 1})
    logger.info("y" * 10_000_000, extra={f"key {number}": "x" * 100_000 for number in range(200)})
    logger.handle(logging.makeLogRecord({"msg": "odd", "name": Hostile(), "levelno": 30}))
    logging.getLogger("ray.ray_tracing_hooks").warning("a report of ours")
    logger.info("goes on")
    (_, first), (_, long), *_, (_, last) = found()
    assert first.body.string_value == "%s"
    assert (attributes(first).get("fine"), first.dropped_attributes_count) == (1, 1)
    assert len(long.body.string_value) < 66_000
    assert long.dropped_attributes_count == 72
    assert max(len(value) for key, value in attributes(long).items() if key.startswith("key")) == 65536
    assert last.body.string_value == "goes on"
    assert len(reports) <= 1


def test_records_below_the_lowest_level_are_not_written(tmp_path: Path, logger: logging.Logger) -> None:
    end = _logs.begin(
        frozenset({"otlp"}), stand_ins.joined(stand_ins.recorder(tmp_path), str(tmp_path)), least="WARNING"
    )
    logger.info("too little")
    logger.warning("enough")
    end()
    assert [record.body.string_value for _, record in written(tmp_path)] == ["enough"]


class Talkative:
    """Its text is made by code that logs."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __str__(self) -> str:
        self._logger.warning("made")
        return "text"


def test_what_is_logged_while_a_record_is_written_is_not_written(recording: Recording, logger: logging.Logger) -> None:
    """And neither are the records of other processes."""
    _, found = recording
    logger.info(Talkative(logger))
    logger.handle(logging.makeLogRecord({"msg": "of another process", "process": 1, "levelno": 30}))
    assert [record.body.string_value for _, record in found()] == ["text"]


@pytest.mark.parametrize(
    ("level", "number"),
    [(-1, 0), (0, 0), (1, 1), (5, 4), (10, 5), (12, 7), (19, 8), (20, 9), (30, 13), (40, 17), (50, 21), (99, 24)],
)
def test_levels_have_their_numbers_in_the_log_data_model(level: int, number: int) -> None:
    assert severity_number(level) == number


def test_any_number_of_loggers(recording: Recording) -> None:
    """They are scopes as long as these are few; then the name is an attribute."""
    _, found = recording
    for number in range(300):
        logging.Logger(f"logger {number}").info("said")  # noqa: LOG001  as above
    told = [scope or attributes(record)["otel.scope.name"] for scope, record in found()]
    assert told == [f"logger {number}" for number in range(300)]
    assert len({scope for scope, _ in found()}) <= 257


SAYING = """
import logging
from ray_tracing_hooks import _logs
_logs.begin(frozenset({"otlp"}), _logs.Correlation(recorder, writer, encode.resource(known)))
logger = logging.Logger("saying")
with trace.use_span(begin("work"), end_on_exit=True):
    for number in range(100):
        logger.info(number)
if not (child := os.fork()):
    logger.info("forked")
    os._exit(0)
os.waitpid(child, 0)
logger.info("last words")
os.kill(os.getpid(), signal.SIGKILL)
"""


def delivered(node: Node) -> list[tuple[ResourceLogs, ScopeLogs, LogRecord]]:
    """What the local files of log records hold, as protobuf reads it."""
    return [
        (resource_logs, scope_logs, record)
        for file in sorted((node.out / "logs").glob("*.jsonl"))
        for line in file.read_text().splitlines()
        for resource_logs in json_format.ParseDict(with_protobuf_ids(json.loads(line)), LogsData()).resource_logs
        for scope_logs in resource_logs.scope_logs
        for record in scope_logs.log_records
    ]


def test_what_a_killed_process_has_logged_is_delivered_beside_its_spans(node: Node) -> None:
    """Once, in files of their own; what reads spans passes over it, and the spool is empty in the end."""
    node.plan = node.make_plan(log_records=True)
    node.start()
    program = subprocess.run(
        [sys.executable, "-c", PRELUDE + SAYING, str(node.spool), str(1 << 24)], timeout=60, check=False
    )
    assert program.returncode == -signal.SIGKILL
    _, quality = read(span_files([str(node.spool)]))
    assert quality.bad_lines == 0
    assert node.flush(until_writers_end=True).done
    found = delivered(node)
    bodies = [record.body.string_value for _, _, record in found]
    assert sorted(bodies) == sorted([*map(str, range(100)), "forked", "last words"])
    pids = {
        record.body.string_value: item.value.int_value
        for resource_logs, _, record in found
        for item in resource_logs.resource.attributes
        if item.key == "process.pid"
    }
    assert pids["forked"] != pids["last words"] == pids["0"]
    (span,) = node.spans()
    assert {record.span_id.hex() for _, _, record in found if record.span_id} == {span["spanId"]}
    assert {scope_logs.scope.name for _, scope_logs, _ in found} == {"saying"}
    assert (node.out / "logs").stat().st_mode & 0o777 == 0o700
    assert [span.name for span in read(span_files([str(node.out)]))[0]] == ["work"]
    until(lambda: not node.segments(), "the segments of the ended processes are removed")
    assert not [line for line in node.log().splitlines() if "no sense" in line or "damaged" in line]


def test_without_log_records_in_the_plan_there_is_nothing_of_them(node: Node) -> None:
    """And what another process has written of them is passed over."""
    node.start()
    end = _logs.begin(frozenset({"otlp"}), stand_ins.joined(stand_ins.recorder(node.spool), folder=str(node.spool)))
    logging.Logger("tests").info("said")  # noqa: LOG001  as above
    end()
    node.writer().do("span 1")
    assert node.flush().done
    assert node.numbers() == [1]
    assert not (node.out / "logs").exists()
    assert "no sense" not in node.log()


@contextmanager
def collecting(protocol: str, requests: list[ExportLogsServiceRequest], headers: list[dict[str, str]]) -> Iterator[int]:
    """The port of a collector that takes log records, as the official code reads them, and says that it lost one."""
    partial = ExportLogsPartialSuccess(rejected_log_records=1, error_message="one is odd")
    answer = ExportLogsServiceResponse(partial_success=partial)

    def by_grpc(body: bytes, context: grpc.ServicerContext) -> bytes:
        headers.append({key: str(value) for key, value in context.invocation_metadata()})
        requests.append(ExportLogsServiceRequest.FromString(body))
        return answer.SerializeToString()

    def by_http(request: Request) -> Answer:
        assert request.path == "/v1/logs"
        headers.append(request.headers)
        if protocol == "http/json":
            logs = with_protobuf_ids(json.loads(request.body))
            requests.append(json_format.ParseDict(logs, ExportLogsServiceRequest()))
            return Answer(body=json_format.MessageToJson(answer).encode())
        requests.append(ExportLogsServiceRequest.FromString(request.body))
        return Answer(body=answer.SerializeToString())

    if protocol == "grpc":
        with grpc_server("opentelemetry.proto.collector.logs.v1.LogsService/Export", by_grpc) as port:
            yield port
    else:
        with http_server(by_http) as url:
            yield port_of(url)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_collector_gets_them_at_the_endpoint_for_logs(protocol: str, tmp_path: Path) -> None:
    """By the variables for logs, then the general ones; those for traces are of no concern."""
    records = [
        LogRecord(time_unix_nano=1, body=AnyValue(string_value=str(number)), trace_id=TRACE_ID, flags=1)
        for number in range(3)
    ]
    batch = Batch(
        Resource(attributes=[KeyValue(key="k", value=AnyValue(string_value="v"))]).SerializeToString(),
        InstrumentationScope(name="logger").SerializeToString(),
        [record.SerializeToString() for record in records],
    )
    requests: list[ExportLogsServiceRequest] = []
    headers: list[dict[str, str]] = []
    counted: list[tuple[str, int]] = []
    with collecting(protocol, requests, headers) as port:
        environ = {
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=general",
            "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "x-key=of-logs",
        }
        plan = made_plan(("otlp",), str(tmp_path), 1, 1, 1, log_records=True)
        said: list[str] = []
        context = SinkContext(
            plan,
            {},
            lambda _: None,
            lambda text, count: counted.append((text, count)),
            environ,
            said.append,
            signal=LOGS,
        )
        sink = otlp.make(context)
        sink.deliver([batch])
        sink.close()
    (request,) = requests
    (resource_logs,) = request.resource_logs
    (scope_logs,) = resource_logs.scope_logs
    assert resource_logs.resource.attributes[0].key == "k"
    assert scope_logs.scope.name == "logger"
    assert list(scope_logs.log_records) == records
    assert headers[0]["x-key"] == "of-logs"
    refused = [(text, count) for text, count in counted if count]
    assert len(refused) == 1
    assert refused[0][0].startswith("{count} log records were refused by ")
    assert refused[0][1] == 1
    assert said == []


def test_log_records_wait_for_credentials_and_not_for_a_collector_that_takes_none(tmp_path: Path) -> None:
    """Many take spans and no log records, which would fill the spool."""
    record = LogRecord(time_unix_nano=1, body=AnyValue(string_value="text")).SerializeToString()
    counted: list[tuple[str, int]] = []
    with listening() as server:
        environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        plan = made_plan(("otlp",), str(tmp_path), 1, 1, 1, log_records=True)
        context = SinkContext(
            plan, {}, lambda _: None, lambda text, number: counted.append((text, number)), environ, lambda _: None, LOGS
        )
        sink = otlp.make(context)
        server.answers["/v1/logs"] = 404
        sink.deliver([Batch(b"", b"", [record])])
        server.answers["/v1/logs"] = 401
        with pytest.raises(RefusesAllError, match=r"refuses all log records, which wait: HTTP 401 Unauthorized"):
            sink.deliver([Batch(b"", b"", [record])])
        sink.close()
    assert [number for _, number in counted if number] == [1]


@pytest.mark.parametrize("sink", SINKS)
def test_log_records_are_recorded_for_every_sink_that_takes_them(sink: str) -> None:
    """A process knows that without the sink's module."""
    assert take_log_records((sink,)) is takes(sink, LOGS)
