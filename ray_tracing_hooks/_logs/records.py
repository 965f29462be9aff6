"""Intercepts the records of the standard ``logging``, and adds the ids of the current span to them.

This replaces ``Logger.filter``: at that point a record is complete, with what the program's ``extra``, record factory
and filters have added, and no handler has seen it yet. What runs afterwards runs without a frame of this package, since
``logging`` shows the stack when a handler fails. A record factory instead would make ``Logger.makeRecord`` raise if
``extra`` contains one of our names.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._safety.exceptions import hide_frame, is_a
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Replacement

Observer = Callable[[logging.LogRecord], None]
"""Called with each record that is passed to the handlers."""

TRACE_ID, SPAN_ID, TRACE_FLAGS = "trace_id", "span_id", "trace_flags"
"""The names from https://opentelemetry.io/docs/specs/otel/compatibility/logging_trace_context/."""

SKYWALKING_TRACE_ID = "tid"
"""The name that SkyWalking's agents have for their own id of the trace."""

_NO_IDS = {TRACE_ID: "", SPAN_ID: "", TRACE_FLAGS: "", SKYWALKING_TRACE_ID: ""}

_FLAGS = ("00", "01", "02", "03")
"""The texts of the flags that are defined so far."""


class _Watch:
    """The handling of log records in this process.

    Attributes:
        observers: Called with each record.
        pid: The id of this process, cached to avoid a system call for each record.
    """

    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()
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


_replacements = (
    Replacement(logging.Logger, "filter", _filter),
    # The base class of all three styles. A format that names an id must also work for records without ids.
    Replacement(logging.PercentStyle, "format", _format),
)


def watch(observers: Sequence[Observer]) -> None:
    """Call each of ``observers`` with each record from now on, in this order. A second call replaces the first one."""
    _watch.observers = tuple(observers)
    for replacement in _replacements:
        replacement.put()


def unwatch() -> None:
    """Restore ``logging``."""
    _watch.observers = ()
    for replacement in reversed(_replacements):
        replacement.take_back()


def is_own(record: logging.LogRecord) -> bool:
    """Whether this process made the record, and did not receive it from another process."""
    return record.process == _watch.pid or record.process is None


def ids(recorder: Recorder) -> Observer:
    """Adds the ids of the current span to a record, unless it already has one of them."""

    def add_ids(record: logging.LogRecord) -> None:
        attributes = record.__dict__
        if TRACE_ID in attributes or SPAN_ID in attributes or TRACE_FLAGS in attributes:
            return
        current = recorder.current(get_current())
        if current is not None and is_own(record):
            trace_id, span_id, flags, _, _ = current
            attributes[TRACE_ID] = trace_id.hex()
            attributes[SPAN_ID] = span_id.hex()
            attributes[TRACE_FLAGS] = _FLAGS[flags] if flags < 4 else f"{flags:02x}"

    return add_ids


def skywalking_ids(recorder: Recorder, text_of: Callable[[Context, bytes], str]) -> Observer:
    """Adds SkyWalking's id of the current trace to a record, unless it has one: ``text_of(context, fallback)``."""

    def add_id(record: logging.LogRecord) -> None:
        if SKYWALKING_TRACE_ID in record.__dict__ or not is_own(record):
            return
        root = recorder.fallback
        text = text_of(get_current(), root.trace_id if root is not None else b"")
        if text:
            record.__dict__[SKYWALKING_TRACE_ID] = text

    return add_id
