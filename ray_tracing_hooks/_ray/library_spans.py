"""Spans of Ray's libraries, such as the execution of a dataset: of kind INTERNAL, below the span around them.

The wrappers run a call of a library within a span, in a context, or with a note before or after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.propagation import Begun, reference, unrecorded_span
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import SAMPLED, Template
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame, hide_frame
from ray_tracing_hooks._safety.guard import guarded


def begin(
    active: Tracing,
    name: str | Template,
    context: Context,
    attributes: Mapping[str, Any] | None = None,
    *,
    start_time: int | None = None,
    more: bytes = b"",
) -> Begun:
    """Begin a span of this name or template below that of ``context``; returns the context inside of it, and the span.

    Without a span in ``context`` it is below the driver's root span, or begins a trace. A library has kept a context
    other than the current one for this span: its span is then the parent, whenever it ended. The new span is None if it
    is not recorded: the context then propagates the sampling decision. ``start_time`` is in nanoseconds since the
    epoch, and ``more`` are further encoded fields, such as links.
    """
    recorder = active.recorder
    parent = recorder.parent(context) if context is get_current() else recorder.current(context)
    trace_id, flags = recorder.decide(parent)
    recording = recorder.of(flags)
    if recording is None:
        around = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
        return Context({**context, SPAN_KEY: unrecorded_span(around)}), None
    first = encode.attributes(attributes or {}) + reference(context, parent) + active.thread_attribute() + more
    template = active.templates.of_waiting(name) if isinstance(name, str) else name
    span = recording.start(template, trace_id, flags, parent, first, start_time)
    return Context({**context, SPAN_KEY: span}), span


def without_children(context: Context, span: RecordedSpan) -> Context:
    """The context inside of a span whose children are not sampled."""
    parent = span.as_parent()
    return Context({**context, SPAN_KEY: unrecorded_span(parent._replace(flags=parent.flags & ~SAMPLED))})


Begin = Callable[..., "Begun | None"]
"""Begins the span of a call, given the instrumentation and the arguments of the call; None for a call without one."""

End = Callable[[RecordedSpan, "BaseException | None"], None]
"""Ends the span of a call, given the error that ended the call, or None."""


@guarded("tracing a call of a library")
def begun(begin: Begin, active: Tracing | None, *args: Any, **kwargs: Any) -> Begun | None:
    """What ``begin`` returns; None if this process is not traced, or on failure."""
    return begin(active, *args, **kwargs) if active is not None else None


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
    with guarded("ending the span of a call of a library"):
        end(span, error)
    span.end()


def within(find: Callable[..., Any], doing: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that runs a method in the context that ``find`` returns for its arguments; in its own if that is
    None.
    """
    guard = guarded(doing)

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            token = None
            if tracing.active is not None:
                with guard:
                    context = find(*args, **kwargs)
                    token = attach(context) if context is not None else None
            try:
                with hidden_frame:
                    return original(*args, **kwargs)
            finally:
                if token is not None:
                    detach(token)

        return call

    return wrap


def followed_by(note: Callable[..., None], doing: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that calls ``note`` with the result of a method and its arguments once it has returned."""
    guard = guarded(doing)

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            with hidden_frame:
                result = original(*args, **kwargs)
            if tracing.active is not None:
                with guard:
                    note(result, *args, **kwargs)
            return result

        return call

    return wrap


def preceded_by(note: Callable[..., None], doing: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that calls ``note`` with the arguments of a method before it runs."""
    return within(note, doing)


def ended_by(note: Callable[..., None], doing: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that calls ``note`` with the error of a method, or None, and its arguments once it has ended."""
    noted = guarded(doing)(note)

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                noted(error, *args, **kwargs)
                raise
            noted(None, *args, **kwargs)
            return result

        return call

    return wrap


def in_context(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    """``function``, with ``context`` attached while it runs. Tracebacks are the same as without."""

    def run(*args: Any, **kwargs: Any) -> Any:
        token = attach(context)
        try:
            with hidden_frame:
                return function(*args, **kwargs)
        finally:
            detach(token)

    return run
