"""Log records as events of the current span."""

from __future__ import annotations

import logging
from collections.abc import Callable

from opentelemetry import trace

from ray_tracing_hooks import names
from ray_tracing_hooks._logs.described import describe, place
from ray_tracing_hooks._logs.records import Look
from ray_tracing_hooks._record.current import get_current


def events(root: Callable[[], trace.Span | None]) -> Look:
    """Adds an event to the current span, or to ``root()`` where none is current, if that span is recording."""

    def add_event(record: logging.LogRecord) -> None:
        span: trace.Span | None = trace.get_current_span(get_current())
        if span is trace.INVALID_SPAN:
            span = root()
        if span is None or not span.is_recording():
            return
        described = describe(record)
        attributes = {
            names.LOG_SEVERITY_NUMBER: described.severity_number,
            names.LOG_SEVERITY_TEXT: described.severity_text,
            names.LOG_BODY: described.body,
            names.OTEL_SCOPE_NAME: record.name,
            **place(record.pathname, record.funcName, record.lineno),
            **described.attributes,
        }
        span.add_event(names.EVENT_LOG, attributes, described.time_ns)

    return add_event
