"""Errors of the user's functions, as the consumer of a dataset gets them."""

from __future__ import annotations

from opentelemetry import trace

from ray_tracing_hooks import names
from ray_tracing_hooks._exceptions import class_name, text_of
from ray_tracing_hooks._ray.errors import cause, fail
from ray_tracing_hooks._record.span import RecordedSpan

_WRAPPED = "\n\nThe above exception was the direct cause of the following exception:"

_MOST_TEXT = 1000


def end_with(span: RecordedSpan, error: BaseException) -> None:
    """End a span with the error that ended an execution.

    What Ray Data raises from an error of the user's function comes from the worker without that error, whose class and
    message are only in the text of the traceback.
    """
    if class_name(cause(error)) == "UserCodeException" and (text := _users_error(text_of(error) or "")):
        span.set_attribute(names.ERROR_TYPE, text.partition(":")[0])
        span.set_status(trace.StatusCode.ERROR, text)
    fail(span, error)


def _users_error(traceback: str) -> str:
    """``Class: message`` of the first error in a formatted traceback; empty if there is only one."""
    first, found, _ = traceback.partition(_WRAPPED)
    lines = first.rstrip().splitlines() if found else []
    # The message may have several lines, none of which looks like a line of the traceback.
    at = next((number for number in range(len(lines) - 1, -1, -1) if lines[number].startswith("  ")), len(lines))
    return "\n".join(lines[at + 1 :])[:_MOST_TEXT]
