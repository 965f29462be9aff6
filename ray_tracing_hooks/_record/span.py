"""The span of a task or method that Ray runs: a full OpenTelemetry span, encoded from the start."""

from __future__ import annotations

import linecache
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from textwrap import indent
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from opentelemetry import trace

from ray_tracing_hooks import _compiled, names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import SPAN_ID, TRACE_ID
from ray_tracing_hooks._formats.encoded_span.encode import end_time as encode_end
from ray_tracing_hooks._record.limits import put, put_all
from ray_tracing_hooks._safety.exceptions import (
    class_name,
    error_before,
    errors_of_group,
    is_interruption,
    notes_of,
    qualified_name,
    text_of,
    traceback_of,
)
from ray_tracing_hooks._safety.guard import failed

if TYPE_CHECKING:
    from ray_tracing_hooks._formats.encoded_span.decode import Span as DecodedSpan
    from ray_tracing_hooks._record.limits import SpanLimits
    from ray_tracing_hooks._record.sampling import KeepRule

MOST_TEXT = 64 * 1024
"""How many characters of an exception's message and stack trace are kept: half from the start, half from the end."""

_adding = threading.RLock()
# Another thread may hold it when this process forks. The standard library resets its own locks in the same way.
os.register_at_fork(after_in_child=_adding._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  no stub

_UNSET, _OK, _ERROR = (trace.StatusCode.UNSET, trace.StatusCode.OK, trace.StatusCode.ERROR)


class Parent(NamedTuple):
    """The parent of a new span."""

    trace_id: bytes
    span_id: bytes
    flags: int
    trace_state: trace.TraceState | None
    remote: bool

    def span_context(self) -> trace.SpanContext:
        """The same as a ``SpanContext`` of the API."""
        return trace.SpanContext(
            int.from_bytes(self.trace_id, "big"),
            int.from_bytes(self.span_id, "big"),
            is_remote=self.remote,
            trace_flags=trace.TraceFlags(self.flags),
            trace_state=self.trace_state,
        )


class Writes(Protocol):
    """What a span needs of its recorder."""

    limits: SpanLimits
    rule: KeepRule | None
    """Which spans are written, if not all are."""

    def ended(self, encoded: bytes) -> None:
        """Write a span that has ended."""

    def finish(self, encoded: bytes) -> None:
        """Write it if something has interrupted that before it was written."""


class NameAndKind(Protocol):
    """What a span needs of its template."""

    name: str
    kind: int


class RecordedSpan(_compiled.SpanBase, trace.Span):
    """A span whose ids, name, kind, start and first attributes are already encoded.

    What user code adds (attributes, events, links, status, another name) is encoded once, when the span ends.
    """

    __slots__ = ()

    def __init__(
        self,
        recorder: Writes,
        template: NameAndKind,
        trace_flags: int,
        trace_state: trace.TraceState | None,
        start_time: int,
        head: bytes,
    ) -> None:
        self._recorder = recorder
        self.template = template
        self.trace_flags = trace_flags
        self.trace_state = trace_state
        self.start_time = start_time
        self.end_time: int | None = None
        self._head = head
        self._context: trace.SpanContext | None = None
        self._added: _Added | None = None

    @property
    def trace_id(self) -> bytes:
        return self._head[TRACE_ID]

    @property
    def span_id(self) -> bytes:
        return self._head[SPAN_ID]

    # Attributes that the SDK's spans have beyond the API, for libraries that read them.

    @property
    def name(self) -> str:
        added = self._added
        return self.template.name if added is None or added.name is None else added.name

    @property
    def kind(self) -> trace.SpanKind:
        return trace.SpanKind(self.template.kind - 1)

    @property
    def context(self) -> trace.SpanContext:
        return self.get_span_context()

    @property
    def parent(self) -> trace.SpanContext | None:
        begun = self._begun()
        if not begun.parent_span_id:
            return None
        # With the flags of this span, which equal those of its parent unless a sampler has decided otherwise.
        remote = begun.flags == encode.REMOTE_PARENT
        return Parent(self.trace_id, begun.parent_span_id, self.trace_flags, self.trace_state, remote).span_context()

    @property
    def attributes(self) -> Mapping[str, Any]:
        return {**self._begun().attributes, **(self._added.attributes if self._added is not None else {})}

    @property
    def status(self) -> trace.Status:
        added = self._added
        return trace.Status(added.status, added.description) if added is not None else trace.Status()

    # The API.

    def get_span_context(self) -> trace.SpanContext:
        context = self._context
        if context is None:
            context = self._context = self.as_parent().span_context()
        return context

    def is_recording(self) -> bool:
        return self.end_time is None

    def set_attribute(self, key: str, value: Any) -> None:
        if self.end_time is not None:
            return
        limits = self._recorder.limits
        try:
            added = self._add()
            added.dropped_attributes += put(added.attributes, key, value, limits.attributes, limits.value_length)
        except Exception as error:  # noqa: BLE001  the user's value may be anything, and must not fail the program
            failed("setting an attribute", error)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        if self.end_time is not None:
            return
        limits = self._recorder.limits
        try:
            added = self._add()
            added.dropped_attributes += put_all(added.attributes, attributes, limits.attributes, limits.value_length)
        except Exception as error:  # noqa: BLE001  as above
            failed("setting attributes", error)

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        if self.end_time is not None:
            return
        limits = self._recorder.limits
        moment = now_ns() if timestamp is None else encode.nanoseconds(timestamp)
        taken: dict[str, Any] = {}
        try:
            dropped = put_all(taken, attributes, limits.event_attributes, limits.other_value_length)
            encoded = encode.event(name, moment, taken, dropped)
        except Exception as error:  # noqa: BLE001  as above
            failed("adding an event", error)
            return
        added = self._add()
        added.dropped_events += _append(added.events, encoded, limits.events)

    def add_link(self, context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        if self.end_time is not None:
            return
        limits = self._recorder.limits
        taken: dict[str, Any] = {}
        try:
            # The specification accepts a link to an invalid context if it has attributes or trace state.
            if not (context.is_valid or attributes or context.trace_state):
                return
            dropped = put_all(taken, attributes, limits.link_attributes, limits.other_value_length)
            encoded = encode.link(
                context.trace_id.to_bytes(16, "big"),
                context.span_id.to_bytes(8, "big"),
                context.trace_state.to_header(),
                taken,
                remote=context.is_remote,
                dropped=dropped,
            )
        except Exception as error:  # noqa: BLE001  as above
            failed("adding a link", error)
            return
        added = self._add()
        added.dropped_links += _append(added.links, encoded, limits.links)

    def update_name(self, name: str) -> None:
        if self.end_time is None and isinstance(name, str):
            self._add().name = name

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        # The specification: OK is final, and nothing can be set back to UNSET.
        code = status.status_code if isinstance(status, trace.Status) else status
        if isinstance(status, trace.Status):
            description = status.description
        if self.end_time is not None or code is _UNSET or not isinstance(code, trace.StatusCode):
            return
        added = self._add()
        if added.status is not _OK:
            added.status = code
            added.description = description if code is _ERROR and isinstance(description, str) else None

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        if self.end_time is not None:
            return
        try:
            details = exception_attributes(exception, traceback_of(exception))
            details["exception.escaped"] = str(escaped)
            details.update(attributes or {})
        except Exception as error:  # noqa: BLE001  as above
            failed("recording an exception", error)
            return
        self.add_event("exception", details, timestamp)

    def _end(self, end_time: int | None = None) -> None:
        if self.end_time is not None:
            return
        encoded = b""
        try:
            ended_at = now_ns() if end_time is None else encode.nanoseconds(end_time)
            if self._recorder.rule is not None:
                encoded = self._selected(self._recorder.rule, ended_at)
                self.end_time = ended_at
                if encoded:
                    self._recorder.ended(encoded)
                return
            encoded = self._head + encode_end(ended_at)
            self.end_time = ended_at
            if self._added is not None:
                encoded = self._with_added(encoded, self._added)
            self._recorder.ended(encoded)
        except BaseException as error:
            # A signal handler may have raised, such as Ray's when a task is cancelled, and nobody ends the span again.
            if self.end_time is not None and encoded:
                self._recorder.finish(encoded)
            elif is_interruption(error):
                self._end(end_time)
            raise

    def _selected(self, rule: KeepRule, ended_at: int) -> bytes:
        """The encoded span, which ends in the reason why it is recorded; empty if the rule does not select it."""
        added = self._added
        reason = rule.reason(ended_at - self.start_time, failed=added is not None and added.status is _ERROR)
        if not reason:
            return b""
        encoded = self._head + encode_end(ended_at)
        return (encoded if added is None else self._with_added(encoded, added)) + reason

    def _with_added(self, encoded: bytes, added: _Added) -> bytes:
        try:
            return _without(encoded, added.attributes.copy()) + added.encoded()
        except Exception as error:  # noqa: BLE001  values that user code added may be anything
            failed(f"encoding what was added to the span {self.name[:100]!r}", error)
            return encoded

    def __reduce__(self) -> Any:
        # A span that user code pickles becomes a non-recording span with the same context.
        return trace.NonRecordingSpan, (self.get_span_context(),)

    def _begun(self) -> DecodedSpan:
        """The span as it was when it began."""
        from ray_tracing_hooks._formats.encoded_span.decode import decode_span  # noqa: PLC0415  rarely needed

        return decode_span(self._head)

    # For the instrumentation.

    def as_parent(self) -> Parent:
        """This span as the parent of other spans."""
        head = self._head
        # Without the function in Python that a named tuple has for this: as many calls again.
        return tuple.__new__(Parent, (head[TRACE_ID], head[SPAN_ID], self.trace_flags, self.trace_state, False))

    def fail(self, error: BaseException, traceback_: TracebackType | None, error_type: str | None = None) -> None:
        """Mark the span as failed by ``error``, keeping a status or ``error.type`` that user code has set."""
        if self.end_time is not None:
            return
        name = error_type or qualified_name(type(error))
        added = self._add()
        if added.status is _UNSET:
            added.status, added.description = _ERROR, summary(error)
        added.attributes.setdefault(names.ERROR_TYPE, name)
        self.add_event("exception", {**exception_attributes(error, traceback_), "exception.escaped": "True"})

    def fail_as(self, shown: str, whole: str) -> None:
        """The same for an error of which there is only text: ``Class: message``, and the whole traceback."""
        if self.end_time is not None:
            return
        kind, _, message = shown.partition(":")
        added = self._add()
        if added.status is _UNSET:
            added.status, added.description = _ERROR, shown
        added.attributes.setdefault(names.ERROR_TYPE, kind)
        described = {
            names.EXCEPTION_TYPE: kind,
            names.EXCEPTION_MESSAGE: message.strip(),
            names.EXCEPTION_STACKTRACE: bounded(whole),
            "exception.escaped": "True",
        }
        self.add_event("exception", described)

    def add_encoded(self, encoded: bytes) -> None:
        """Add encoded fields. Fields that user code adds come after them, and win for singular fields."""
        self._head += encoded

    def add_at_end(self, make: Callable[[], bytes]) -> None:
        """Add the encoded attributes that ``make`` returns when the span ends."""
        added = self._add()
        before = added.at_end
        added.at_end = make if before is None else lambda: before() + make()

    def _add(self) -> _Added:
        added = self._added
        if added is None:
            with _adding:  # two threads may add something first at the same time
                added = self._added
                if added is None:
                    added = self._added = _Added()
        return added


class _Added:
    """What has been added to a span since it began; for most spans nothing."""

    __slots__ = (
        "at_end",
        "attributes",
        "description",
        "dropped_attributes",
        "dropped_events",
        "dropped_links",
        "events",
        "links",
        "name",
        "status",
    )

    def __init__(self) -> None:
        self.name: str | None = None
        self.attributes: dict[str, Any] = {}
        self.events: list[bytes] = []
        self.links: list[bytes] = []
        self.dropped_attributes = self.dropped_events = self.dropped_links = 0
        self.status = _UNSET
        self.description: str | None = None
        self.at_end: Callable[[], bytes] | None = None

    def encoded(self) -> bytes:
        # A copy: another thread may be setting an attribute now.
        parts = [encode.attributes(self.attributes.copy())] if self.attributes else []
        if self.name is not None:
            # The last value of a singular field wins, in every protobuf reader.
            parts.append(encode.name(self.name))
        if self.at_end is not None:
            parts.append(self.at_end())
        parts.append(encode.dropped_attributes(self.dropped_attributes))
        parts.extend(self.events)
        parts.append(encode.dropped_events(self.dropped_events))
        parts.extend(self.links)
        parts.append(encode.dropped_links(self.dropped_links))
        if self.status is not _UNSET:
            parts.append(encode.status(self.status.value, self.description))
        return b"".join(parts)


def _without(encoded: bytes, attributes: Mapping[str, Any]) -> bytes:
    """The encoded span without those of its attributes that are set again."""
    again = [key for key in attributes if encode.attribute_key(key) in encoded]
    if not again:
        return encoded
    return encode.without_attributes(encoded, again)


def _append(encoded: list[bytes], one: bytes, most: int | None) -> int:
    """Append to a list of at most ``most``; returns how many were dropped. As in the SDK, the newest are kept."""
    encoded.append(one)
    if most is None or len(encoded) <= most:
        return 0
    del encoded[0:1]
    return 1


def exception_attributes(error: BaseException, traceback_: TracebackType | None) -> dict[str, Any]:
    """The attributes of an exception event (semantic conventions, exceptions on spans)."""
    return {
        names.EXCEPTION_TYPE: qualified_name(type(error)),
        names.EXCEPTION_MESSAGE: message_of(error),
        names.EXCEPTION_STACKTRACE: _stacktrace(error, traceback_),
    }


def summary(error: BaseException) -> str:
    """``Class: message``, or ``Class`` for an error without message: the description of a failed span's status."""
    name, message = class_name(error), message_of(error)
    return f"{name}: {message}" if message else name


def message_of(error: object) -> str:
    """``str(error)``, with a substitute if that fails."""
    text = text_of(error)
    return bounded(text) if text is not None else f"<{class_name(error)} that cannot be shown>"


def _stacktrace(error: BaseException, traceback_: TracebackType | None) -> str:
    """As ``traceback.format_exception``, which would swallow what a signal handler raises there.

    Without the markers below lines: also where it finds their places, it swallows everything.
    """
    parts = [_described(error, traceback_)]
    seen = {id(error)}
    while (before := error_before(error)) is not None and id(before.error) not in seen:
        error = before.error
        seen.add(id(error))
        parts += [_CAUSED if before.is_cause else _HANDLED, _described(error, traceback_of(error))]
    return bounded("".join(reversed(parts)))


_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"


def _described(error: BaseException, traceback_: TracebackType | None) -> str:
    """The stack and the text of one error, with its notes and, of a group, its errors."""
    name = qualified_name(type(error)).removeprefix("__main__.")
    text = "\n".join(filter(None, [message_of(error), *map(message_of, notes_of(error))]))
    lines = ["Traceback (most recent call last):\n", *_frames(traceback_)] if traceback_ is not None else []
    lines.append(f"{name}: {text}\n" if text else f"{name}\n")
    for number, each in enumerate(errors_of_group(error), 1):
        lines.append(f"  +---------------- {number} ----------------\n")
        lines.append(indent(_stacktrace(each, traceback_of(each)), "  | "))
    return "".join(lines)


def _frames(traceback_: TracebackType | None) -> list[str]:
    found = []
    while traceback_ is not None:
        frame, number = traceback_.tb_frame, traceback_.tb_lineno
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        line = linecache.getline(path, number, frame.f_globals)
        found.append(traceback.FrameSummary(path, number, name, line=line.strip()))
        traceback_ = traceback_.tb_next
    return traceback.format_list(found)


def bounded(text: str) -> str:
    """``text`` with its middle left out if it is longer than :data:`MOST_TEXT` characters."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters left out ... {text[-half:]}"
