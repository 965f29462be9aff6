"""Errors of the user's functions, as the consumer of a dataset gets them."""

from __future__ import annotations

import re

from ray_tracing_hooks._exceptions import qualified_name, text_of
from ray_tracing_hooks._ray.errors import cause, describe_users_error, fail
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._users_errors import without_colours

_ADVICE = re.compile(
    r"(?:\n|\\n|^)Failed to .+? after \d+/\d+ attempts \(total backoff [\d.]+s\)\..*DataContext.*", re.DOTALL
)
"""What Ray Data appends to the message of an error in a task: how often it tried, and how that is configured."""


def end_with(span: RecordedSpan, error: BaseException) -> None:
    """End a span with the error that ended an execution, as the user's function has raised it.

    To the messages of errors that are not of the user's function, Ray Data adds advice.
    """
    inner = cause(error)
    message = text_of(inner) or ""
    short = without_advice(message)
    if describe_users_error(span, error):
        span.end()
    elif message != short:
        kind = qualified_name(type(inner))
        span.fail_as(f"{kind}: {short}" if short else kind, without_colours(text_of(error) or ""))
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
