"""Maps log records to OpenTelemetry's log data model and semantic conventions.

https://opentelemetry.io/docs/specs/otel/logs/data-model/
"""

from __future__ import annotations

import logging
import threading
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._exceptions import is_interruption, qualified_name, traceback_of
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._guard import logger
from ray_tracing_hooks._logs.records import SPAN_ID, TRACE_FLAGS, TRACE_ID, Look, is_own
from ray_tracing_hooks._record.limits import clean
from ray_tracing_hooks._record.span import MOST_TEXT, bounded, exception_attributes

_RAYS_TIME = "_ray_timestamp_ns"
"""The time that Ray's record factory adds: ``created`` is a float, precise to some hundred nanoseconds."""

_STANDARD = frozenset(
    {*vars(logging.makeLogRecord({})), *("message", "asctime", "taskName"), TRACE_ID, SPAN_ID, TRACE_FLAGS, _RAYS_TIME}
)
"""The attributes of a record that are not ``extra``."""

_MOST_EXTRAS = 128

_local = threading.local()


class Described(NamedTuple):
    """A log record in OpenTelemetry's terms. The length of texts is bounded."""

    time_ns: int
    severity_number: int
    severity_text: str
    body: str
    attributes: dict[str, Any]
    """``exception.*`` if an exception is logged, and the stack if ``stack_info`` asks for it."""


def describe(record: logging.LogRecord) -> Described:
    """The record in OpenTelemetry's terms. This formats its arguments."""
    attributes: dict[str, Any] = {}
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None:
        attributes |= exception_attributes(error, traceback_of(error))
    if record.stack_info:
        attributes[names.CODE_STACKTRACE] = bounded(record.stack_info)
    return Described(
        encode.nanoseconds(record.__dict__.get(_RAYS_TIME) or record.created * 1e9),
        severity_number(record.levelno),
        bounded(str(record.levelname)),
        _message(record),
        attributes,
    )


def place(path: Any, function: Any, line: Any) -> dict[str, Any]:
    """The code location of a record, as far as it is known."""
    attributes = {names.CODE_FILE_PATH: path, names.CODE_FUNCTION_NAME: function, names.CODE_LINE_NUMBER: line}
    return {key: value for key, value in attributes.items() if value is not None}


def extras(record: logging.LogRecord, length: int | None) -> tuple[dict[str, Any], int]:
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


def level(name: str) -> int:
    """The number of a standard level of ``logging``, even if the program has renamed it."""
    number: int = getattr(logging, name)
    return number


def selected(look: Look, least: int) -> Look:
    """Calls ``look`` with the records of this process of at least this level.

    It skips records of our own logger, and those made while another record is being processed: a logged object's
    ``__str__`` may log in turn.
    """

    def at_some(record: logging.LogRecord) -> None:
        if (
            record.levelno < least
            or record.name == logger.name
            or getattr(_local, "is_looking", False)
            or not is_own(record)
        ):
            return
        _local.is_looking = True
        try:
            look(record)
        finally:
            _local.is_looking = False

    return at_some


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
