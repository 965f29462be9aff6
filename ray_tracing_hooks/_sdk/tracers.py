"""The tracers, spans, samplers and limits of the SDK, for programs that use the API.

Imports the SDK: call :func:`~ray_tracing_hooks._settings.otel.import_sdk` first.

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
from opentelemetry.sdk.trace import SpanLimits as SdkLimits
from opentelemetry.sdk.trace import Tracer, TracerProvider, _Span, sampling
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.util._decorator import _agnosticcontextmanager

from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import is_over, note_within, since_end
from ray_tracing_hooks._record.sampling import Sampler
from ray_tracing_hooks._record.span import exception_attributes, message_of
from ray_tracing_hooks._safety.exceptions import class_name, hide_frame, is_interruption, traceback_of
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
from ray_tracing_hooks._settings import otel


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


# --- what a TracerProvider of the SDK and the recorder have from each other: limits, samplers and ids -----------------


def limits_for_sdk(limits: SpanLimits) -> SdkLimits:
    """The same limits for the SDK, which does not read them from the environment then: it raises for invalid values."""

    def given(limit: int | None) -> int:
        return SdkLimits.UNSET if limit is None else limit

    return SdkLimits(
        max_attributes=given(limits.attributes),
        max_events=given(limits.events),
        max_links=given(limits.links),
        max_span_attributes=given(limits.attributes),
        max_event_attributes=given(limits.event_attributes),
        max_link_attributes=given(limits.link_attributes),
        max_attribute_length=given(limits.other_value_length),
        max_span_attribute_length=given(limits.value_length),
    )


def sampler_for_sdk(environ: Mapping[str, str]) -> Any:
    """The built-in sampler that ``environ`` names, or None for one that the SDK has to find.

    The SDK would warn of an empty value, and of an invalid one that has already been reported.
    """
    name: str = otel.read("OTEL_TRACES_SAMPLER", environ, lambda _problem: None)
    base: Any = {"always_on": sampling.ALWAYS_ON, "always_off": sampling.ALWAYS_OFF}.get(
        name.removeprefix("parentbased_")
    )
    if name.endswith("traceidratio"):
        ratio = otel.read("OTEL_TRACES_SAMPLER_ARG", environ, lambda _problem: None)
        base = sampling.TraceIdRatioBased(1.0 if ratio is None else ratio)
    if base is None:
        return None
    return sampling.ParentBased(base) if name.startswith("parentbased_") else base


class RecordAll(sampling.Sampler):
    """Decides like another sampler, but records the spans that it drops, without sampling them.

    The trace flags still say not sampled, so callees do not treat it as sampled, and no span processor that follows the
    specification exports it.
    """

    def __init__(self, sampler: sampling.Sampler) -> None:
        self.decides = sampler

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> sampling.SamplingResult:
        result = self.decides.should_sample(parent_context, trace_id, name, kind, attributes, links)
        if result.decision is not sampling.Decision.DROP:
            return result
        return sampling.SamplingResult(sampling.Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        return self.decides.get_description()


class IdGenerator(RandomIdGenerator):
    """Uses a random generator that no program seeds.

    The SDK's uses :mod:`random`: workers that all call ``random.seed(0)`` would give their spans the same ids.
    """

    def generate_span_id(self) -> int:
        return int.from_bytes(ids.new_span_id(), "big")

    def generate_trace_id(self) -> int:
        return int.from_bytes(ids.new_trace_id(), "big")


def from_sdk() -> Sampler:
    """The SDK's sampler for ``OTEL_TRACES_SAMPLER``: an entry point, or the SDK's default for an invalid name.

    It is called with the trace id alone: a sampler that uses names or attributes decides on a root span without them.
    """
    # With explicit limits, since the SDK raises if those of the environment are invalid.
    return of_sdk(TracerProvider(shutdown_on_exit=False, span_limits=limits_for_sdk(SpanLimits())).sampler)


def of_program(sampler: Any, environ: Mapping[str, str]) -> Sampler | None:
    """The sampler of the program's own TracerProvider, or None if it is the one that ``environ`` names."""
    usual = sampler_for_sdk(environ)
    if usual is not None and usual.get_description() == sampler.get_description():
        return None
    return of_sdk(sampler)


def of_sdk(sampler: Any) -> Sampler:
    """Adapts a sampler of the SDK. It is called each time, since it may limit a rate. One that raises answers yes."""

    def root(trace_id: bytes) -> bool:
        return ask(None, trace_id)

    def child(parent_sampled: bool, trace_id: bytes) -> bool:
        span = trace.NonRecordingSpan(
            trace.SpanContext(
                int.from_bytes(trace_id, "big"),
                1,
                is_remote=False,
                trace_flags=trace.TraceFlags(1 if parent_sampled else 0),
            )
        )
        return ask(trace.set_span_in_context(span), trace_id)

    def ask(context: Any, trace_id: bytes) -> bool:
        try:
            result = sampler.should_sample(context, int.from_bytes(trace_id, "big"), "ray", trace.SpanKind.PRODUCER)
        except Exception as error:  # noqa: BLE001  code of the program, which must not fail the traced call
            failed("calling the sampler", error)
            return True
        return bool(result.decision is sampling.Decision.RECORD_AND_SAMPLE)

    return Sampler(root, child, is_constant=False)
