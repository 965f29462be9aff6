"""The error that ended a span, as text."""

from __future__ import annotations

import re
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import CONSUMER, Span
from ray_tracing_hooks._safety.exceptions import users_error, without_colours

_FROM_USERS = "UserCodeException)"
"""How the types of errors end that Ray Data has raised from one of the user's function, as callers get them."""

_DIED = frozenset({names.WORKER_DIED, names.DRIVER_DIED})

_ADVICE = re.compile(r"(\\n)?Failed to .+ after \d+/\d+ attempts \(total backoff .*")
"""What Ray Data appends to the message of an error in a task, in quotes if the class of the error quotes it."""


def error_type(span: Span) -> str:
    """The class of the error that ended the span; empty if it is not recorded."""
    return _users_error(span).partition(":")[0] or _recorded_type(span)


def _recorded_type(span: Span) -> str:
    given = span.attributes.get(names.ERROR_TYPE) or _exception(span).get(names.EXCEPTION_TYPE)
    return str(given or "")


def _users_error(span: Span) -> str:
    """The error of the user's function that Ray Data has raised the error of this span from; empty for another one."""
    is_of_data = _recorded_type(span).endswith(_FROM_USERS)
    return users_error(without_colours(_message(span))).partition("\n")[0] if is_of_data else ""


def _message(span: Span) -> str:
    return str(_exception(span).get(names.EXCEPTION_MESSAGE) or span.status_message)


def error_text(span: Span) -> str:
    """Type and message of the error that ended the span, on one line; empty if it did not fail."""
    if not span.failed:
        return ""
    if span.state == "lost":
        return span.status_message or "it never ended: its process died, or its end was not recorded"
    if error_type(span) in _DIED and span.status_message:
        return span.status_message  # the cause; the exception is a SystemExit, whose message is the exit code
    if users := _users_error(span):
        return users
    lines = [line for line in without_colours(_message(span)).splitlines() if line.strip()]
    # The text of a remote error in Ray is the remote traceback, with the message at its end.
    text = lines[-1 if lines[0].startswith("ray::") else 0].strip() if lines else ""
    text = _ADVICE.sub(_closed, text)
    kind = error_type(span)
    if kind and kind.rpartition(".")[2] not in text.partition(":")[0]:
        text = f"{kind}: {text}" if text else kind
    return text or "failed"


def _closed(advice: re.Match[str]) -> str:
    """What to put in its place: the end of the quotes in which it is."""
    return advice.string[0] if advice[1] and advice.string[0] in "'\"" else ""


def was_stopped(span: Span) -> bool:
    """Whether it is a task of an operator that Ray Data cancelled, since it needed no more of its blocks.

    Nothing failed in it. If its dataset failed, the operator that failed says so.
    """
    is_task = span.kind == CONSUMER and names.RAY_DATA_OPERATOR in span.attributes
    return is_task and span.failed and error_type(span) == names.TASK_CANCELLED


def _exception(span: Span) -> dict[str, Any]:
    for event in span.events[::-1]:
        if event.name == "exception":
            return event.attributes
    return {}
