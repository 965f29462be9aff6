"""With ``events`` a log record is an event of the span that it is made in."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stand_ins
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.sdk.trace import TracerProvider
from proto_attributes import attributes

from ray_tracing_hooks import _guard, _logs
from ray_tracing_hooks._logs.described import severity_number
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._spool import layout
from ray_tracing_hooks._spool.reader import SegmentReader, iterate

MISSING = "[Errno 2] No such file or directory: 'no/such/file'"
TRACE_ID = bytes(range(1, 17))


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """The recorder of a process in which log records become events."""
    recorder = stand_ins.recorder(tmp_path)
    end = _logs.begin(frozenset({"events"}), stand_ins.joined(recorder))
    yield recorder
    end()


@pytest.fixture
def logger() -> logging.Logger:
    return logging.Logger("tests.events")  # noqa: LOG001  pytest has handlers at those that the module knows


def begin(recorder: Recorder) -> RecordedSpan:
    return recorder.start(Template("work", 5, {}), TRACE_ID, 1, None)


def recorded(folder: Path) -> ProtoSpan:
    """The one span that has ended."""
    payloads = [
        payload
        for _, paths, _ in iterate(str(folder))
        for path in paths
        for kind, payload, _ in SegmentReader(path).read()
        if kind == layout.SPAN
    ]
    return ProtoSpan.FromString(payloads[0][2:])


def bodies(span: ProtoSpan) -> list[str]:
    return [attributes(event)["log.body"] for event in span.events]


def test_a_record_is_an_event_with_what_it_says(tmp_path: Path, recorder: Recorder, logger: logging.Logger) -> None:
    before = time.time_ns()
    with trace.use_span(begin(recorder), end_on_exit=True):
        logger.warning("the %dth of %s", 5, "many")
        try:
            open("no/such/file").close()
        except FileNotFoundError:
            logger.exception("failed", stack_info=True)
    logger.info("in no span")
    first, second = recorded(tmp_path).events
    assert {first.name, second.name} == {"log"}
    assert before - 1000 <= first.time_unix_nano <= time.time_ns()
    said = attributes(first)
    assert said.pop("code.line.number") > 0
    assert said == {
        "log.severity_number": 13,
        "log.severity_text": "WARNING",
        "log.body": "the 5th of many",
        "otel.scope.name": "tests.events",
        "code.file.path": __file__,
        "code.function.name": "test_a_record_is_an_event_with_what_it_says",
    }
    failure = attributes(second)
    assert (failure["exception.type"], failure["exception.message"]) == ("FileNotFoundError", MISSING)
    assert failure["exception.stacktrace"].endswith(f"FileNotFoundError: {MISSING}\n")
    assert "in test_a_record_is_an_event_with_what_it_says" in failure["code.stacktrace"]


def test_spans_of_the_sdk_get_them_too(recorder: Recorder, logger: logging.Logger) -> None:
    span: Any = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("user's")
    with trace.use_span(span):
        logger.error("said")
    (event,) = span.events
    assert (event.name, event.attributes["log.body"], event.attributes["log.severity_number"]) == ("log", "said", 17)


def test_in_a_driver_the_root_span_gets_those_of_all_threads(tmp_path: Path, logger: logging.Logger) -> None:
    """But not those that are made within a span that is not recorded."""
    recorder = stand_ins.recorder(tmp_path)
    root = begin(recorder)
    end = _logs.begin(frozenset({"events"}), stand_ins.joined(recorder, lambda: root))
    logger.info("in no other")
    unsampled = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(0))
    with trace.use_span(trace.NonRecordingSpan(unsampled)):
        logger.info("unsampled")
    end()
    root.end()
    assert bodies(recorded(tmp_path)) == ["in no other"]


def test_below_the_least_level_nothing_is_recorded(tmp_path: Path, logger: logging.Logger) -> None:
    recorder = stand_ins.recorder(tmp_path)
    end = _logs.begin(frozenset({"events"}), stand_ins.joined(recorder), least="WARNING")
    with trace.use_span(begin(recorder), end_on_exit=True):
        logger.info("too little")
        logger.warning("enough")
    end()
    assert bodies(recorded(tmp_path)) == ["enough"]


class Talkative:
    """Its text is made by code that logs."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __str__(self) -> str:
        self._logger.warning("made")
        return "text"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_whatever_is_logged_the_program_goes_on(
    tmp_path: Path, recorder: Recorder, logger: logging.Logger, reports: list[str]
) -> None:
    """What cannot be shown is said so, what is long is cut, and what is logged meanwhile is no event."""
    with trace.use_span(begin(recorder), end_on_exit=True):
        logger.info("%s", Hostile())
        logger.info(Hostile())
        logger.info("%d things", "two")
        logger.info("x" * 10_000_000)
        logger.info(Talkative(logger))
        logging.getLogger(_guard.logger.name).warning("a report of ours")
        logger.handle(logging.makeLogRecord({"msg": "of another process", "process": 1, "levelno": 30}))
        logger.handle(logging.makeLogRecord({"msg": "odd", "levelno": 30, "exc_info": True, "pathname": Hostile()}))
    span = recorded(tmp_path)
    first, second, third, long, talked, *rest = bodies(span)
    assert (first, third, talked) == ("%s", "%d things", "text")
    assert second.endswith("Hostile that cannot be shown>")
    assert 65536 <= len(long) < 66000
    assert len(rest) <= 1, "of the odd one as much as there is"
    assert all("tests" not in report for report in reports)


def test_the_limits_of_a_span_hold(tmp_path: Path, recorder: Recorder, logger: logging.Logger) -> None:
    with trace.use_span(begin(recorder), end_on_exit=True):
        for number in range(200):
            logger.info(number)
    span = recorded(tmp_path)
    assert bodies(span) == [str(number) for number in range(72, 200)], "the newest stay"
    assert span.dropped_events_count == 72


@pytest.mark.parametrize(
    ("level", "number"),
    [(-1, 0), (0, 0), (1, 1), (5, 4), (10, 5), (12, 7), (19, 8), (20, 9), (30, 13), (40, 17), (50, 21), (99, 24)],
)
def test_levels_have_their_numbers_in_the_log_data_model(level: int, number: int) -> None:
    assert severity_number(level) == number
