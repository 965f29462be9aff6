"""The propagators ``sw8`` and ``sw6``: a trace continues from and into processes that SkyWalking's agents trace.

A header refers to a span of another segment. What it says is kept in the context beside the remote span that is made of
it, so that the span below that one can be reported with exactly this reference. SkyWalking's trace id is often longer
than OpenTelemetry's; it travels in the trace state, under ``sw8``.
"""

from __future__ import annotations

import os
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context, get_current
from opentelemetry.propagators import textmap
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.skywalking import headers, ids
from ray_tracing_hooks._formats.skywalking.headers import Identity, Reference
from ray_tracing_hooks._record.current import OF_CALLER, REFERENCE_KEY, SPAN_KEY
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.private import read_file
from ray_tracing_hooks._spool.progress import decode, file_name

if TYPE_CHECKING:
    from ray_tracing_hooks._record.span import Parent
    from ray_tracing_hooks._ship.sinks.skywalking_settings import Settings


CORRELATION_KEY = "ray_tracing_hooks.skywalking_correlation"
EXTENSION_KEY = "ray_tracing_hooks.skywalking_extension"
"""The keys of the correlation context, a dict, and of whether the trace is left out of the metrics, in a context."""

TRACE_STATE_KEY = "sw8"
"""The key of SkyWalking's trace id in the trace state, where it is not that of OpenTelemetry in hexadecimal."""

_LONGEST_TRACE_STATE = 256
_SAMPLED = 0x01
_CALLS = (SpanKind.CLIENT, SpanKind.PRODUCER)
_ENTRIES = (SpanKind.SERVER, SpanKind.CONSUMER)

_random = random.SystemRandom()


class Bound(NamedTuple):
    """What a header said, and the remote span that stands for it in a context.

    Attributes:
        replaced: The span of another trace that another propagator had found, which becomes a link.
    """

    reference: Reference
    header: str
    trace_id: bytes
    span_id: bytes
    replaced: SpanContext | None = None

    def is_of(self, trace_id: bytes, span_id: bytes) -> bool:
        return self.span_id == span_id and self.trace_id == trace_id

    def attribute_of(self, parent: Parent) -> bytes:
        """The encoded fields of a span below ``parent``; empty if the header named another one."""
        if not self.is_of(parent.trace_id, parent.span_id):
            return b""
        encoded = encode.attribute(names.SKYWALKING_PARENT, self.header)
        link = self.replaced
        if link is None:
            return encoded
        ids_of_it = link.trace_id.to_bytes(16, "big"), link.span_id.to_bytes(8, "big")
        return encoded + encode.link(*ids_of_it, link.trace_state.to_header(), {}, remote=True)

    def mark(self, span: Any, parent: SpanContext) -> None:
        """The same for a span of the SDK."""
        if self.is_of(parent.trace_id.to_bytes(16, "big"), parent.span_id.to_bytes(8, "big")):
            span.set_attribute(names.SKYWALKING_PARENT, self.header)
            if self.replaced is not None:
                span.add_link(self.replaced)


def install(protocol: str) -> Callable[[], None]:
    """Add the propagator of this generation to the global ones, unless it is there; returns what takes it out again."""
    before = propagate.get_global_textmap()
    ours = (Sw6Propagator if protocol == headers.SW6 else Sw8Propagator)()
    if ours.fields <= before.fields:
        return lambda: None
    # The last one decides which trace goes on.
    installed = CompositePropagator([before, ours])
    propagate.set_global_textmap(installed)

    def uninstall() -> None:
        if propagate.get_global_textmap() is installed:
            propagate.set_global_textmap(before)

    return uninstall


class _SkyWalkingPropagator(textmap.TextMapPropagator):
    """Extracts and injects the headers of one generation of SkyWalking. Neither ever raises."""

    _header: str
    _others: tuple[str, ...] = ()
    _suppressing: str = ""
    """The header that keeps a receiver from tracing; empty where this generation has none."""
    _read: Callable[[str], Reference | None]
    """The reference in a header of this generation; None if it is malformed."""
    _write: Callable[[Reference], str]
    """The header of this generation for a reference."""

    @property
    def fields(self) -> set[str]:
        prefix = _process.local().prefix
        return {prefix + name for name in (self._header, *self._others)}

    def extract(
        self,
        carrier: textmap.CarrierT,
        context: Context | None = None,
        getter: textmap.Getter[textmap.CarrierT] = textmap.default_getter,
    ) -> Context:
        if context is None:
            context = get_current()
        try:
            return self._extract(_Reader(carrier, getter, _process.local().prefix), context)
        except Exception as error:  # noqa: BLE001  what a client sends must not fail the request
            failed("reading a header of SkyWalking", error)
            return context

    def inject(
        self,
        carrier: textmap.CarrierT,
        context: Context | None = None,
        setter: textmap.Setter[textmap.CarrierT] = textmap.default_setter,
    ) -> None:
        if context is None:
            context = get_current()
        try:
            local = self._local()
            for name, value in self._injected(context, local).items():
                setter.set(carrier, local.prefix + name, value)
        except Exception as error:  # noqa: BLE001  the program's request must be sent whatever fails here
            failed("writing a header of SkyWalking", error)

    def _local(self) -> Local:
        return _process.local()

    @abstractmethod
    def _of_span(self, span: trace.Span, context: SpanContext, bound: Bound | None, local: Local) -> Reference:
        """The reference to a span of this process."""

    @abstractmethod
    def _forwarded(self, reference: Reference, local: Local) -> Reference:
        """The reference for a call by a process that makes no span itself.

        With its own address: SkyWalking would otherwise take the receiver for the one that the caller has called.
        """

    def _extract(self, reader: _Reader, context: Context) -> Context:
        header, of_caller = reader.text(self._header), False
        if not header:
            header, of_caller = reader.text(self._header + OF_CALLER), True
        if not header:
            return context
        before = trace.get_current_span(context).get_span_context()
        if header == self._suppressing:
            return context if before.is_valid and before.is_remote else _unsampled(context)
        reference = self._read(header)
        if reference is None:
            return context
        trace_id, span_id = ids.trace_id_of(reference.trace_id), ids.span_id_of(reference.segment_id, reference.span)
        state, replaced = before.trace_state, None
        if before.is_valid and before.is_remote and before.trace_id == int.from_bytes(trace_id, "big"):
            found = before
            if not of_caller:
                # Another propagator has found the same parent, maybe by another name.
                span_id = before.span_id.to_bytes(8, "big")
        else:
            replaced, state = (before if before.is_valid and before.is_remote else None), TraceState()
            found = SpanContext(
                int.from_bytes(trace_id, "big"),
                int.from_bytes(span_id, "big"),
                is_remote=True,
                trace_flags=TraceFlags(_SAMPLED if reference.sampled else 0),
            )
        text = quote(reference.trace_id, safe="")
        is_derived = reference.trace_id in (ids.trace_text(trace_id), ids.trace_numbers(trace_id))
        if not is_derived and len(text) <= _LONGEST_TRACE_STATE:
            state = _with(state, text)
        found = SpanContext(found.trace_id, found.span_id, True, found.trace_flags, state)
        bound = Bound(reference, header, trace_id, span_id, replaced)
        return Context({**context, SPAN_KEY: NonRecordingSpan(found), REFERENCE_KEY: bound})

    def _injected(self, context: Context, local: Local) -> dict[str, str]:
        span = trace.get_current_span(context)
        found = span.get_span_context()
        if not found.is_valid:
            return {}
        sampled = bool(found.trace_flags & _SAMPLED)
        if not sampled and local.unsampled != "flag":
            return {self._header: self._suppressing} if local.unsampled == "suppress" and self._suppressing else {}
        bound = context.get(REFERENCE_KEY)
        trace_id, span_id = found.trace_id.to_bytes(16, "big"), found.span_id.to_bytes(8, "big")
        if not isinstance(bound, Bound) or bound.trace_id != trace_id:
            bound = None
        if bound is not None and bound.span_id == span_id and bound.reference.is_of_6 == (self._header == headers.SW6):
            reference = self._forwarded(bound.reference, local)
        else:
            reference = self._of_span(span, found, bound, local)
        return {self._header: self._write(reference._replace(sampled=sampled))}


class Sw8Propagator(_SkyWalkingPropagator):
    """SkyWalking 8.0 and newer."""

    _header = headers.SW8
    _others = (headers.SW8_CORRELATION, headers.SW8_EXTENSION)
    _suppressing = headers.UNSAMPLED
    _read, _write = staticmethod(headers.read_sw8), staticmethod(headers.write_sw8)

    def _extract(self, reader: _Reader, context: Context) -> Context:
        context = super()._extract(reader, context)
        more: dict[str, Any] = {}
        if correlation := headers.read_correlation(reader.text(headers.SW8_CORRELATION)):
            more[CORRELATION_KEY] = correlation
        skip = headers.skips_analysis(reader.text(headers.SW8_EXTENSION))
        if skip is not None:
            more[EXTENSION_KEY] = skip
        if not more:
            return context
        context = Context({**context, **more})
        if _process.local().correlation:
            for key, value in correlation.items():
                context = baggage.set_baggage(key, value, context)
        return context

    def _injected(self, context: Context, local: Local) -> dict[str, str]:
        injected = super()._injected(context, local)
        if not injected or injected[self._header] == headers.UNSAMPLED:
            return injected
        pairs = dict(_correlation_of(context))
        if local.correlation:
            pairs |= {key: str(value) for key, value in baggage.get_all(context).items()}
        if correlation := headers.write_correlation(pairs):
            injected[headers.SW8_CORRELATION] = correlation
        skip = context.get(EXTENSION_KEY)
        if skip is not None:
            injected[headers.SW8_EXTENSION] = headers.write_extension(skip=bool(skip))
        return injected

    def _of_span(self, span: trace.Span, context: SpanContext, bound: Bound | None, local: Local) -> Reference:
        trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
        name = _name_of(span, local)
        return Reference(
            _trace_text(context, bound) or ids.trace_text(trace_id),
            ids.segment_text(trace_id, span_id),
            0,
            True,
            local.identity.service,
            local.identity.instance,
            headers.cut(name, headers.LONGEST_ENDPOINT),
            _address(span, name, local),
        )

    def _forwarded(self, reference: Reference, local: Local) -> Reference:
        return reference._replace(address=headers.address({}, "?", local.identity.service))


class Sw6Propagator(_SkyWalkingPropagator):
    """SkyWalking 6.x and 7.x."""

    _header = headers.SW6
    _read, _write = staticmethod(headers.read_sw6), staticmethod(headers.write_sw6)

    def _local(self) -> Local:
        return _process.registered()

    def _of_span(self, span: trace.Span, context: SpanContext, bound: Bound | None, local: Local) -> Reference:
        trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
        text, name = _trace_text(context, bound), _name_of(span, local)
        # A back end of 6.x never lets go of a segment with the name of an endpoint that it does not come to know.
        is_known = local.is_reported and local.instance_id != headers.USER and getattr(span, "kind", None) in _ENTRIES
        here = f"#{headers.cut(name, headers.LONGEST_ENDPOINT)}" if is_known else headers.NO_ENDPOINT
        first = bound.reference if bound is not None and bound.reference.is_of_6 else None
        return Reference(
            text if text and ids.three_numbers(text) else ids.trace_numbers(trace_id),
            ids.segment_numbers(trace_id, span_id),
            0,
            True,
            "",
            "",
            "",
            f"#{_address(span, name, local)}",
            local.instance_id,
            first.entry_instance_id if first is not None else local.instance_id,
            first.entry_endpoint if first is not None else here,
            here,
        )

    def _forwarded(self, reference: Reference, local: Local) -> Reference:
        return reference._replace(address=f"#{headers.address({}, '?', local.identity.service)}")


class _Reader:
    """Reads headers whose names may be in any case."""

    def __init__(self, carrier: Any, getter: textmap.Getter[Any], prefix: str) -> None:
        self._carrier, self._getter, self._prefix = carrier, getter, prefix
        self._by_name: dict[str, str] | None = None

    def text(self, name: str) -> str:
        name = self._prefix + name
        values = self._getter.get(self._carrier, name)
        if not values:
            if self._by_name is None:
                self._by_name = {key.lower(): key for key in self._getter.keys(self._carrier)}
            key = self._by_name.get(name)
            values = self._getter.get(self._carrier, key) if key is not None else None
        return str(values[0]).strip() if values else ""


def _with(state: TraceState | None, text: str) -> TraceState:
    others = [pair for pair in (state or TraceState()).items() if pair[0] != TRACE_STATE_KEY]
    return TraceState([(TRACE_STATE_KEY, text), *others])


def _unsampled(context: Context) -> Context:
    found = SpanContext(_random.getrandbits(128) or 1, _random.getrandbits(64) or 1, is_remote=True)
    return Context({**context, SPAN_KEY: NonRecordingSpan(found)})


def _correlation_of(context: Context) -> Mapping[str, str]:
    found = context.get(CORRELATION_KEY)
    return found if isinstance(found, dict) else {}


def _trace_text(context: SpanContext, bound: Bound | None) -> str:
    """SkyWalking's own id of the trace; empty if it began here."""
    if bound is not None:
        return bound.reference.trace_id
    in_state = (context.trace_state or TraceState()).get(TRACE_STATE_KEY)
    return ids.in_trace_state(in_state, context.trace_id.to_bytes(16, "big")) if in_state else ""


def trace_text(context: Context, fallback: bytes = b"") -> str:
    """The id by which SkyWalking knows the trace of a context, for logs.

    Without a span in it, that of the trace with the id ``fallback``; empty if there is none either.
    """
    found = trace.get_current_span(context).get_span_context()
    own = found.trace_id.to_bytes(16, "big") if found.is_valid else fallback
    bound = context.get(REFERENCE_KEY)
    text = _trace_text(found, bound if isinstance(bound, Bound) and bound.trace_id == own else None)
    if text or not own:
        return text
    return ids.trace_numbers(own) if _process.local().is_of_6 else ids.trace_text(own)


def _name_of(span: trace.Span, local: Local) -> str:
    return str(getattr(span, "name", "") or local.identity.service)


def _address(span: trace.Span, name: str, local: Local) -> str:
    """The address that this span's call goes to. The span keeps it, since it is reported with exactly the same one."""
    is_call = getattr(span, "kind", None) in _CALLS
    attributes = getattr(span, "attributes", None) if is_call else None
    found = headers.address(attributes or {}, name, local.identity.service)
    if is_call and span.is_recording():
        span.set_attribute(names.SKYWALKING_PEER, found)
    return found


_LOOK_SECONDS = 1.0
"""How often a process looks whether its instance has been registered."""
_LOOK_AGAIN_SECONDS = 30.0
"""How often it looks after that: a back end that has lost its storage gives out another id."""


class Local(NamedTuple):
    """What headers say of this process, and how they are written."""

    identity: Identity
    prefix: str = ""
    unsampled: str = "omit"
    correlation: bool = False
    instance_id: int = headers.USER
    is_of_6: bool = False
    spool: str | None = None
    """The spool folder, where the exporter stores the id that the back end has given to this instance."""
    is_reported: bool = False
    """Whether the spans of this process are sent to SkyWalking, so that it knows their names."""

    @classmethod
    def of(
        cls, settings: Settings, resource: Mapping[str, Any], spool: str | None = None, *, is_reported: bool = False
    ) -> Local:
        """By the settings, in a process with this resource."""
        is_of_6 = settings.protocol == headers.SW6
        of_deployment = None if is_of_6 else settings.deployment_service
        return cls(
            headers.identity(resource, settings.service, settings.instance, settings.namespace, of_deployment),
            f"{settings.header_prefix.lower()}-" if settings.header_prefix else "",
            settings.unsampled,
            settings.correlation,
            settings.instance_id or headers.USER,
            is_of_6,
            spool if settings.instance_id is None else None,
            is_reported,
        )


class _Process:
    """What this process is called. A hook says it; in a process without one, the environment does."""

    def __init__(self) -> None:
        self._local: Local | None = None
        self._look_at = 0.0

    def become(self, local: Local | None) -> None:
        self._local, self._look_at = local, 0.0

    def registered(self) -> Local:
        """The same, with the id of the instance as soon as the exporter has registered it."""
        local = self.local()
        if local.spool is None or monotonic() < self._look_at:
            return local
        self._look_at = monotonic() + _LOOK_SECONDS
        try:
            state = decode(read_file(os.path.join(local.spool, file_name("skywalking")))).state
        except (OSError, ValueError, TypeError, KeyError):
            return local  # nothing has been delivered yet
        found = headers.registered_in(state).get(local.identity)
        if found is not None:
            self._look_at = monotonic() + _LOOK_AGAIN_SECONDS
            local = self._local = local._replace(instance_id=found[1])
        return local

    def local(self) -> Local:
        if self._local is None:
            import socket  # noqa: PLC0415  few processes need it

            from ray_tracing_hooks._sdk import resource  # noqa: PLC0415  as above
            from ray_tracing_hooks._settings import table  # noqa: PLC0415  as above
            from ray_tracing_hooks._ship.sinks.skywalking_settings import Settings  # noqa: PLC0415  as above

            settings = table.load(os.environ, _ignore).of(Settings)
            detected = {"service.name": "unknown_service", "host.name": socket.gethostname()}
            self._local = Local.of(settings, detected | resource.from_environment(os.environ))
        return self._local


def _ignore(_problem: str) -> None:
    """A hook reports it."""


_process = _Process()

become = _process.become
"""Set what headers say of this process; None lets the environment say it."""
