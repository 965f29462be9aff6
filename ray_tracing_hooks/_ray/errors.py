"""Errors of the program: how they end spans, and how the program sees them.

Errors and their texts are the same as without tracing: no frame of this package is in a traceback. Wraps
``format_error_message`` (Ray 2.60 ``_private/utils.py``), which gets the traceback of a task's error that the user will
read in ``RayTaskError``. Where a wrapper is called directly, :func:`~ray_tracing_hooks._safety.exceptions.hide_frame`
removes its frame.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from typing import Any

from opentelemetry import trace

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._record.span import RecordedSpan, exception_attributes, summary
from ray_tracing_hooks._safety.exceptions import (
    cause_of,
    class_name,
    is_a,
    qualified_name,
    text_of,
    traceback_of,
    users_error,
    value_of,
    without_colours,
)
from ray_tracing_hooks._safety.patching import Patches

_FOLDER = os.path.dirname(os.path.abspath(__file__))
# A frame is its "File" line and the indented source and caret lines below it.
_FRAME = rf'^  File "{re.escape(_FOLDER + os.sep)}[^"\n]*", line \d+, in .*\n(?:    .*\n)*'

_EXIT_CODE: Any = vars(SystemExit)["code"]

AROUND_USERS = frozenset({"UserCodeException", "RayDataUserCodeException"})
"""What Ray Data raises from an error of the user's function."""

_MOST_CAUSES = 100
"""Bounds the chain of causes, since an error may be its own cause."""


def patch(patches: Patches) -> bool:
    """Wrap the formatting of errors; False if this Ray lacks the wrapped function."""
    from ray._private import utils  # noqa: PLC0415

    return patches.wrap(utils, "format_error_message", _format_error_message)


def _format_error_message(original: Callable[..., str]) -> Callable[..., str]:
    def format_error_message(exception_message: str, *args: Any, **kwargs: Any) -> str:
        if _FOLDER in exception_message:
            exception_message = re.sub(_FRAME, "", exception_message, flags=re.MULTILINE)
        return original(exception_message, *args, **kwargs)

    return format_error_message


def fail(span: RecordedSpan, error: BaseException) -> None:
    """End ``span`` with this error."""
    try:
        describe(span, error)
    finally:
        # Also when a signal handler raises meanwhile: formatting a traceback takes a millisecond.
        span.end()


def describe(span: RecordedSpan, error: BaseException) -> None:
    """Record on ``span`` that it fails with this error, unless that is an intended exit. The error is not kept."""
    if is_intended_exit(error):
        return
    kind = None
    if is_a(error, asyncio.CancelledError, KeyboardInterrupt):
        kind = names.TASK_CANCELLED
    elif is_a(error, SystemExit) and (message := value_of(error, "ray_terminate_msg")) is not None:
        # Raised by Ray's SIGTERM handler, which also ends workers whose driver is gone, and by its calls in which a
        # signal handler raises SystemExit.
        kind, process = (names.DRIVER_DIED, "driver") if _is_driver() else (names.WORKER_DIED, "worker")
        span.set_status(trace.StatusCode.ERROR, f"{process} died: {message}")
    if not describe_users_error(span, error):
        span.fail(cause(error), traceback_of(error), kind)


def describe_users_error(span: RecordedSpan, error: BaseException) -> bool:
    """Record on ``span`` the error of the user's function that Ray Data has raised this one from; whether it has.

    It comes from a worker without that error, whose class and message are only in the text of the traceback.
    """
    if class_name(cause(error)) not in AROUND_USERS:
        return False
    whole = without_colours(text_of(error) or "")
    users = users_error(whole)
    if users:
        span.fail_as(users, whole)
    return bool(users)


def _is_driver() -> bool:
    from ray._private.worker import global_worker  # noqa: PLC0415  the hook's module must be importable without Ray

    return bool(global_worker.mode == DRIVER)


def failure(error: BaseException, now: int, error_type: str | None = None) -> bytes:
    """The encoded attributes, event and status of a span that an error ended."""
    return (
        encode.attribute(names.ERROR_TYPE, error_type or qualified_name(type(error)))
        + encode.event("exception", now, exception_attributes(error, traceback_of(error)))
        + encode.status(encode.STATUS_ERROR, summary(error))
    )


def is_intended_exit(error: BaseException) -> bool:
    """Whether the user's program ends the worker on purpose: ``exit_actor()``, or ``sys.exit()`` with status 0."""
    if is_a(error, SystemExit):
        code = _EXIT_CODE.__get__(error)
        return code is None or (type(code) in {int, bool} and not code)
    return class_name(error) == "AsyncioActorExit"


def cause(error: BaseException) -> BaseException:
    """The original error, without the ``RayTaskError`` that Ray wraps around an error of another task, and without what
    a library of Ray wraps around an error of the user's function.
    """
    from ray.exceptions import RayTaskError  # noqa: PLC0415

    for _ in range(_MOST_CAUSES):
        if is_a(error, RayTaskError):
            inner = value_of(error, "cause")
        elif class_name(error) in AROUND_USERS:
            inner = cause_of(error)
        else:
            break
        if not is_a(inner, BaseException):
            break
        error = inner
    return error
