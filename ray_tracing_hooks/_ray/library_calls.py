"""Calls of Ray's libraries that run within a span: the call begins it, and its result or error ends it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed

Begin = Callable[..., "Begun | None"]
"""Begins the span of a call, given the instrumentation and the arguments of the call; None for a call without one."""

End = Callable[[RecordedSpan, "BaseException | None"], None]
"""Ends the span of a call, given the error that ended the call, or None."""


def begun(begin: Begin, active: Tracing | None, *args: Any, **kwargs: Any) -> Begun | None:
    """What ``begin`` returns; None if this process is not traced, or on failure."""
    if active is None:
        return None
    try:
        return begin(active, *args, **kwargs)
    except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
        failed("tracing a call of a library", error)
        return None


def end_call(span: RecordedSpan, error: BaseException | None) -> None:
    """End the span of a call as that of any call of the program."""
    if error is not None:
        fail(span, error)
    span.end()


def spanned(begin: Begin, end: End = end_call) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that runs a function or method within the span that ``begin`` begins for each call.

    Signature, result, error and traceback of the call stay as they are.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            context, span = begun(begin, tracing.active, *args, **kwargs) or (None, None)
            token = attach(context) if context is not None else None
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                if span is not None:
                    _end(end, span, error)
                raise
            finally:
                if token is not None:
                    detach(token)
            if span is not None:
                _end(end, span, None)
            return result

        return call

    return wrap


def _end(end: End, span: RecordedSpan, error: BaseException | None) -> None:
    try:
        end(span, error)
    except Exception as fault:  # noqa: BLE001  as above
        failed("ending the span of a call of a library", fault)
        span.end()


def within(find: Callable[..., Any], doing: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that runs a method in the context that ``find`` returns for its arguments; in its own if that is
    None.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            token = None
            if tracing.active is not None:
                try:
                    context = find(*args, **kwargs)
                    token = attach(context) if context is not None else None
                except Exception as error:  # noqa: BLE001  as above
                    failed(doing, error)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                if token is not None:
                    detach(token)

        return call

    return wrap


def followed_by(note: Callable[..., None], doing: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that calls ``note`` with the result of a method and its arguments once it has returned."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            if tracing.active is not None:
                try:
                    note(result, *args, **kwargs)
                except Exception as error:  # noqa: BLE001  as above
                    failed(doing, error)
            return result

        return call

    return wrap


def preceded_by(note: Callable[..., None], doing: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that calls ``note`` with the arguments of a method before it runs."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if tracing.active is not None:
                try:
                    note(*args, **kwargs)
                except Exception as error:  # noqa: BLE001  as above
                    failed(doing, error)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        return call

    return wrap


def in_context(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    """``function``, with ``context`` attached while it runs. Tracebacks are the same as without."""

    def run(*args: Any, **kwargs: Any) -> Any:
        token = attach(context)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            detach(token)

    return run
