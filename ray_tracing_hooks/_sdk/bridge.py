"""The global TracerProvider: a real SDK provider, built when it is first needed.

Most workers never make a span by the API, and the SDK costs tens of milliseconds and megabytes to import. So the global
provider is there from the start and becomes a ``opentelemetry.sdk.trace.TracerProvider`` (its very class) when somebody
starts a span, adds a processor, or asks what it is.
"""

from __future__ import annotations

import copyreg
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from ray_tracing_hooks import __version__, names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
    from ray_tracing_hooks._spool.writer import SpoolWriter

_lock = threading.RLock()
_provider: PendingTracerProvider | None = None
_processor: SpoolSpanProcessor | None = None
_writer: SpoolWriter | None = None
_recorder: Recorder | None = None
_resource: dict[str, Any] = {}


def install(recorder: Recorder, writer: SpoolWriter, resource: Mapping[str, Any], patches: Patches) -> None:
    """From now on spans of the API go to ``writer``, and those of ``recorder`` reach the span processors of others.

    A provider that is already global is joined, not replaced. Where there is none ours becomes it; a provider that the
    user sets later takes its place and is joined in turn.
    """
    global _writer, _resource, _provider, _recorder  # noqa: PLW0603  the global provider is one, and so is this
    with _lock:
        _writer, _resource, _recorder = writer, dict(resource), recorder
        current = trace._TRACER_PROVIDER  # noqa: SLF001  reading it through the API would load one from the environment
        if _processor is not None:
            _processor.writer = writer
        if current is None:
            _provider = PendingTracerProvider()
            trace.set_tracer_provider(_provider)
        elif current is not _provider:
            _join(current)
        elif type(current) is not PendingTracerProvider:
            _observe_for_others(current)
        patches.wrap(trace, "set_tracer_provider", _set_tracer_provider)


def _set_tracer_provider(original: Any) -> Any:
    def set_tracer_provider(tracer_provider: trace.TracerProvider) -> None:
        with _lock:
            # Without us the user's provider would have been the first one, and accepted.
            if _provider is not None and trace._TRACER_PROVIDER is _provider:  # noqa: SLF001
                trace._TRACER_PROVIDER = tracer_provider  # noqa: SLF001
                _join(tracer_provider)
                return
        original(tracer_provider)

    return set_tracer_provider


def _join(provider: Any) -> None:
    """Add our processor to a provider of somebody else's, if it is one that takes processors."""
    if not callable(getattr(provider, "add_span_processor", None)):
        return
    processor = _shared_processor()
    if processor not in _processors(provider):
        provider.add_span_processor(processor)
    _observe_for_others(provider)


def _processors(provider: Any) -> tuple[Any, ...]:
    """The span processors of an SDK provider; it has no public way to tell them."""
    multi = getattr(provider, "_active_span_processor", None)
    return tuple(getattr(multi, "_span_processors", ()))


def _observe_for_others(provider: Any) -> None:
    """Hand Ray's spans to the processors of others: those that are there, and those that are added later."""
    if _recorder is None:
        return

    def watch(add: Any) -> Any:
        def add_span_processor(span_processor: Any) -> None:
            add(span_processor)
            if _recorder is not None:
                _recorder.observer = forward

        return add_span_processor

    def forward(encoded: bytes) -> None:
        from ray_tracing_hooks._sdk.readable import decode  # noqa: PLC0415  needs the SDK

        try:
            span = decode(encoded, provider.resource, scope)
            for processor in _processors(provider):
                if processor is not _processor:
                    processor.on_end(span)
        except Exception as error:  # noqa: BLE001  a processor of the user's must not break the call that it is told of
            failed("handing a span of Ray's to the program's own span processors", error)

    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    scope = InstrumentationScope(names.SCOPE, __version__)
    if any(processor is not _processor for processor in _processors(provider)):
        _recorder.observer = forward
    elif "add_span_processor" not in vars(provider):
        provider.add_span_processor = watch(provider.add_span_processor)


def _shared_processor() -> SpoolSpanProcessor:
    global _processor  # noqa: PLW0603
    if _processor is None:
        from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor  # noqa: PLC0415  imports the SDK

        _processor = SpoolSpanProcessor()
    _processor.writer = _writer
    return _processor


class PendingTracerProvider(trace.TracerProvider):
    """A provider that becomes the SDK's when it is first needed."""

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Any = None,
    ) -> trace.Tracer:
        if type(self) is not PendingTracerProvider:  # another thread has just built it
            return self.get_tracer(instrumenting_module_name, instrumenting_library_version, schema_url, attributes)
        return PendingTracer(self, (instrumenting_module_name, instrumenting_library_version, schema_url, attributes))

    @property  # type: ignore[misc]  # mypy takes it for a variable
    def __class__(self) -> type:
        # What isinstance() asks after the type itself: whoever asks wants the real thing.
        return type(_build(self))

    def __getattr__(self, name: str) -> Any:
        # Only called for what this class has not: an attribute of the SDK's provider.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_build(self), name)


class PendingTracer(trace.Tracer):
    """A tracer of a provider that is not built yet; the first span builds it."""

    def __init__(self, provider: PendingTracerProvider, arguments: tuple[Any, ...]) -> None:
        self._provider = provider
        self._arguments = arguments
        self._tracer: trace.Tracer | None = None

    def _built(self) -> trace.Tracer:
        if self._tracer is None:
            self._tracer = _build(self._provider).get_tracer(*self._arguments)
        return self._tracer

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
        return self._built().start_span(
            name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
        )

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._built().start_as_current_span(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._built(), name)

    def __reduce__(self) -> Any:
        # Module-level tracers end up in what Ray pickles. Without tracing they can be pickled, so with it they must be.
        return _get_tracer, self._arguments


def _get_tracer(name: str, version: str | None = None, schema_url: str | None = None, attributes: Any = None) -> Any:
    """The tracer of these arguments in the process that unpickles one."""
    return trace.get_tracer_provider().get_tracer(name, version, schema_url, attributes)


def _reduce_sdk_tracer(tracer: Any) -> Any:
    scope = tracer._instrumentation_scope  # noqa: SLF001  there is no public way to ask a tracer for its scope
    attributes = dict(scope.attributes) if scope.attributes else None
    return _get_tracer, (scope.name, scope.version, scope.schema_url, attributes)


def _build(pending: PendingTracerProvider) -> Any:
    """Make ``pending`` an SDK provider, in place: whoever holds it holds the real one from then on."""
    with _lock:
        if type(pending) is not PendingTracerProvider:
            return pending
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  this is what was put off
        from opentelemetry.sdk.trace import Tracer, TracerProvider  # noqa: PLC0415

        from ray_tracing_hooks._sdk.limits import limits_for_sdk  # noqa: PLC0415
        from ray_tracing_hooks._sdk.sampling import sampler_for_sdk  # noqa: PLC0415

        copyreg.pickle(Tracer, _reduce_sdk_tracer)
        # Limits and sampler are read here, since the SDK raises, in the user's code, where some of them are wrong.
        real = TracerProvider(
            resource=Resource(_resource),
            sampler=sampler_for_sdk(os.environ),
            span_limits=limits_for_sdk(_recorder.limits) if _recorder is not None else None,
        )
        real.add_span_processor(_shared_processor())
        # A weak at-fork callback of `real` would go with it; the resource of a child is then its parent's.
        pending.__dict__.update(real.__dict__)
        # Past the property of the same name.
        object.__dict__["__class__"].__set__(pending, TracerProvider)
        _observe_for_others(pending)
        return pending
