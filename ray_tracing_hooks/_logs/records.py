"""Where every record of the standard ``logging`` passes, and the ids of its trace that it gets there.

``Logger.filter`` is replaced: a record is complete then, with what the program's ``extra``, record factory and filters
have put into it, and has not come to any handler. What runs afterwards runs without a frame of ours: ``logging`` shows
the stack when a handler fails. A record factory of ours would make ``Logger.makeRecord`` raise where ``extra`` has one
of our names.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame, is_a
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._record.span import RecordedSpan

Look = Callable[[logging.LogRecord], None]
"""What looks at each record that is going to the handlers."""

TRACE_ID, SPAN_ID, TRACE_FLAGS = "trace_id", "span_id", "trace_flags"
"""The names of https://opentelemetry.io/docs/specs/otel/compatibility/logging_trace_context/."""

_NO_IDS = {TRACE_ID: "", SPAN_ID: "", TRACE_FLAGS: ""}

_FLAGS = ("00", "01", "02", "03")
"""How those that there are by now are written."""


class _Watch:
    """What this process does with log records.

    Attributes:
        looks: What looks at each record.
        pid: The number of this process. To ask for it at each record would be a system call.
    """

    def __init__(self) -> None:
        self.looks: tuple[Look, ...] = ()
        self.pid = os.getpid()

    def after_fork_in_child(self) -> None:
        self.pid = os.getpid()


_watch = _Watch()
"""`logging` is one for the process."""

os.register_at_fork(after_in_child=_watch.after_fork_in_child)


class Replacement:
    """A method of a class of ``logging``, replaced while :meth:`put` is in force.

    Others replace methods of these classes too, and their replacement may call ours. Then ours stays, and does what the
    original does.
    """

    def __init__(self, owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._owner = owner
        self._name = name
        self._make = make
        self._ours: Callable[..., Any] | None = None
        self._back: Any = None
        self._is_inherited = False

    def put(self) -> None:
        """Replace the method, unless a replacement of ours is still there."""
        if self._ours is None:
            self._is_inherited = self._name not in vars(self._owner)
            self._back = getattr(self._owner, self._name)
            self._ours = self._make(self._back)
            setattr(self._owner, self._name, self._ours)

    def take_back(self) -> None:
        """Put the original back, unless somebody has replaced ours."""
        if self._ours is not None and vars(self._owner).get(self._name) is self._ours:
            if self._is_inherited:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._back)
            self._ours = None


def _filter(original: Callable[..., Any]) -> Callable[..., Any]:
    def filter(self: logging.Logger, record: logging.LogRecord) -> Any:  # noqa: A001  its name there
        try:
            passed = original(self, record)
        except BaseException as error:
            hide_frame(error)
            raise
        if passed:
            try:
                for look in _watch.looks:
                    # From Python 3.12 on a filter may give another record to go on with.
                    look(passed if isinstance(passed, logging.LogRecord) else record)
            except Exception as error:  # noqa: BLE001  the program must get its log line, whatever the record is
                failed("looking at a log record", error)
        return passed

    return filter


def _format(original: Callable[..., str]) -> Callable[..., str]:
    def format(self: Any, record: logging.LogRecord) -> str:  # noqa: A001  its name there
        try:
            return original(self, record)
        except BaseException as error:
            # A ValueError is what it raises for a name that the record does not have.
            if not is_a(error, ValueError) or not _watch.looks or not _lacks_an_id(self, record):
                hide_frame(error)
                raise
        # A copy: a handler that writes all that a record has must not show what this one lacks.
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
    # Of all three styles. A format that names an id must do for records that have none.
    Replacement(logging.PercentStyle, "format", _format),
)


def watch(looks: Sequence[Look]) -> None:
    """From now on each of ``looks`` is called with each record, in this order. A second call replaces the first one."""
    _watch.looks = tuple(looks)
    for replacement in _replacements:
        replacement.put()


def unwatch() -> None:
    """Leave ``logging`` as it was."""
    _watch.looks = ()
    for replacement in reversed(_replacements):
        replacement.take_back()


def is_own(record: logging.LogRecord) -> bool:
    """Whether this process has made the record, and not one that has sent it here to be handled."""
    return record.process == _watch.pid or record.process is None


def current_ids(recorder: Recorder) -> tuple[bytes, bytes, int] | None:
    """The trace id, the span id and the W3C flags of the current span: of ``recorder``'s root where no other is."""
    context = get_current()
    span = context.get(SPAN_KEY)
    if type(span) is RecordedSpan and span.end_time is None:
        return span.trace_id, span.span_id, span.trace_flags
    parent = recorder.fallback if span is None else recorder.parent(context)
    return None if parent is None else (parent.trace_id, parent.span_id, parent.flags)


def ids(recorder: Recorder) -> Look:
    """Puts the ids of the current span into a record, unless it has one of them already."""

    def add_ids(record: logging.LogRecord) -> None:
        attributes = record.__dict__
        if TRACE_ID in attributes or SPAN_ID in attributes or TRACE_FLAGS in attributes:
            return
        found = current_ids(recorder)
        if found is not None and is_own(record):
            trace_id, span_id, flags = found
            attributes[TRACE_ID] = trace_id.hex()
            attributes[SPAN_ID] = span_id.hex()
            attributes[TRACE_FLAGS] = _FLAGS[flags] if flags < 4 else f"{flags:02x}"

    return add_ids
