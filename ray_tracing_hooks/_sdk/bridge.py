"""The global TracerProvider: a real SDK provider, built when it is first needed.

Most workers never make a span by the API, and the SDK costs tens of milliseconds and megabytes to import. So the global
provider is there from the start and becomes a ``opentelemetry.sdk.trace.TracerProvider`` (its very class) when somebody
starts a span, adds a processor, or asks what it is.
"""

from __future__ import annotations

import atexit
import copyreg
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from ray_tracing_hooks import __version__, names
from ray_tracing_hooks._guard import failed, guarded, report
from ray_tracing_hooks._patching import Patches

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
    from ray_tracing_hooks._spool.writer import SpoolWriter

_lock = threading.RLock()
_is_building = False
_provider: PendingTracerProvider | None = None
_processor: SpoolSpanProcessor | None = None
_writer: SpoolWriter | None = None
_undecided: SpoolWriter | None = None
_recorder: Recorder | None = None
_resource: dict[str, Any] = {}
_targets: Callable[[], frozenset[str]] = frozenset
_replaced: list[Any] = []
"""Span processors of the program's that we do the work of."""


def _hold() -> None:
    _lock.acquire()


def _let_go() -> None:
    _lock.release()


def _renew() -> None:
    global _lock  # noqa: PLW0603  the old one is held by a thread that the child has not
    _lock = threading.RLock()
    if _provider is not None and "_tracers_lock" in vars(_provider):
        # One of the SDK's, which renews it where it has not been told off, as here.
        vars(_provider)["_tracers_lock"] = threading.Lock()
    if _processor is not None:
        _processor.after_fork_in_child()


# No fork while the SDK is being imported in another thread: the child could never finish that import.
os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_renew)


def install(
    recorder: Recorder,
    writer: SpoolWriter,
    resource: Mapping[str, Any],
    patches: Patches,
    targets: Callable[[], frozenset[str]] = frozenset,
    undecided: SpoolWriter | None = None,
) -> None:
    """From now on spans of the API go to ``writer``, and those of ``recorder`` reach the span processors of others.

    With ``undecided`` those that are not sampled go there: all that our provider makes, and of another provider's those
    that its sampler has recorded.

    A provider that is already global is joined, not replaced, and its sampler is asked from then on. Where there is
    none ours becomes it; a provider that the user sets later takes its place and is joined in turn. ``targets`` tells
    what we deliver to by OTLP: a span processor that would only send there as well is taken out of the provider.
    """
    global _writer, _undecided, _resource, _provider, _recorder, _targets  # noqa: PLW0603  one, as the provider
    with _lock:
        _writer, _undecided, _resource, _recorder, _targets = writer, undecided, dict(resource), recorder, targets
        current = trace._TRACER_PROVIDER or _named_provider()  # noqa: SLF001  through the API it would become ours
        if _processor is not None:
            _processor.writer, _processor.undecided = writer, undecided
        if current is None:
            _provider = PendingTracerProvider()
            trace.set_tracer_provider(_provider)
        elif type(current) is not PendingTracerProvider:
            _join(current)
        patches.wrap(trace, "set_tracer_provider", _set_tracer_provider)


def uninstall() -> None:
    """Spans of the API are not recorded any more. A provider of the program's is left as it was found.

    Ours makes room for another, unless the program has added span processors to it.
    """
    global _writer, _undecided, _recorder, _provider  # noqa: PLW0603
    with _lock:
        _writer = _undecided = _recorder = None
        if _processor is not None:
            _processor.writer = _processor.undecided = None
        current: Any = trace._TRACER_PROVIDER  # noqa: SLF001
        is_pending = type(current) is PendingTracerProvider
        is_ours = is_pending or (current is not None and current is _provider)
        if is_ours and (is_pending or not (_replaced or set(_processors(current)) > {_processor})):
            if not is_pending:
                current.shutdown()
            trace._TRACER_PROVIDER = _provider = None  # noqa: SLF001
            trace._TRACER_PROVIDER_SET_ONCE = type(trace._TRACER_PROVIDER_SET_ONCE)()  # noqa: SLF001
        else:
            _leave(current)


def _named_provider() -> Any:
    """The provider that ``OTEL_PYTHON_TRACER_PROVIDER`` names, made global as the API would at its first use.

    None where none is named, and for the SDK's own, which ours becomes when it is needed.
    """
    if os.environ.get("OTEL_PYTHON_TRACER_PROVIDER", "") in {"", "sdk_tracer_provider"}:
        return None
    with guarded("loading the provider that OTEL_PYTHON_TRACER_PROVIDER names"):
        return trace.get_tracer_provider()
    return None


def _set_tracer_provider(original: Any) -> Any:
    def set_tracer_provider(tracer_provider: trace.TracerProvider) -> None:
        with _lock:
            # Without us the user's provider would have been the first one, and accepted.
            if _provider is not None and trace._TRACER_PROVIDER is _provider:  # noqa: SLF001
                trace._TRACER_PROVIDER = tracer_provider  # noqa: SLF001
                _join(tracer_provider)
                _hand_over(_provider, tracer_provider)
                return
        original(tracer_provider)

    return set_tracer_provider


def _join(provider: Any) -> None:
    """Add our processor to a provider of somebody else's, if it is one that takes processors."""
    with guarded("joining the program's own TracerProvider"):
        if not callable(getattr(provider, "add_span_processor", None)):
            return
        processor = _shared_processor()
        if processor not in _processors(provider):
            provider.add_span_processor(processor)
        _look_at_others(provider)
        sampler = getattr(provider, "sampler", None)
        if _recorder is not None and sampler is not None:
            from ray_tracing_hooks._sdk.sampling import of_program  # noqa: PLC0415  imports the SDK

            _recorder.sampler = of_program(sampler, os.environ) or _recorder.sampler


def _leave(provider: Any) -> None:
    """Take out again what :func:`_join` has put into a provider."""
    getattr(provider, "__dict__", {}).pop("add_span_processor", None)
    kept = [processor for processor in _processors(provider) if processor is not _processor]
    _set_processors(provider, [*_replaced, *kept])
    _replaced.clear()


def _hand_over(ours: Any, provider: Any) -> None:
    """What tracers of ``ours`` that are in use make from now on goes to the processors of ``provider``."""
    if type(ours) is not PendingTracerProvider and _processors(provider):
        others = [processor for processor in _processors(ours) if processor is not _processor]
        _set_processors(ours, [*others, provider._active_span_processor])  # noqa: SLF001


def _processors(provider: Any) -> tuple[Any, ...]:
    """The span processors of an SDK provider; it has no public way to tell them."""
    multi = getattr(provider, "_active_span_processor", None)
    return tuple(getattr(multi, "_span_processors", ()))


def _set_processors(provider: Any, processors: Sequence[Any]) -> None:
    """Nor to take one out."""
    multi: Any = getattr(provider, "_active_span_processor", None)
    if hasattr(multi, "_span_processors"):
        multi._span_processors = tuple(processors)  # noqa: SLF001


def _look_at_others(provider: Any) -> None:
    """Hand Ray's spans to the processors of others: those that are there, and those that are added later.

    One that only sends to where we deliver is taken out, since all would arrive there twice: what it got is recorded by
    us, and survives the end of the process as well.
    """
    if _recorder is None:
        return

    def watch(add: Any) -> Any:
        def add_span_processor(span_processor: Any) -> None:
            add(span_processor)
            with guarded("looking at the program's own span processors"):
                look()

        return add_span_processor

    def look() -> None:
        twice = {}
        others = [processor for processor in _processors(provider) if processor is not _processor]
        if others and (targets := _targets()):
            from ray_tracing_hooks._sdk.duplicates import otlp_target  # noqa: PLC0415  needed by few programs

            twice = {processor: target for processor in others if (target := otlp_target(processor)) in targets}
        for processor, target in twice.items():
            others.remove(processor)
            _replaced.append(processor)
            report(f"the program's own exporter to {target} is left out, since we send there too: spans arrive once")
        if twice:
            _set_processors(provider, [_processor, *others])
        strangers[:] = others
        if _recorder is not None:
            _recorder.observer = forward if strangers else None

    def forward(encoded: bytes) -> None:
        from ray_tracing_hooks._sdk.readable import decode  # noqa: PLC0415  needs the SDK

        try:
            span = decode(encoded, provider.resource, scope)
            for processor in strangers:
                processor.on_end(span)
        except Exception as error:  # noqa: BLE001  a processor of the user's must not break the call that it is told of
            failed("handing a span of Ray's to the program's own span processors", error)

    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    strangers: list[Any] = []
    scope = InstrumentationScope(names.SCOPE, __version__)
    look()
    if "add_span_processor" not in vars(provider):
        provider.add_span_processor = watch(provider.add_span_processor)


def _shared_processor() -> SpoolSpanProcessor:
    global _processor  # noqa: PLW0603
    if _processor is None:
        from opentelemetry.sdk.trace import Tracer  # noqa: PLC0415

        from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor  # noqa: PLC0415  imports the SDK

        copyreg.pickle(Tracer, _reduce_sdk_tracer)
        _processor = SpoolSpanProcessor()
    _processor.writer, _processor.undecided = _writer, _undecided
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
        _build(self)
        return type(self)

    def __getattr__(self, name: str) -> Any:
        # Only called for what this class has not: an attribute of the SDK's provider.
        if name.startswith("__") or not _build(self):
            raise AttributeError(name)
        return getattr(self, name)


class PendingTracer(trace.Tracer):
    """A tracer of a provider that is not built yet; the first span builds it."""

    def __init__(self, provider: PendingTracerProvider, arguments: tuple[Any, ...]) -> None:
        self._provider: Any = provider
        self._arguments = arguments
        self._tracer: trace.Tracer | None = None

    def _built(self) -> trace.Tracer:
        current = trace._TRACER_PROVIDER  # noqa: SLF001  in the user's code, where a call more would cost
        if self._tracer is None or self._provider is not current:
            global _is_building  # noqa: PLW0603  as the provider
            with _lock:
                # Another provider may have been set since, and without us this tracer would be one of it.
                if _is_building or (type(current) is PendingTracerProvider and not _build(current)):
                    return trace.NoOpTracer()
                # Who comes in between here must not ask for a tracer: the SDK holds a lock while it makes one.
                _is_building = True
                try:
                    self._tracer = _get_tracer(*self._arguments)
                    self._provider = current
                finally:
                    _is_building = False
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


def _build(pending: PendingTracerProvider) -> bool:
    """Make ``pending`` an SDK provider, in place: whoever holds it holds the real one from then on.

    False for a signal handler or a finalizer that comes while it, or a tracer of it, is being made in the same thread:
    the SDK is half imported then, or holds a lock.
    """
    global _is_building  # noqa: PLW0603  as the provider
    with _lock:
        if _is_building:
            return False
        if type(pending) is not PendingTracerProvider:
            return True
        _is_building = True
        try:
            _build_now(pending)
        finally:
            _is_building = False
    return True


def _build_now(pending: PendingTracerProvider) -> None:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  this is what was put off
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    from ray_tracing_hooks._sdk.ids import IdGenerator  # noqa: PLC0415
    from ray_tracing_hooks._sdk.limits import limits_for_sdk  # noqa: PLC0415
    from ray_tracing_hooks._sdk.sampling import sampler_for_sdk  # noqa: PLC0415

    # Limits and sampler are read here, since the SDK raises, in the user's code, where some of them are wrong.
    real = TracerProvider(
        resource=Resource(_resource),
        sampler=sampler_for_sdk(os.environ),
        id_generator=IdGenerator(),
        span_limits=limits_for_sdk(_recorder.limits) if _recorder is not None else None,
        # Or `real` would stay, and with it its at-fork callback, which asks resource detectors in threads: a child of a
        # child hangs in that. What is different in a child, the spool's writer knows.
        shutdown_on_exit=False,
    )
    if _undecided is not None:
        from ray_tracing_hooks._sdk.undecided import RecordAll  # noqa: PLC0415  asked for by few

        real.sampler = RecordAll(real.sampler)
    real.add_span_processor(_shared_processor())
    pending.__dict__.update(real.__dict__)
    # Past the property of the same name.
    object.__dict__["__class__"].__set__(pending, TracerProvider)
    pending.__dict__["_atexit_handler"] = atexit.register(pending.shutdown)  # as the SDK does it
    _look_at_others(pending)
