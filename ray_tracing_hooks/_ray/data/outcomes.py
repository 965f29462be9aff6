"""How executions of datasets and iterations over them end, and which method of Ray Data the program called for them."""

from __future__ import annotations

import re
from types import FrameType

from ray_tracing_hooks._formats.users_errors import without_colours
from ray_tracing_hooks._ray.errors import cause, describe_users_error, fail
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import class_name, is_a, qualified_name, text_of

FINISHED = "finished"
STOPPED = "stopped"
"""The consumer stopped before the end."""
FAILED = "failed"
CANCELLED = "cancelled"
ABANDONED = "abandoned"
"""The program ended, or disconnected from Ray, before the end."""


def of(error: BaseException | None, *, is_complete: bool) -> str:
    """The outcome of what ``error`` ended, if anything did."""
    if error is None or is_a(error, StopIteration, GeneratorExit):
        return FINISHED if is_complete else STOPPED
    if is_a(error, KeyboardInterrupt) or class_name(error) in {"TaskCancelledError", "CancelledError"}:
        return CANCELLED
    return FAILED


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


_LIBRARY, _OURS = "ray.data", f"{__name__.partition('.')[0]}."

_DECORATORS = "ray.data.exceptions"
"""The module whose decorators are around methods of any name (Ray 2.60 ``omit_traceback_stdout``)."""

_KNOWN_AS = {"start_epoch": "streaming_split", "gen_epochs": "streaming_split"}
"""What the program knows by another name."""


def consumer_in(frame: FrameType | None) -> str:
    """The outermost public function of Ray Data in a stack, without what called that; empty if there is none."""
    found = ""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        module = module if isinstance(module, str) else ""
        if module.startswith(_LIBRARY):
            name = frame.f_code.co_name
            if module != _DECORATORS and name.isidentifier() and not name.startswith("_"):
                found = _KNOWN_AS.get(name, name)
        elif found and not module.startswith(_OURS):
            break
        frame = frame.f_back
    return found
