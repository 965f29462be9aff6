"""The ids of a record at the end of its line, where a plain ``logging.Formatter`` makes the line of a handler.

``Formatter.formatMessage`` is replaced, which makes the line without the traceback that may follow. It gets the ids

* for a handler whose formatter is a ``logging.Formatter``, or of a subclass that leaves ``format`` as it is: those of
  ``logging.basicConfig``, Ray's own at its drivers and workers, and that of a handler without a formatter,
* if its format does not name ids itself, and the record has them.

A formatter that another one uses inside makes no line: Ray's TEXT, of ``ray.LoggingConfig``, writes all that a record
has behind it, the ids included.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._logs.records import SPAN_ID, TRACE_ID, Replacement


def _format_message(original: Callable[..., str]) -> Callable[..., str]:
    def formatMessage(self: logging.Formatter, record: logging.LogRecord) -> str:  # noqa: N802  its name there
        try:
            line = original(self, record)
        except BaseException as error:
            hide_frame(error)
            raise
        trace_id, span_id = record.__dict__.get(TRACE_ID), record.__dict__.get(SPAN_ID)
        if (
            isinstance(trace_id, str)
            and isinstance(span_id, str)
            and TRACE_ID not in (self._fmt or "")
            # Of `Formatter.format`, which has called this.
            and sys._getframe(2).f_code is _HANDLER_FORMAT  # noqa: SLF001  what `inspect` would call
        ):
            return f"{line} {TRACE_ID}={trace_id} {SPAN_ID}={span_id}"
        return line

    return formatMessage


_HANDLER_FORMAT: Any = logging.Handler.format.__code__

lines = Replacement(logging.Formatter, "formatMessage", _format_message)
"""In force from ``put`` to ``take_back``."""
