"""Log records that are made within a span have its ids, and nothing else about logging changes."""

from __future__ import annotations

import io
import logging
import logging.handlers
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stand_ins
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from ray_tracing_hooks import _logs
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import Parent, RecordedSpan

IDS = ("trace_id", "span_id", "trace_flags")
PARENT = Parent(bytes(range(1, 17)), bytes(range(1, 9)), 1, None, remote=True)


class Kept(logging.Handler):
    """Keeps the records that come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """The recorder of a process in which log records get ids."""
    recorder = stand_ins.recorder(tmp_path)
    end = _logs.begin(frozenset({"ids"}), stand_ins.joined(recorder))
    yield recorder
    end()


@pytest.fixture
def logger() -> logging.Logger:
    return logging.Logger("tests.logs")  # noqa: LOG001  pytest has handlers at those that the module knows


@pytest.fixture
def kept(logger: logging.Logger) -> Kept:
    handler = Kept()
    logger.addHandler(handler)
    return handler


def begin(recorder: Recorder, flags: int = 1) -> RecordedSpan:
    return recorder.start(Template("work", 5, {}), PARENT.trace_id, flags, PARENT)


def ids(record: logging.LogRecord) -> tuple[Any, ...]:
    return tuple(vars(record).get(name) for name in IDS)


def ids_of(span: trace.Span) -> tuple[str, str, str]:
    context = span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", f"{context.trace_flags:02x}"


def remote(flags: int) -> trace.Span:
    return trace.NonRecordingSpan(Parent(bytes(15) + b"\x07", bytes(7) + b"\x05", flags, None, True).span_context())


def test_a_record_has_the_ids_of_the_span_that_it_is_made_in(
    recorder: Recorder, logger: logging.Logger, kept: Kept
) -> None:
    """Whatever kind of span that is. A record that is made outside of spans has no attribute more."""
    of_sdk = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("user's")
    for span in (begin(recorder), of_sdk, remote(1), remote(0)):
        with trace.use_span(span):
            logger.info("inside")
        assert ids(kept.records[-1]) == ids_of(span)
    logger.info("outside")
    with trace.use_span(trace.INVALID_SPAN):
        logger.info("in no span")
    assert not {*IDS} & {*vars(kept.records[-1]), *vars(kept.records[-2])}


def test_in_a_driver_the_root_span_counts_in_every_thread(
    recorder: Recorder, logger: logging.Logger, kept: Kept
) -> None:
    root = begin(recorder)
    recorder.fallback = root.as_parent()
    thread = threading.Thread(target=logger.info, args=("in a thread",))
    thread.start()
    thread.join()
    with trace.use_span(begin(recorder)) as span:
        logger.info("within another")
    assert [ids(record) for record in kept.records] == [ids_of(root), ids_of(span)]


class Own(logging.Logger):
    """A logger that takes ``extra`` in itself, as strictly as ``logging`` does."""

    def makeRecord(self, *args: Any, extra: Any = None, **kwargs: Any) -> logging.LogRecord:  # noqa: N802  its name
        *args_, extra, sinfo = args if len(args) == 10 else (*args, extra, None)
        record = super().makeRecord(*args_, None, sinfo, **kwargs)  # type: ignore[call-arg]
        for key, value in (extra or {}).items():
            if key in vars(record):
                raise KeyError(key)
            setattr(record, key, value)
        return record

    def handle(self, record: logging.LogRecord) -> None:
        """As the loggers of absl do."""
        if self.filter(record):
            self.callHandlers(record)


@pytest.mark.parametrize("kind", [logging.Logger, Own])
def test_what_the_program_says_itself_wins(recorder: Recorder, kind: type[logging.Logger]) -> None:
    """By ``extra``, by a record factory and by a filter; and none of them fails."""
    own, kept = kind("own"), Kept()
    own.addHandler(kept)

    def say(**arguments: Any) -> tuple[Any, ...]:
        with trace.use_span(begin(recorder)):
            own.warning("said", **arguments)
        return ids(kept.records.pop())

    assert say(extra={"trace_id": 7}) == (7, None, None), "and ours are not mixed with it"
    assert say(extra={"other": 7})[0] == PARENT.trace_id.hex()
    before = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        record.trace_id, record.span_id = "of the factory", "too"
        return record

    logging.setLogRecordFactory(factory)
    try:
        assert say() == ("of the factory", "too", None)
    finally:
        logging.setLogRecordFactory(before)

    def of_filter(record: logging.LogRecord) -> bool:
        record.trace_id = "of the filter"
        return True

    own.addFilter(of_filter)
    assert say()[0] == "of the filter"


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("%", "%(message)s [%(trace_id)s %(span_id)s]"),
        ("{", "{message} [{trace_id} {span_id}]"),
        ("$", "$message [$trace_id ${span_id}]"),
    ],
)
def test_a_format_that_names_ids_does_for_records_without(
    recorder: Recorder, logger: logging.Logger, kept: Kept, style: Any, text: str
) -> None:
    """They are empty there; an unknown name raises the same error as without tracing."""
    with trace.use_span(begin(recorder)) as span:
        logger.info("inside")
    logger.info("outside")
    logger.info("own", extra={"trace_id": 7})
    formatter = logging.Formatter(text, style=style)
    trace_id, span_id, _ = ids_of(span)
    said = [formatter.format(record) for record in kept.records]
    assert said == [f"inside [{trace_id} {span_id}]", "outside [ ]", "own [7 ]"]
    assert "trace_id" not in vars(kept.records[1])
    wrong = logging.Formatter(text.replace("message", "nobody"), style=style)
    for record in kept.records:
        with pytest.raises(ValueError, match="not found in record: 'nobody'"):
            wrong.format(record)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken out of a traceback there")
def test_what_logging_says_of_failures_shows_nothing_of_ours(
    recorder: Recorder, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the stack that it prints where a handler fails, nor the traceback of a filter's error."""
    logger.addHandler(logging.StreamHandler(io.StringIO()))

    def texts() -> tuple[str, str]:
        with trace.use_span(begin(recorder)):
            logger.info("%d", "no number")

        def fail(_record: logging.LogRecord) -> bool:
            raise RuntimeError("no")

        logger.addFilter(fail)
        with pytest.raises(RuntimeError) as raised:
            logger.info("filtered")
        logger.removeFilter(fail)
        logger.handlers[0].setFormatter(logging.Formatter("%(message)d"))
        logger.info("formatted")
        logger.handlers[0].setFormatter(None)
        return capsys.readouterr().err, "".join(traceback.format_exception(raised.value))

    found = []
    for _ in range(2):
        found.append(texts())
        _logs.begin(frozenset(), stand_ins.joined(recorder))()
    shown, raised = found[0]
    assert shown.count("Call stack:") == 2
    assert "ray_tracing_hooks" not in shown + raised
    assert found[1] == found[0], "as without us"


def test_logging_is_left_as_it_was(tmp_path: Path, logger: logging.Logger, kept: Kept) -> None:
    recorder = stand_ins.recorder(tmp_path)
    before = {**vars(logging.Logger)}, {**vars(logging.PercentStyle)}, logging.getLogRecordFactory()
    for _ in range(2):  # as two connections in a row
        end = _logs.begin(frozenset({"ids"}), stand_ins.joined(recorder))
        assert {**vars(logging.Logger)} != before[0]
        end()
        assert ({**vars(logging.Logger)}, {**vars(logging.PercentStyle)}, logging.getLogRecordFactory()) == before
    with trace.use_span(begin(recorder)):
        logger.info("untraced")
    assert ids(kept.records[0]) == (None, None, None)


def test_what_others_replace_meanwhile_stays(
    tmp_path: Path, logger: logging.Logger, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is below it does nothing more; when it begins again it is there once."""
    recorder = stand_ins.recorder(tmp_path)
    end = _logs.begin(frozenset({"ids"}), stand_ins.joined(recorder))
    ours, calls = logging.Logger.filter, []

    def theirs(self: logging.Logger, record: logging.LogRecord) -> Any:
        calls.append(record.getMessage())
        return ours(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(logging.Logger, "filter", theirs)
        end()
        with trace.use_span(begin(recorder)) as span:
            logger.info("untraced")
            end = _logs.begin(frozenset({"ids"}), stand_ins.joined(recorder))
            logger.info("traced")
    assert calls == ["untraced", "traced"]
    assert [ids(record) for record in kept.records] == [(None, None, None), ids_of(span)]
    end()
    assert "filter" not in vars(logging.Logger)


def test_a_fault_of_ours_costs_no_log_line(
    recorder: Recorder, logger: logging.Logger, kept: Kept, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a span of another library's that cannot say who it is."""

    def fail(_self: object) -> Any:
        raise RuntimeError("no context")

    span = remote(1)
    monkeypatch.setattr(trace.NonRecordingSpan, "get_span_context", fail)
    with trace.use_span(span):
        logger.info("said")
    assert [record.msg for record in kept.records] == ["said"]
    assert reports == ["processing a log record failed: RuntimeError: no context; your program continues without it"]
