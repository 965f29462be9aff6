"""The global TracerProvider: a real SDK provider, built on first use.

Most workers never make a span with the API, and the SDK costs tens of milliseconds and megabytes to import. So the
global provider is in place from the start, and becomes an ``opentelemetry.sdk.trace.TracerProvider`` (its very class)
when code starts a span, adds a processor, or checks its type.
"""

from __future__ import annotations

import atexit
import copyreg
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from ray_tracing_hooks import names
from ray_tracing_hooks._safety.guard import failed, guarded, report, reports_held
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._version import __version__

if TYPE_CHECKING:
    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._record.sampling import KeepRule
    from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
    from ray_tracing_hooks._spool.writer import SpoolWriter


class PendingTracerProvider(trace.TracerProvider):
    """A provider that becomes the SDK's on first use."""

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
        # isinstance() reads it if the type itself does not match: the caller expects the SDK's provider.
        _bridge.build(self)
        return type(self)

    def __getattr__(self, name: str) -> Any:
        # Only called for attributes that this class lacks: those of the SDK's provider.
        if name.startswith("__") or not _bridge.build(self):
            raise AttributeError(name)
        return getattr(self, name)

    def __reduce__(self) -> Any:
        # Like the API's own stand-in, which programs have without tracing.
        return trace.get_tracer_provider, ()


class PendingTracer(trace.Tracer):
    """A tracer of a provider that is not built yet; the first span builds it."""

    def __init__(self, provider: PendingTracerProvider, arguments: tuple[Any, ...]) -> None:
        self._provider: Any = provider
        self._arguments = arguments
        self._tracer: trace.Tracer | None = None

    def _built(self) -> trace.Tracer:
        current = trace._TRACER_PROVIDER  # noqa: SLF001  on the user's hot path, where another call would cost
        if self._tracer is None or self._provider is not current:
            tracer = _bridge.tracer(current, self._arguments)
            if tracer is None:
                return trace.NoOpTracer()
            self._tracer, self._provider = tracer, current
        return self._tracer

    def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
        return self._built().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._built().start_as_current_span(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._built(), name)

    def __reduce__(self) -> Any:
        # Ray pickles module-level tracers with user code. That works without tracing, so it must work with it.
        return _get_tracer, self._arguments


def _get_tracer(name: str, version: str | None = None, schema_url: str | None = None, attributes: Any = None) -> Any:
    """The tracer with these arguments, in the process that unpickles it."""
    return trace.get_tracer_provider().get_tracer(name, version, schema_url, attributes)


def _reduce_sdk_tracer(tracer: Any) -> Any:
    scope = tracer._instrumentation_scope  # noqa: SLF001  there is no public way to ask a tracer for its scope
    attributes = dict(scope.attributes) if scope.attributes else None
    return _get_tracer, (scope.name, scope.version, scope.schema_url, attributes)


def _reduce_sdk_provider(provider: Any) -> Any:
    """Ours becomes that of the process that unpickles it. One of the program stays what it is."""
    return (trace.get_tracer_provider, ()) if _bridge.made(provider) else object.__reduce_ex__(provider, 4)


def _reduce_sdk_span(span: Any) -> Any:
    """A span of our provider becomes one that records nothing, with the same context, as without tracing."""
    if _bridge.made(trace._TRACER_PROVIDER):  # noqa: SLF001  the API's function would set one
        return trace.NonRecordingSpan, (span.get_span_context(),)
    return object.__reduce_ex__(span, 4)


def _named_provider() -> Any:
    """The provider that ``OTEL_PYTHON_TRACER_PROVIDER`` names, made global as the API does on first use.

    None if none is named, and for the SDK's own, which our provider becomes when needed.
    """
    if os.environ.get("OTEL_PYTHON_TRACER_PROVIDER", "") in {"", "sdk_tracer_provider"}:
        return None
    with guarded("loading the provider that OTEL_PYTHON_TRACER_PROVIDER names"):
        return trace.get_tracer_provider()
    return None


def _processors(provider: Any) -> tuple[Any, ...]:
    """The span processors of an SDK provider, for which there is no public API."""
    multi = getattr(provider, "_active_span_processor", None)
    return tuple(getattr(multi, "_span_processors", ()))


def _set_processors(provider: Any, processors: Sequence[Any]) -> None:
    """Replace the span processors of an SDK provider; there is no public API for that either."""
    multi: Any = getattr(provider, "_active_span_processor", None)
    if hasattr(multi, "_span_processors"):
        multi._span_processors = tuple(processors)  # noqa: SLF001


class Bridge:
    """The provider for spans of the API in this process, and where they go. There is one instance.

    The writers and the recorder are None while nothing is recorded.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_building = False
        """Whether a provider or a tracer is being created."""
        self._provider: PendingTracerProvider | None = None
        self._processor: SpoolSpanProcessor | None = None
        self._awaits_exit = False
        self._writer: SpoolWriter | None = None
        self._recorder: Recorder | None = None
        self._environ: Mapping[str, str] = os.environ
        self._records = True
        self._resource: dict[str, Any] = {}
        self._targets: Callable[[], frozenset[str]] = frozenset
        self._end_root: Callable[[], None] | None = None
        self._replaced: list[Any] = []
        """The program's span processors that were removed because we deliver to the same endpoint."""

    def before_fork(self) -> None:
        """Delay a fork while another thread imports the SDK: the child could never finish that import."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._provider is not None and "_tracers_lock" in vars(self._provider):
            # The SDK renews it after a fork, but not with shutdown_on_exit=False as here.
            vars(self._provider)["_tracers_lock"] = threading.Lock()
        if self._processor is not None:
            self._processor.after_fork_in_child()

    def install(
        self,
        recorder: Recorder,
        writer: SpoolWriter,
        resource: Mapping[str, Any],
        patches: Patches,
        targets: Callable[[], frozenset[str]] = frozenset,
        *,
        environ: Mapping[str, str] = os.environ,
        records: bool = True,
        continues: bool = False,
        end_root: Callable[[], None] | None = None,
    ) -> None:
        """Write spans of the API to ``writer`` from now on, and pass those of ``recorder`` to the program's span
        processors.

        Of spans that are not sampled, those are written that the rule of the ``recorder`` selects: of all that our
        provider makes, and of those of another provider that its sampler has recorded.

        A provider that is already global is extended, not replaced, and its sampler is used from then on. If there is
        none, ours becomes global; a provider that the user sets later takes its place and is extended in turn.
        ``targets`` returns our OTLP endpoints: a span processor that only sends to one of these is removed from the
        provider. ``environ`` names the sampler of our provider; without ``records`` only spans that have begun before
        are written. If the connection ``continues`` with another writer, spans that are open end with the one before.
        ``end_root`` ends the root span of a driver, if that is open: for processors of the program that are shut down
        at its exit, before Ray is.
        """
        with reports_held(), self._lock:
            self._environ, self._records = environ, records
            self._writer, self._recorder = writer, recorder
            self._resource, self._targets, self._end_root = dict(resource), targets, end_root
            current = trace._TRACER_PROVIDER or _named_provider()  # noqa: SLF001  the API's function would set one
            if self._processor is not None:
                self._write_to(self._processor, open_ones_stay=continues)
            if self._provider is not None and type(self._provider) is not PendingTracerProvider:
                with guarded("updating the TracerProvider of this process"):
                    self._renew(self._provider)
            if current is None:
                # Not with the API's function, which accepts only one provider: that may be the program's.
                trace._TRACER_PROVIDER = self._provider = PendingTracerProvider()  # noqa: SLF001
            elif type(current) is not PendingTracerProvider:
                self._join(current)
            # The function that the API's public one calls: programs import that with `from opentelemetry.trace import`.
            patches.wrap(trace, "_set_tracer_provider", self._set_tracer_provider)

    def uninstall(self) -> None:
        """Stop recording spans of the API. A provider of the program is restored to its original state.

        Our provider is removed, unless the program has added span processors to it.
        """
        with reports_held(), self._lock:
            self._writer = self._recorder = None
            self._end_root = None
            atexit.unregister(self._end_for_others)
            if self._processor is not None:
                from ray_tracing_hooks._sdk import tracers  # noqa: PLC0415  it is imported by now

                tracers.patches.undo()
                self._write_to(self._processor)
            current: Any = trace._TRACER_PROVIDER  # noqa: SLF001
            is_pending = type(current) is PendingTracerProvider
            is_ours = is_pending or (current is not None and current is self._provider)
            if is_ours and (is_pending or not (self._replaced or set(_processors(current)) > {self._processor})):
                if not is_pending:
                    current.shutdown()
                trace._TRACER_PROVIDER = self._provider = None  # noqa: SLF001
            else:
                self._leave(current)

    def _set_tracer_provider(self, original: Any) -> Any:
        def set_tracer_provider(tracer_provider: trace.TracerProvider, *args: Any, **kwargs: Any) -> None:
            before = trace._TRACER_PROVIDER  # noqa: SLF001
            original(tracer_provider, *args, **kwargs)
            with reports_held(), self._lock:
                was_ours = before is not None and before is self._provider
                # The API refuses a second provider of the program.
                if was_ours and trace._TRACER_PROVIDER is tracer_provider is not before:  # noqa: SLF001
                    self._join(tracer_provider)
                    self._hand_over(before, tracer_provider)

        return set_tracer_provider

    def _join(self, provider: Any) -> None:
        """Add our processor to the program's provider, if that accepts processors."""
        with guarded("adding a span processor to the program's own TracerProvider"):
            if not callable(getattr(provider, "add_span_processor", None)):
                return
            processor = self._shared_processor()
            if processor not in _processors(provider):
                provider.add_span_processor(processor)
            self._look_at_others(provider)
            sampler = getattr(provider, "sampler", None)
            if self._recorder is not None and sampler is not None and self._records:
                from ray_tracing_hooks._sdk.tracers import of_program  # noqa: PLC0415  imports the SDK

                self._recorder.sampler = of_program(sampler, self._environ) or self._recorder.sampler

    def _leave(self, provider: Any) -> None:
        """Undo :func:`_join`."""
        getattr(provider, "__dict__", {}).pop("add_span_processor", None)
        kept = [processor for processor in _processors(provider) if processor is not self._processor]
        _set_processors(provider, [*self._replaced, *kept])
        self._replaced.clear()

    def _hand_over(self, ours: Any, provider: Any) -> None:
        """Send spans of existing tracers of ``ours`` to the processors of ``provider`` from now on."""
        if type(ours) is not PendingTracerProvider and _processors(provider):
            others = [processor for processor in _processors(ours) if processor is not self._processor]
            _set_processors(ours, [*others, provider._active_span_processor])  # noqa: SLF001

    def _look_at_others(self, provider: Any) -> None:
        """Pass Ray's spans to the program's processors: the present ones, and those that are added later.

        A processor that only sends to an endpoint that we deliver to is removed, since all spans would arrive there
        twice: we record what it would get, and that survives the end of the process as well.
        """
        if self._recorder is None:
            return

        def watch(add: Any) -> Any:
            def add_span_processor(span_processor: Any) -> None:
                add(span_processor)
                with guarded("checking the program's own span processors"):
                    look()

            return add_span_processor

        def look() -> None:
            twice = {}
            others = [processor for processor in _processors(provider) if processor is not self._processor]
            if others and (targets := self._targets()):
                twice = {processor: target for processor in others if (target := _otlp_target(processor)) in targets}
            for processor, target in twice.items():
                others.remove(processor)
                self._replaced.append(processor)
                report(f"the program's own exporter to {target} is disabled, since ray_tracing_hooks sends to it too")
            if twice:
                _set_processors(provider, [self._processor, *others])
            strangers[:] = others
            if others:
                # Handlers run in the opposite order: before the one of the SDK that shuts these down.
                atexit.unregister(self._end_for_others)
                atexit.register(self._end_for_others)
            if self._recorder is not None:
                self._recorder.observer = forward if strangers else None

        def forward(encoded: bytes) -> None:
            from ray_tracing_hooks._formats.readable import decode  # noqa: PLC0415  needs the SDK

            try:
                span = decode(encoded, provider.resource, scope)
                for processor in strangers:
                    processor.on_end(span)
            except Exception as error:  # noqa: BLE001  a processor of the user must not break the traced call
                failed("passing a span of Ray to the program's own span processors", error)

        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

        strangers: list[Any] = []
        scope = InstrumentationScope(names.SCOPE, __version__)
        look()
        if "add_span_processor" not in vars(provider):
            provider.add_span_processor = watch(provider.add_span_processor)

    @property
    def _rule(self) -> KeepRule | None:
        """Which spans that are not sampled are written; None for none."""
        unsampled = self._recorder.unsampled if self._recorder is not None else None
        return unsampled.rule if unsampled is not None else None

    def made(self, provider: Any) -> bool:
        """Whether this provider is ours."""
        return provider is not None and provider is self._provider

    def has_open_spans(self) -> bool:
        """Whether spans of the API are open in this process."""
        return self._processor is not None and self._processor.has_open()

    def _exit(self) -> None:
        """Record that this process ends regularly, so that its open spans do not count as interrupted."""
        processor = self._processor
        if processor is not None and processor.has_open() and processor.writer is not None:
            processor.writer.exit()

    def _end_for_others(self) -> None:
        """End the root span of a driver while the program's own processors still take it."""
        if self._end_root is not None:
            with guarded("ending the root span"):
                self._end_root()
        if self._recorder is not None:
            self._recorder.observer = None

    def _shared_processor(self) -> SpoolSpanProcessor:
        if self._processor is None:
            from ray_tracing_hooks._settings.otel import import_sdk  # noqa: PLC0415  not in every worker

            import_sdk()
            from opentelemetry.sdk.trace import Span, Tracer, TracerProvider, _Span  # noqa: PLC0415

            from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor  # noqa: PLC0415  imports the SDK
            from ray_tracing_hooks._sdk.tracers import GuardedSpan, GuardedTracer  # noqa: PLC0415  imports the SDK

            # Ray pickles module-level tracers and providers with user code, and spans that it refers to.
            for tracer in (Tracer, GuardedTracer):
                copyreg.pickle(tracer, _reduce_sdk_tracer)
            copyreg.pickle(TracerProvider, _reduce_sdk_provider)
            for span in {Span, _Span, GuardedSpan}:
                copyreg.pickle(span, _reduce_sdk_span)
            self._processor = SpoolSpanProcessor()
        self._write_to(self._processor)
        from ray_tracing_hooks._sdk import tracers  # noqa: PLC0415  imports the SDK

        tracers.patch()
        return self._processor

    def _write_to(self, processor: SpoolSpanProcessor, *, open_ones_stay: bool = False) -> None:
        """Let the processor write to the current writers, if any."""
        processor.is_paused = not self._records
        processor.write_to(self._writer, self._rule, self._resource, open_ones_stay=open_ones_stay)
        if self._awaits_exit != (self._writer is not None):
            self._awaits_exit = not self._awaits_exit
            # Ray has registered its handler, which ends the connection, earlier: it runs after this one.
            (atexit.register if self._awaits_exit else atexit.unregister)(self._exit)

    def build(self, pending: PendingTracerProvider) -> bool:
        """Turn ``pending`` into an SDK provider, in place, so that all references become the real one.

        False in a signal handler or a finalizer that interrupts the creation of the provider, or of a tracer, in the
        same thread: the SDK is then half imported, or holds a lock.
        """
        with reports_held(), self._lock:
            if self._is_building:
                return False
            if type(pending) is not PendingTracerProvider:
                return True
            self._is_building = True
            try:
                self._build_now(pending)
            finally:
                self._is_building = False
        return True

    def _build_now(self, pending: PendingTracerProvider) -> None:
        from ray_tracing_hooks._settings.otel import import_sdk  # noqa: PLC0415  only now

        import_sdk()
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        from ray_tracing_hooks._sdk.tracers import (  # noqa: PLC0415
            IdGenerator,
            guard,
            limits_for_sdk,
            sampler_for_sdk,
        )

        # Limits and sampler are read here, since the SDK would raise, in the user's code, for some invalid values.
        real = TracerProvider(
            resource=Resource(self._resource),
            sampler=sampler_for_sdk(self._environ),
            id_generator=IdGenerator(),
            span_limits=limits_for_sdk(self._recorder.limits) if self._recorder is not None else None,
            # Otherwise `real` would stay alive, and with it its at-fork callback, which runs resource detectors in
            # threads: a child of a child hangs in that. The spool's writer updates the resource in a child.
            shutdown_on_exit=False,
        )
        # The SDK reads OTEL_SDK_DISABLED itself, and does not know of `ray-tracing-hooks enable`. Where nothing is
        # recorded, there is no provider of ours, or its sampler says no.
        real._disabled = False  # noqa: SLF001  there is no public way to say so
        real.sampler = self._sampler(real.sampler)
        processor = self._shared_processor()
        processor.own.add(real.resource)
        real.add_span_processor(processor)
        pending.__dict__.update(real.__dict__)
        # Bypasses the property of the same name.
        object.__dict__["__class__"].__set__(pending, TracerProvider)
        pending.__dict__["get_tracer"] = guard(pending.get_tracer)
        pending.__dict__["_atexit_handler"] = atexit.register(pending.shutdown)  # as the SDK does it
        self._look_at_others(pending)

    def _sampler(self, sampler: Any) -> Any:
        """The sampler, recording what it drops only while some of that is written."""
        from ray_tracing_hooks._sdk.tracers import RecordAll  # noqa: PLC0415  imports the SDK

        if isinstance(sampler, RecordAll):
            sampler = sampler.decides
        return RecordAll(sampler) if self._rule is not None else sampler

    def _renew(self, ours: Any) -> None:
        """Let our SDK provider, and the tracers that the program has of it, follow the current connection."""
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  it is imported by now

        from ray_tracing_hooks._sdk.tracers import limits_for_sdk, sampler_for_sdk  # noqa: PLC0415  as above

        # One that only the SDK can find stays.
        resource, sampler = Resource(self._resource), self._sampler(sampler_for_sdk(self._environ) or ours.sampler)
        self._shared_processor().own.add(resource)
        # Older versions of the SDK do not keep the tracers: those keep their Resource, which the processor replaces,
        # and their sampler.
        for tracer in [*getattr(ours, "_tracers", {}).values()]:
            if tracer.sampler is ours.sampler:
                tracer.sampler = sampler
            tracer.resource = resource
        ours.sampler, ours._resource = sampler, resource  # noqa: SLF001  there is no public way to change it
        if self._recorder is not None:
            # All tracers have this object.
            vars(ours._span_limits).update(vars(limits_for_sdk(self._recorder.limits)))  # noqa: SLF001  as above

    def tracer(self, provider: Any, arguments: tuple[Any, ...]) -> trace.Tracer | None:
        """The tracer of the global ``provider`` with these arguments; None where :meth:`build` returns False."""
        with reports_held(), self._lock:
            # Another provider may have been set since: the API's own proxy tracer would switch to it too.
            if self._is_building or (type(provider) is PendingTracerProvider and not self.build(provider)):
                return None
            # A handler that interrupts this must not get a tracer: the SDK holds a lock while it creates one.
            self._is_building = True
            try:
                tracer: trace.Tracer = _get_tracer(*arguments)
                return tracer
            finally:
                self._is_building = False


_bridge = Bridge()
"""One per process, like the API's global provider."""

os.register_at_fork(
    before=_bridge.before_fork,
    after_in_parent=_bridge.after_fork_in_parent,
    after_in_child=_bridge.after_fork_in_child,
)

install, uninstall, has_open_spans = _bridge.install, _bridge.uninstall, _bridge.has_open_spans


def _otlp_target(processor: Any) -> str | None:
    """The endpoint of this span processor, if all that it does is to send by OTLP; None for any other.

    ``host:port`` for gRPC, a URL for HTTP, as in our own settings. OpenTelemetry has no public API for it.
    """
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor  # noqa: PLC0415  heavy

    # A subclass of these may filter or change spans.
    if type(processor) not in {BatchSpanProcessor, SimpleSpanProcessor}:
        return None
    exporter = getattr(processor, "span_exporter", None)
    kind = type(exporter)
    if not kind.__module__.startswith("opentelemetry.exporter.otlp.proto.") or kind.__name__ != "OTLPSpanExporter":
        return None
    target = getattr(exporter, "_endpoint", None)
    return target if isinstance(target, str) else None
