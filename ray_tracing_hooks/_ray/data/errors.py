"""Errors of the user's functions, as the consumer of a dataset gets them."""

from __future__ import annotations

import re

from opentelemetry import trace

from ray_tracing_hooks import names
from ray_tracing_hooks._exceptions import class_name, qualified_name, text_of
from ray_tracing_hooks._ray.errors import AROUND_USERS, cause, fail
from ray_tracing_hooks._record.span import RecordedSpan, bounded

_WRAPPED = "\n\nThe above exception was the direct cause of the following exception:"
_BETWEEN = re.compile(r"\n\n(?:The above exception was the direct cause of|During handling of the above).*\n")

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal colours, which Ray puts into the text of remote errors."""

_ADVICE = re.compile(
    r"(?:\n|\\n|^)Failed to .+? after \d+/\d+ attempts \(total backoff [\d.]+s\)\..*DataContext.*", re.DOTALL
)
"""What Ray Data appends to the message of an error in a task: how often it tried, and how that is configured."""

_MOST_TEXT = 1000


def end_with(span: RecordedSpan, error: BaseException) -> None:
    """End a span with the error that ended an execution, as the user's function has raised it.

    What Ray Data raises from an error of the user's function comes from the worker without that error, whose class and
    message are only in the text of the traceback. To the messages of others, Ray Data adds advice.
    """
    inner, whole = cause(error), _COLOURS.sub("", text_of(error) or "")
    users = _users_error(whole) if class_name(inner) in AROUND_USERS else ""
    if not users and (message := text_of(inner) or "") != (short := without_advice(message)):
        users = f"{qualified_name(type(inner))}: {short}" if short else qualified_name(type(inner))
    if users:
        kind, _, message = users.partition(":")
        span.set_attribute(names.ERROR_TYPE, kind)
        span.set_status(trace.StatusCode.ERROR, users)
        described = {
            names.EXCEPTION_TYPE: kind,
            names.EXCEPTION_MESSAGE: message.strip(),
            names.EXCEPTION_STACKTRACE: bounded(whole),
            "exception.escaped": "True",
        }
        span.add_event("exception", described)
        span.end()
    else:
        fail(span, error)


def without_advice(message: str) -> str:
    """The message of an error without what Ray Data has appended to it."""
    found = _ADVICE.search(message)
    if found is None:
        return message
    # That of a KeyError is quoted, with the advice in the quotes.
    quote = message[:1] if found.group().startswith("\\n") and message[:1] in "'\"" else ""
    return message[: found.start()] + quote


def _users_error(traceback: str) -> str:
    """``Class: message`` of the error before the last one in a formatted traceback; empty if there is only one."""
    before, found, _ = traceback.rpartition(_WRAPPED)
    if not found:
        return ""
    lines = _BETWEEN.split(before)[-1].strip("\n").splitlines()
    at, is_frame = 0, False
    for number, line in enumerate(lines):
        if line.startswith(("  File ", "  [Previous line", "ray::", "Traceback (most recent")):
            at, is_frame = number + 1, True
        elif is_frame and line.startswith("    "):
            at = number + 1
        else:
            # The message may have several lines, of which some may be indented.
            is_frame = False
    return "\n".join(lines[at:])[:_MOST_TEXT]
