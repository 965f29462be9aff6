"""Correlates records of the standard ``logging`` with traces, and records them.

This replaces ``Logger.filter``: at that point a record is complete, with what the program's ``extra``, record factory
and filters have added, and no handler has seen it yet. What runs afterwards runs without a frame of this package, since
``logging`` shows the stack when a handler fails. A record factory instead would make ``Logger.makeRecord`` raise if
``extra`` contains one of our names.

Records become OTLP log records, which each process appends to its spool. They follow OpenTelemetry's log data model
(https://opentelemetry.io/docs/specs/otel/logs/data-model/); the messages are those of
``opentelemetry/proto/logs/v1/logs.proto``.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.tags import LogRecordTag
from ray_tracing_hooks._formats.protobuf import pack_fixed32
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.limits import clean
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._record.span import MOST_TEXT, bounded, exception_attributes
from ray_tracing_hooks._safety.exceptions import hide_frame, is_a, is_interruption, qualified_name, traceback_of
from ray_tracing_hooks._safety.guard import failed, logger
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter


class Correlation(NamedTuple):
    """The parts of this process that log records are correlated with.

    Attributes:
        skywalking_id: Returns SkyWalking's id of the trace of a context, or of the trace with this id.
    """

    recorder: Recorder
    writer: SpoolWriter
    resource: bytes
    skywalking_id: Callable[[Context, bytes], str] | None = None


def begin(parts: frozenset[str], process: Correlation, *, least: str = "INFO") -> Callable[[], None]:
    """Handle log records as the setting ``logs`` asks; returns a function that ends it.

    A second call replaces the first. ``least`` is the lowest level that is recorded.
    """
    observers: list[_Observer] = []
    if "ids" in parts:
        observers.append(_ids(process.recorder))
    if "tid" in parts and process.skywalking_id is not None:
        observers.append(_skywalking_ids(process.recorder, process.skywalking_id))
    if "otlp" in parts:
        observers.append(_otlp(process.recorder, process.writer, process.resource, least))
    _watch.observers = tuple(observers)
    _patches.wrap(logging.Logger, "filter", _filter)
    # The base class of all three styles. A format that names an id must also work for records without ids.
    _patches.wrap(logging.PercentStyle, "format", _format)
    return _end


def _end() -> None:
    """Restore ``logging``."""
    _watch.observers = ()
    _patches.undo()


_Observer = Callable[[logging.LogRecord], None]
"""Called with each record that is passed to the handlers."""

_TRACE_ID_KEY, _SPAN_ID_KEY, _TRACE_FLAGS_KEY = "trace_id", "span_id", "trace_flags"
"""The names from https://opentelemetry.io/docs/specs/otel/compatibility/logging_trace_context/."""

_SKYWALKING_KEY = "tid"
"""The name that SkyWalking's agents have for their own id of the trace."""

_NO_IDS = {_TRACE_ID_KEY: "", _SPAN_ID_KEY: "", _TRACE_FLAGS_KEY: "", _SKYWALKING_KEY: ""}

_FLAG_TEXTS = ("00", "01", "02", "03")
"""The texts of the flags that are defined so far."""


class _Watch:
    """The handling of log records in this process.

    Attributes:
        pid: The id of this process, cached to avoid a system call for each record.
    """

    def __init__(self) -> None:
        self.observers: tuple[_Observer, ...] = ()
        self.pid = os.getpid()

    def after_fork_in_child(self) -> None:
        self.pid = os.getpid()


_watch = _Watch()
"""One per process, like ``logging`` itself."""

os.register_at_fork(after_in_child=_watch.after_fork_in_child)


def _filter(original: Callable[..., Any]) -> Callable[..., Any]:
    def filter(self: logging.Logger, record: logging.LogRecord) -> Any:  # noqa: A001  its name there
        try:
            passed = original(self, record)
        except BaseException as error:
            hide_frame(error)
            raise
        if passed:
            try:
                for observe in _watch.observers:
                    # From Python 3.12 on, a filter may return another record to use.
                    observe(passed if isinstance(passed, logging.LogRecord) else record)
            except Exception as error:  # noqa: BLE001  the log line must be written whatever fails here
                failed("processing a log record", error)
        return passed

    return filter


def _format(original: Callable[..., str]) -> Callable[..., str]:
    def format(self: Any, record: logging.LogRecord) -> str:  # noqa: A001  its name there
        try:
            return original(self, record)
        except BaseException as error:
            # It raises ValueError for a name that the record lacks.
            if not is_a(error, ValueError) or not _watch.observers or not _lacks_an_id(self, record):
                hide_frame(error)
                raise
        # A copy: a handler that writes all attributes of a record must not show the empty ids.
        filled = copy.copy(record)
        filled.__dict__ = {**_NO_IDS, **vars(record)}
        try:
            return original(self, filled)
        except BaseException as error:
            hide_frame(error)
            raise

    return format


def _lacks_an_id(style: Any, record: logging.LogRecord) -> bool:
    """Whether the format names an id that the record does not have."""
    text = str(getattr(style, "_fmt", ""))
    return any(name in text and name not in vars(record) for name in _NO_IDS)


_patches = Patches(shared=True)


def _is_own(record: logging.LogRecord) -> bool:
    """Whether this process made the record, and did not receive it from another process."""
    return record.process == _watch.pid or record.process is None


def _ids(recorder: Recorder) -> _Observer:
    """Adds the ids of the current span to a record, unless it already has one of them."""

    def add_ids(record: logging.LogRecord) -> None:
        attributes = record.__dict__
        if _TRACE_ID_KEY in attributes or _SPAN_ID_KEY in attributes or _TRACE_FLAGS_KEY in attributes:
            return
        current = recorder.current(get_current())
        if current is not None and _is_own(record):
            trace_id, span_id, flags, _, _ = current
            attributes[_TRACE_ID_KEY] = trace_id.hex()
            attributes[_SPAN_ID_KEY] = span_id.hex()
            attributes[_TRACE_FLAGS_KEY] = _FLAG_TEXTS[flags] if flags < 4 else f"{flags:02x}"

    return add_ids


def _skywalking_ids(recorder: Recorder, text_of: Callable[[Context, bytes], str]) -> _Observer:
    """Adds SkyWalking's id of the current trace to a record, unless it has one: ``text_of(context, fallback)``."""

    def add_id(record: logging.LogRecord) -> None:
        if _SKYWALKING_KEY in record.__dict__ or not _is_own(record):
            return
        root = recorder.fallback
        text = text_of(get_current(), root.trace_id if root is not None else b"")
        if text:
            record.__dict__[_SKYWALKING_KEY] = text

    return add_id


_RAYS_TIME = "_ray_timestamp_ns"
"""The time that Ray's record factory adds: ``created`` is a float, precise to some hundred nanoseconds."""

_STANDARD = frozenset(
    {
        *vars(logging.makeLogRecord({})),
        *("message", "asctime", "taskName"),
        _TRACE_ID_KEY,
        _SPAN_ID_KEY,
        _TRACE_FLAGS_KEY,
        _RAYS_TIME,
    }
)
"""The attributes of a record that are not ``extra``."""

_MOST_EXTRAS = 128

_MOST_SCOPES = 256
"""At most this many loggers get their own scope: every segment defines all scopes, which must stay small."""

_FLAGS = bytes((LogRecordTag.FLAGS,))
_TRACE_ID, _SPAN_ID = bytes((LogRecordTag.TRACE_ID, 16)), bytes((LogRecordTag.SPAN_ID, 8))
"""The tags and lengths of the ids of the current span."""

_local = threading.local()


def _otlp(recorder: Recorder, writer: SpoolWriter, resource: bytes, least: str) -> _Observer:
    """Writes each record of this process of at least the level ``least``, with the ids of the current span, if any.

    It skips records of our own logger, and those made while another record is being processed: a logged object's
    ``__str__`` may log in turn.
    """
    prefixes: dict[str, bytes] = {}
    # Not the level's name in `logging`, which the program may have changed.
    number: int = getattr(logging, least)

    def prefix(name: str) -> bytes:
        known = prefixes.get(name)
        if known is None:
            known = U16.pack(writer.scope(resource, encode.scope(name)))
            prefixes[name] = known
        return known

    def write(record: logging.LogRecord) -> None:
        if (
            record.levelno < number
            or record.name == logger.name
            or getattr(_local, "is_looking", False)
            or not _is_own(record)
        ):
            return
        _local.is_looking = True
        try:
            name = str(record.name)
            more: dict[str, Any] = {}
            if len(prefixes) >= _MOST_SCOPES and name not in prefixes:
                name, more = "", {names.OTEL_SCOPE_NAME: name}
            writer.log(prefix(name), _encoded(recorder, record, more))
        finally:
            _local.is_looking = False

    return write


def _encoded(recorder: Recorder, record: logging.LogRecord, attributes: dict[str, Any]) -> bytes:
    """The record, with further ``attributes``. This formats its message."""
    given, dropped = _extras(record, recorder.limits.other_value_length)
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None:
        attributes |= exception_attributes(error, traceback_of(error))
    if record.stack_info:
        attributes[names.CODE_STACKTRACE] = bounded(record.stack_info)
    time_ns = encode.nanoseconds(record.__dict__.get(_RAYS_TIME) or record.created * 1e9)
    parts = [
        protobuf.fixed64(LogRecordTag.TIME, time_ns),
        _severity(severity_number(record.levelno), bounded(str(record.levelname))),
        protobuf.field(LogRecordTag.BODY, encode.any_value(_text_of(record)) or b""),
        encode.attributes({**given, **attributes}, LogRecordTag.ATTRIBUTES),
        _place(record.pathname, record.funcName, record.lineno),
        _thread(record.thread, record.threadName),
        bytes((LogRecordTag.DROPPED_ATTRIBUTES_COUNT,)) + protobuf.varint(dropped) if dropped else b"",
        protobuf.fixed64(LogRecordTag.OBSERVED_TIME, now_ns()),
    ]
    if (current := recorder.current(get_current())) is not None:
        trace_id, span_id, flags, _, _ = current
        parts += _FLAGS, pack_fixed32(flags), _TRACE_ID, trace_id, _SPAN_ID, span_id
    return b"".join(parts)


# Cached encodings: the same for all records of a level, of a line of code, and of a thread.


@lru_cache(maxsize=64)
def _severity(number: int, text: str) -> bytes:
    encoded = bytes((LogRecordTag.SEVERITY_NUMBER,)) + protobuf.varint(number) if number else b""
    return encoded + protobuf.field(LogRecordTag.SEVERITY_TEXT, protobuf.utf8(text)) if text else encoded


@lru_cache(maxsize=1024)
def _place(path: Any, function: Any, line: Any) -> bytes:
    return _known({names.CODE_FILE_PATH: path, names.CODE_FUNCTION_NAME: function, names.CODE_LINE_NUMBER: line})


@lru_cache(maxsize=64)
def _thread(ident: int | None, name: str | None) -> bytes:
    return _known({names.THREAD_ID: ident, names.THREAD_NAME: name})


def _known(attributes: dict[str, Any]) -> bytes:
    known = {key: value for key, value in attributes.items() if value is not None}
    return encode.attributes(known, LogRecordTag.ATTRIBUTES)


def _extras(record: logging.LogRecord, length: int | None) -> tuple[dict[str, Any], int]:
    """The ``extra`` attributes of a record, with texts cut to ``length``, and how many were left out."""
    found: dict[str, Any] = {}
    added = record.__dict__.keys() - _STANDARD
    for key in added:
        try:
            if len(found) < _MOST_EXTRAS:
                found[key] = clean(record.__dict__[key], MOST_TEXT if length is None else min(length, MOST_TEXT))
        except Exception as error:  # an object of the program, whose ``__str__`` may raise
            if is_interruption(error):
                raise
    return found, len(added) - len(found)


def severity_number(level: int) -> int:
    """The severity number of a level of ``logging``, such as 9 for INFO; levels in between get the numbers between."""
    if level < logging.DEBUG:
        return max(0, min(level, 4))
    tens, ones = divmod(level, 10) if level < logging.CRITICAL else (5, level - logging.CRITICAL)
    return 4 * tens + 1 + min(ones, 3)


def _text_of(record: logging.LogRecord) -> str:
    try:
        return bounded(record.getMessage())
    except Exception as error:  # a fault of the program, which logging reports when it writes the line
        if is_interruption(error):
            raise
        try:
            return bounded(str(record.msg))
        except Exception as fault:  # as above
            if is_interruption(fault):
                raise
            return f"<{qualified_name(type(record.msg))} that cannot be shown>"
