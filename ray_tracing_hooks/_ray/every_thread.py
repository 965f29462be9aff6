"""Every thread has the context of the code that started it, and every call of a pool of threads that of the code that
submitted it: wraps ``threading.Thread`` and ``concurrent.futures.ThreadPoolExecutor``, to which the executors of event
loops belong. Variables of the program (``contextvars``) stay as they are in a thread: only the OpenTelemetry context
comes along.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._patching import Patches, Replacement
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.threads import in_context
from ray_tracing_hooks._record.current import attach, detach, get_current

_CONTEXT = "_ray_tracing_hooks_context"
"""The attribute of a thread with its context, until it runs."""

_NOTHING = Context()


def patch(patches: Patches) -> bool:
    """Wrap threads and pools of threads. Raises AttributeError if this Python has changed them."""
    for replacement in _REPLACEMENTS:
        replacement.put()
        patches.on_undo(replacement.take_back)
    return True


def _start(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(thread: Any) -> None:
        if tracing.active is not None and (context := get_current()):
            vars(thread)[_CONTEXT] = context
        try:
            original(thread)
        except BaseException as error:
            hide_frame(error)
            vars(thread).pop(_CONTEXT, None)
            raise

    return start


def _bootstrap(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def bootstrap(thread: Any) -> None:
        context = vars(thread).pop(_CONTEXT, None)
        if context is not None:
            attach(context)
        original(thread)

    return bootstrap


def _submit(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def submit(executor: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None and (context := get_current()):
            fn = in_context(fn, context)
        try:
            return original(executor, fn, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return submit


def _adjust_thread_count(original: Callable[..., None]) -> Callable[..., None]:
    """The threads of a pool have no context of their own: the first caller's would be that of all that have none."""

    @functools.wraps(original)
    def adjust(executor: Any) -> None:
        token = attach(_NOTHING)
        try:
            original(executor)
        finally:
            detach(token)

    return adjust


_REPLACEMENTS = (
    Replacement(threading.Thread, "start", _start),
    # Also in classes with a `run` of their own, and outside of the tracebacks of what runs.
    Replacement(threading.Thread, "_bootstrap_inner", _bootstrap),
    Replacement(ThreadPoolExecutor, "submit", _submit),
    Replacement(ThreadPoolExecutor, "_adjust_thread_count", _adjust_thread_count),
)
"""Other libraries replace these too."""
