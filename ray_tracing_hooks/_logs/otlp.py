"""Log records as OTLP log records, which each process appends to its spool.

They follow OpenTelemetry's log data model (https://opentelemetry.io/docs/specs/otel/logs/data-model/); the messages are
those of ``opentelemetry/proto/logs/v1/logs.proto``.
"""

from __future__ import annotations

import logging
import threading
from functools import lru_cache
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.tags import LogRecordTag
from ray_tracing_hooks._formats.protobuf import pack_fixed32
from ray_tracing_hooks._logs.records import SPAN_ID, TRACE_FLAGS, TRACE_ID, Observer, is_own
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.limits import clean
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._record.span import MOST_TEXT, bounded, exception_attributes
from ray_tracing_hooks._safety.exceptions import is_interruption, qualified_name, traceback_of
from ray_tracing_hooks._safety.guard import logger
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

_RAYS_TIME = "_ray_timestamp_ns"
"""The time that Ray's record factory adds: ``created`` is a float, precise to some hundred nanoseconds."""

_STANDARD = frozenset(
    {*vars(logging.makeLogRecord({})), *("message", "asctime", "taskName"), TRACE_ID, SPAN_ID, TRACE_FLAGS, _RAYS_TIME}
)
"""The attributes of a record that are not ``extra``."""

_MOST_EXTRAS = 128

_MOST_SCOPES = 256
"""At most this many loggers get their own scope: every segment defines all scopes, which must stay small."""

_FLAGS = bytes((LogRecordTag.FLAGS,))
_TRACE_ID, _SPAN_ID = bytes((LogRecordTag.TRACE_ID, 16)), bytes((LogRecordTag.SPAN_ID, 8))
"""The tags and lengths of the ids of the current span."""

_local = threading.local()


def otlp(recorder: Recorder, writer: SpoolWriter, resource: bytes, least: str) -> Observer:
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
            or not is_own(record)
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
        protobuf.field(LogRecordTag.BODY, encode.any_value(_message(record)) or b""),
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


def _message(record: logging.LogRecord) -> str:
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
