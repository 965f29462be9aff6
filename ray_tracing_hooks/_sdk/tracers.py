"""The tracers and spans of the SDK, for programs that use the API.

Spans of our provider never fail the program, and have the time of the system. They exist only because of this package:
without it, the API's calls do nothing. So whatever a program passes to them, it sees no error but its own. The SDK's
spans call ``str()`` on values and on exceptions, which may raise, and read a clock that a test may have frozen.

Spans that begin without a named parent, by ``Tracer.start_span`` of any provider of the SDK, begin a trace of their
own in a context whose span is over, as Ray's calls do (``is_over`` in ``_record/recorder.py``). A span for which the
program names the context stays below the span of that. Each span knows the call or request that it is within.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer, _Span
from opentelemetry.util._decorator import _agnosticcontextmanager

from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import is_over, note_within, since_end
from ray_tracing_hooks._record.span import exception_attributes, message_of
from ray_tracing_hooks._safety.exceptions import class_name, hide_frame, is_interruption, traceback_of
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor


class GuardedSpan(_Span):
    def set_attribute(self, key: str, value: Any) -> None:
        try:
            super().set_attribute(key, value)
        except Exception as error:  # noqa: BLE001  the user's value may be anything, and must not fail the program
            failed("setting an attribute", error)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        try:
            super().set_attributes(attributes)
        except Exception as error:  # noqa: BLE001  as above
            failed("setting attributes", error)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        try:
            super().add_event(message_of(name), attributes, now_ns() if timestamp is None else timestamp)
        except Exception as error:  # noqa: BLE001  as above
            failed("adding an event", error)

    def add_link(self, context: trace.SpanContext, attributes: Any = None) -> None:
        try:
            super().add_link(context, attributes)
        except Exception as error:  # noqa: BLE001  as above
            failed("adding a link", error)

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        try:
            super().set_status(status, description)
        except Exception as error:  # noqa: BLE001  as above
            failed("setting a status", error)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Any = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        try:
            details = exception_attributes(exception, traceback_of(exception))
            details["exception.escaped"] = str(escaped)
            details.update(attributes or {})
        except Exception as error:  # noqa: BLE001  as above
            failed("recording an exception", error)
            return
        self.add_event("exception", details, timestamp)

    def fail(self, error: BaseException, *, record: bool, set_status: bool, escaped: bool = False) -> None:
        """Add an error of the program that has left the block of this span, as the SDK does."""
        if not self.is_recording():
            return
        if record:
            self.record_exception(error, escaped=escaped)
        if set_status:
            self.set_status(trace.StatusCode.ERROR, f"{class_name(error)}: {message_of(error)}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error, record=self._record_exception, set_status=self._set_status_on_exception, escaped=True)
        self.end()

    def end(self, end_time: int | None = None) -> None:
        try:
            super().end(now_ns() if end_time is None else end_time)
        except BaseException:
            # A signal handler may have raised when the span had its end already, so nobody ends it again.
            if self.end_time is not None:
                for processor in getattr(self._span_processor, "_span_processors", ()):
                    if isinstance(processor, SpoolSpanProcessor):
                        processor.finish(self._readable_span())
            raise


class GuardedTracer(Tracer):
    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        attributes: Any = None,
        links: Sequence[trace.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        at = now_ns() if start_time is None else start_time
        options = record_exception, set_status_on_exception
        try:
            return _guarded(super().start_span(name, context, kind, attributes, links, at, *options))
        except Exception as error:
            if is_interruption(error):
                raise
        try:
            # Each of these may be what has failed.
            span = _guarded(super().start_span(name, context, kind, None, None, at, *options))
            for key, value in (attributes or {}).items():
                span.set_attribute(key, value)
            for link in links or ():
                span.add_link(link.context, link.attributes)
        except Exception as error:  # noqa: BLE001  what the user passes may be anything
            failed("starting a span", error)
            return trace.INVALID_SPAN
        return span

    @_agnosticcontextmanager
    def start_as_current_span(
        self,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        attributes: Any = None,
        links: Sequence[trace.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Iterator[trace.Span]:
        options = record_exception, set_status_on_exception
        span = self.start_span(name, context, kind, attributes, links, start_time, *options)
        # The API's function would put the text of an error into the status itself, whatever class the span has, and
        # swallow what a signal handler raises while it restores the context.
        try:
            token = attach(trace.set_span_in_context(span))
            try:
                yield span
            finally:
                detach(token)
        except Exception as error:
            if isinstance(span, GuardedSpan):
                span.fail(error, record=record_exception, set_status=set_status_on_exception)
            raise
        finally:
            if end_on_exit:
                span.end()


def _guarded(span: trace.Span) -> trace.Span:
    if type(span) is _Span:
        span.__class__ = GuardedSpan
    return span


def guard(get_tracer: Any) -> Any:
    """Make the tracers guarded that this method of a provider of the SDK returns."""

    def get_guarded_tracer(*args: Any, **kwargs: Any) -> trace.Tracer:
        tracer: trace.Tracer = get_tracer(*args, **kwargs)
        # The SDK makes its tracers itself, and keeps them.
        if type(tracer) is Tracer:
            tracer.__class__ = GuardedTracer
        return tracer

    return get_guarded_tracer


def _start_span(original: Callable[..., trace.Span]) -> Callable[..., trace.Span]:
    @functools.wraps(original)
    def start_span(
        self: Any,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[trace.Link] | None = (),
        *rest: Any,
        **options: Any,
    ) -> trace.Span:
        if context is None:
            try:
                current = get_current()
                span: Any = current.get(SPAN_KEY)
                if is_over(span):
                    described = {**since_end(span), **(attributes or {})}
                    linked = (trace.Link(span.get_span_context()), *(links or ()))
                    apart = trace.set_span_in_context(trace.INVALID_SPAN, current)
                    context, attributes, links = apart, described, linked
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's program
                failed("beginning a span", error)
        try:
            begun = original(self, name, context, kind, attributes, links, *rest, **options)
        except BaseException as error:
            if not is_interruption(error):  # which is recognized by the frame that it has interrupted
                hide_frame(error)
            raise
        try:
            note_within(begun, get_current())
        except Exception as error:  # noqa: BLE001  as above
            failed("beginning a span", error)
        return begun

    return start_span


patches = Patches(shared=True)


def patch() -> None:
    """Wrap the tracers of all providers of the SDK, until :data:`patches` are undone."""
    patches.wrap(Tracer, "start_span", _start_span)
