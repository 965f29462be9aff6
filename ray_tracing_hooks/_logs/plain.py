"""Appends the trace and span id to the lines that a plain ``logging.Formatter`` makes for a handler.

This replaces ``Formatter.formatMessage``, which makes the line without the traceback that may follow. A line gets the
ids

* if the handler's formatter is a ``logging.Formatter``, or of a subclass that keeps ``format``: that of
  ``logging.basicConfig``, Ray's own in drivers and workers, and that of a handler without a formatter,
* if its format does not name the ids itself, and the record has them.

The lines of a formatter that another formatter uses internally get none: Ray's TEXT, of ``ray.LoggingConfig``, appends
everything that a record has, the ids included.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._logs.records import SPAN_ID, TRACE_ID
from ray_tracing_hooks._patching import Replacement


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
            # The caller of `Formatter.format`, which has called this.
            and sys._getframe(2).f_code is _HANDLER_FORMAT  # noqa: SLF001  what `inspect` would call
        ):
            return f"{line} {TRACE_ID}={trace_id} {SPAN_ID}={span_id}"
        return line

    return formatMessage


_HANDLER_FORMAT: Any = logging.Handler.format.__code__

lines = Replacement(logging.Formatter, "formatMessage", _format_message)
"""Replaced from ``put`` to ``take_back``."""
