"""The span processor of this package, which encodes spans of the SDK and writes them to the same spool as Ray's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import StatusCode

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record.current import REFERENCE_KEY, get_current
from ray_tracing_hooks._record.recorder import SAMPLED
from ray_tracing_hooks._record.span import message_of
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._spool.layout import U16

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource

    from ray_tracing_hooks._record.sampling import KeepRule
    from ray_tracing_hooks._spool.writer import SpoolWriter


_MOST_SCOPES = 256
"""Bounds the cache: some SDKs create a new scope at each call of get_tracer()."""


class _Own:
    """The Resource objects of our provider, which stand for the Resource of the connection that records their spans.

    Tracers and open spans keep such an object, also when the process connects to another cluster.
    """

    def __init__(self) -> None:
        self._objects: WeakValueDictionary[int, Resource] = WeakValueDictionary()

    def add(self, resource: Resource) -> None:
        self._objects[id(resource)] = resource

    def __contains__(self, resource: Resource) -> bool:
        return self._objects.get(id(resource)) is resource


class _Output:
    """A spool writer, with the ids of the scopes of the SDK's spans in it.

    Spans with a Resource of ``own`` get ``resource`` instead, if that is known. Another one, of a provider of the
    program, is completed by ``resource``, which says in which process of Ray they are.
    """

    def __init__(self, writer: SpoolWriter, own: _Own, resource: Mapping[str, Any] | None) -> None:
        self.writer = writer
        self._own = own
        self._resource = resource
        self._prefixes: dict[tuple[int, int], tuple[Any, Any, bytes]] = {}

    def prefix(self, span: ReadableSpan) -> bytes:
        """The scope id of this span, as the writer expects it."""
        resource, scope = span.resource, span.instrumentation_scope
        # Keyed by identity, since hashing a Resource costs more than encoding a span; the objects are kept alive, so
        # that no other object gets the same identity.
        key = (id(resource), id(scope))
        known = self._prefixes.get(key)
        if known is None:
            if len(self._prefixes) >= _MOST_SCOPES:
                self._prefixes.clear()
            attributes: Mapping[str, Any] = resource.attributes
            if self._resource is not None:
                attributes = self._resource if resource in self._own else {**self._resource, **attributes}
            encoded_resource = encode.resource(attributes)
            encoded_scope = (
                encode.scope(scope.name, scope.version, scope.attributes) if scope is not None else encode.scope("")
            )
            known = (resource, scope, U16.pack(self.writer.scope(encoded_resource, encoded_scope)))
            self._prefixes[key] = known
        return known[2]


class _Begun(ref["Span"]):
    """A span that has begun, which this does not keep alive."""

    __slots__ = ("span_id",)
    span_id: int


class SpoolSpanProcessor(SpanProcessor):
    """Writes each span to the spool when it starts and when it ends, in the thread that ends it.

    A write is one system call; there is no queue that a killed process could lose. ``force_flush`` and ``shutdown``
    have nothing to do. Until :meth:`write_to` is called, spans go nowhere.

    Attributes:
        own: The Resource objects of our provider.
        is_paused: Whether only those spans are written that have begun before this was set.
    """

    def __init__(self) -> None:
        self.own = _Own()
        self.is_paused = False
        self._output: _Output | None = None
        self._rule: KeepRule | None = None
        self._earlier: dict[int, tuple[_Output | None, KeepRule | None]] = {}
        """Where the spans end that are open in other spools than the current ones, by their ids."""
        self._open: dict[int, _Begun] = {}
        """The spans that have begun since this processor was added, by their ids."""
        self._dropped: list[_Begun] = []
        """Those that are gone without an end. A callback in Python would swallow what a signal handler raises."""
        self._has_dropped = False
        self._is_child = False

    def write_to(
        self,
        writer: SpoolWriter | None,
        rule: KeepRule | None = None,
        resource: Mapping[str, Any] | None = None,
        *,
        open_ones_stay: bool = False,
    ) -> None:
        """Write sampled spans with ``writer`` from now on, and those unsampled ones that the ``rule`` selects; None
        drops them. ``resource`` are the attributes for the spans whose Resource is in :attr:`own`. Where
        ``open_ones_stay``, those that are open end where they have begun: otherwise they would never end there.
        """
        before = self._output, self._rule
        if writer is None:
            self._output = None
        elif self._output is None or self._output.writer is not writer:
            self._output = _Output(writer, self.own, resource)
        self._rule = rule
        if open_ones_stay and (self._output, self._rule) != before:
            for span_id in list(self._open):
                self._earlier.setdefault(span_id, before)

    @property
    def writer(self) -> SpoolWriter | None:
        return self._output.writer if self._output is not None else None

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        output, is_sampled = self._output, span.context.trace_flags & SAMPLED
        if output is None or self.is_paused or not (is_sampled or self._rule):
            return
        try:
            known: Any = (get_current() if parent_context is None else parent_context).get(REFERENCE_KEY)
            if known is not None and span.parent is not None:
                known.mark(span, span.parent)
            span_id = span.context.span_id
            self._open[span_id] = begun = _Begun(span, self._dropped.append)
            begun.span_id = span_id
            if self._dropped:
                self._forget_dropped()
            if is_sampled:
                output.writer.start(output.prefix(span), encode_begun(span))
        except Exception as error:  # noqa: BLE001  a fault here must not reach the user's span
            failed(f"recording the start of the span {message_of(span.name)[:100]!r}", error)

    def on_end(self, span: ReadableSpan) -> None:
        try:
            self._end(span)
        except BaseException:  # what a signal handler raises
            self.finish(span)
            raise

    def finish(self, span: ReadableSpan) -> None:
        """Write a span that has ended, if something has interrupted :meth:`on_end`, or kept it from being called.

        Without what has been added to it: for that the SDK has locks, which the interrupted code may hold.
        """
        self._end(span, is_interrupted=True)

    def _end(self, span: ReadableSpan, *, is_interrupted: bool = False) -> None:
        context = span.get_span_context()
        if context is None:
            return
        output, rule = self._earlier.get(context.span_id, (self._output, self._rule))
        if (self._is_child or self.is_paused) and context.span_id not in self._open:
            return  # its parent ends it, or it has begun in the pause
        reason = b"" if context.trace_flags & SAMPLED else _reason(span, rule)
        try:
            if output is not None and reason is not None:
                prefix = output.prefix(span)
                if is_interrupted:
                    output.writer.finish(prefix, encode_bare(span) + reason)
                else:
                    _write(output.writer, prefix, encode_ended(span) + reason)
        except Exception as error:  # noqa: BLE001  as above
            failed(f"recording the span {message_of(span.name)[:100]!r}", error)
        self._open.pop(context.span_id, None)
        self._earlier.pop(context.span_id, None)

    def after_fork_in_child(self) -> None:
        """Record only spans that begin in the child."""
        self._open, self._earlier, self._dropped = {}, {}, []
        self._has_dropped, self._is_child = False, True

    def has_open(self) -> bool:
        """Whether spans have begun that have not ended."""
        return bool(self._open) or self._has_dropped

    def _forget_dropped(self) -> None:
        self._has_dropped = True
        with contextlib.suppress(IndexError):  # another thread may do it too
            while self._dropped:
                span_id = self._dropped.pop().span_id
                self._open.pop(span_id, None)
                self._earlier.pop(span_id, None)

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


def _reason(span: ReadableSpan, rule: KeepRule | None) -> bytes | None:
    """Why a span that is not sampled is written, as an encoded attribute; None if it is not."""
    if rule is None:
        return None
    duration = (span.end_time or 0) - (span.start_time or 0)
    return rule.reason(duration, failed=span.status.status_code is StatusCode.ERROR) or None


def _write(writer: SpoolWriter, prefix: bytes, encoded: bytes) -> None:
    try:
        writer.span(prefix, encoded)
    except BaseException:  # what a signal handler raises
        writer.finish(prefix, encoded)
        raise


def encode_begun(span: ReadableSpan) -> bytes:
    """A span that has begun: everything known so far, without an end."""
    return _begun(span, encode.attributes(span.attributes))


def _begun(span: ReadableSpan, attributes: bytes) -> bytes:
    context = span.get_span_context()
    name: object = span.name  # of any type that the user's program passes
    assert context is not None
    out = encode.before_id(context.trace_id.to_bytes(16, "big")) + context.span_id.to_bytes(8, "big")
    state = context.trace_state.to_header() if context.trace_state else ""
    if state:
        out += encode.trace_state(state)
    parent = span.parent
    flags = encode.FLAGS_LOCAL_PARENT
    if parent is not None:
        out += encode.BEFORE_PARENT_ID + parent.span_id.to_bytes(8, "big")
        if parent.is_remote:
            flags = encode.FLAGS_REMOTE_PARENT
    return (
        out
        + encode.name_and_kind(name if isinstance(name, str) else message_of(name), span.kind.value + 1)
        + encode.start_time(_moment(span.start_time))
        + attributes
        + flags
    )


def encode_bare(span: ReadableSpan) -> bytes:
    """A span that has ended, without attributes, events and links: these take no lock of the SDK."""
    return b"".join((_begun(span, b""), _end(span), _status(span)))


def encode_ended(span: ReadableSpan) -> bytes:
    return b"".join(
        (
            encode_begun(span),
            _end(span),
            encode.dropped_attributes(span.dropped_attributes),
            *map(_event, span.events),
            encode.dropped_events(span.dropped_events),
            *map(_link, span.links),
            encode.dropped_links(span.dropped_links),
            _status(span),
        )
    )


def _end(span: ReadableSpan) -> bytes:
    return encode.end_time(_moment(span.end_time or span.start_time))


def _status(span: ReadableSpan) -> bytes:
    return encode.status(span.status.status_code.value, span.status.description)


def _moment(moment: Any) -> int:
    moment = moment or 0
    return moment if type(moment) is int and 0 <= moment < 1 << 64 else encode.nanoseconds(moment)


def _event(event: Any) -> bytes:
    return encode.event(event.name, encode.nanoseconds(event.timestamp), event.attributes, _dropped(event.attributes))


def _link(link: Any) -> bytes:
    context = link.context
    return encode.link(
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        context.trace_state.to_header() if context.trace_state else "",
        link.attributes,
        remote=context.is_remote,
        dropped=_dropped(link.attributes),
    )


def _dropped(attributes: Any) -> int:
    # BoundedAttributes of the SDK counts what it dropped; a plain mapping drops nothing.
    return getattr(attributes, "dropped", 0) or 0
