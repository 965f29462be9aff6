"""The recorder of a process: it makes encoded spans from templates per call site and the current context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from opentelemetry import context as context_api
from opentelemetry import trace

from ray_tracing_hooks import _compiled, names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import END_TAG, identity_of, start_and_end
from ray_tracing_hooks._formats.encoded_span.encode import start_time as encode_start
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import REQUEST, SPAN_KEY
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.sampling import FAILED, SLOW, KeepRule, Sampler
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

SAMPLED = 0x01
NEW_TRACE = 0x02
"""W3C trace flags: bit 0 means sampled, bit 1 that the trace id is random."""

_former_roots: WeakValueDictionary[int, trace.Span] = WeakValueDictionary()
"""By their identity: a span of the program, which is looked up too, may have no hash."""


def add_former_root(root: trace.Span) -> None:
    """Remember the root span of a driver that has ended in this process.

    A context may still hold it: in a thread other than the one that called ``ray.shutdown()``, or when a span of the
    program that was open at that time ends. It is no parent of what the next driver does.
    """
    _former_roots[id(root)] = root


def is_former_root(span: object) -> bool:
    """Whether this is the root span of an earlier driver."""
    return span is not None and _former_roots.get(id(span)) is span


LONGEST_AFTER_END = 1_000_000_000
"""For so many nanoseconds after its end, a span is still the parent of what begins in its context.

Tasks of asyncio, timers and threads keep the context in which they were started, for as long as they run. What they
begin soon after the end of the span belongs to it. What they begin later is mostly about something else, such as later
requests, and the trace would grow for as long as the process lives. So that is a trace of its own, linked to the span.
"""


def is_over(span: object) -> bool:
    """Whether this span has ended too long ago to be the parent of what begins now.

    This is about spans of this process, of this package or of the SDK: others have no end. A span of the program is not
    over before the call or request that it is within: a web framework ends its own span with the response, and runs
    background tasks in its context after that.
    """
    end_time = getattr(span, "end_time", None)
    if type(end_time) is not int or now_ns() - end_time <= LONGEST_AFTER_END:
        return False
    within = getattr(span, _WITHIN, None)
    return within is None or is_over(within)


_WITHIN = "_ray_tracing_hooks_within"
"""The attribute of a span of the program with the span of the call or request that it is within."""

_INTERNAL = trace.SpanKind.INTERNAL.value + 1


def note_within(span: Any, context: context_api.Context) -> None:
    """Note which call or request a span of the program is within, given the context of the code that has begun it.

    Its parent may be another one: web frameworks take that from the headers. The spans of a driver, and of what Ray's
    libraries do, are no calls.
    """
    around = context.get(SPAN_KEY)
    if type(around) is not RecordedSpan:
        within = getattr(around, _WITHIN, None) or REQUEST.get()
    else:
        within = around if around.template.kind != _INTERNAL else None
    if within is not None and span.is_recording():  # others may be shared
        setattr(span, _WITHIN, within)


def since_end(span: Any) -> dict[str, float]:
    """The attribute of a trace that begins in the context of a span that is over."""
    return {names.RAY_AFTER_END: (now_ns() - span.end_time) / 1e9}


def link_to_ended(context: context_api.Context) -> bytes:
    """The encoded fields of a trace that begins in this context: link and attribute if its span is over, else empty."""
    span: Any = context.get(SPAN_KEY)
    if not is_over(span) or is_former_root(span):
        return b""
    ended = span.get_span_context()
    trace_id, span_id = ended.trace_id.to_bytes(16, "big"), ended.span_id.to_bytes(8, "big")
    return encode.attributes(since_end(span)) + encode.link(
        trace_id, span_id, ended.trace_state.to_header(), None, remote=False
    )


class Template:
    """The part that all spans of one call site share, encoded when the call site is first seen."""

    __slots__ = ("attributes", "body", "kind", "name")

    def __init__(self, name: str, kind: int, attributes: Mapping[str, Any]) -> None:
        self.name = name
        self.kind = kind
        self.attributes = attributes
        self.body = encode.name_and_kind(name, kind) + encode.attributes(attributes)


class Recorder(_compiled.RecorderBase):
    """Records the spans that this package makes of Ray's calls.

    Attributes:
        fallback: The parent of spans that have no other parent (a driver's root span), or None.
        observer: Called with each encoded span that has ended, or None.
        unsampled: Records those spans of unsampled traces that failed or were slow; None where none are.
        rule: Which of the spans that end are written; None for all.
    """

    rule: KeepRule | None = None

    def __init__(
        self,
        writer: SpoolWriter,
        *,
        resource: bytes,
        scope: bytes,
        sampler: Sampler,
        limits: SpanLimits,
    ) -> None:
        self.limits = limits
        self.sampler = sampler
        self.fallback: Parent | None = None
        self.observer: Callable[[bytes], None] | None = None
        self.unsampled: UnsampledRecorder | None = None
        self._begin: Callable[[bytes, bytes], None] = writer.start
        self._write: Callable[[bytes, bytes], None] = writer.span
        self._finish: Callable[[bytes, bytes], bool] = writer.finish
        self._prefix = U16.pack(writer.scope(resource, scope))
        # For the compiled part, which appends with it unless a call has to be made in Python.
        self._writer: SpoolWriter | None = writer
        self._end_tag = END_TAG

    def say(self, resource: bytes, scope: bytes) -> None:
        """Write what ends from now on with this encoded resource."""
        if self._writer is not None:
            self._prefix = U16.pack(self._writer.scope(resource, scope))

    def parent(self, context: context_api.Context) -> Parent | None:
        """The parent of a span that begins now in ``context``: its span, else :attr:`fallback`.

        None for a new trace: without a fallback, or if that span is over (:func:`is_over`).
        """
        span = context.get(SPAN_KEY)
        return None if is_over(span) and not is_former_root(span) else self.current(context)

    def current(self, context: context_api.Context) -> Parent | None:
        """The span of ``context``, whether it is open or not, else :attr:`fallback`."""
        span = context.get(SPAN_KEY)
        if type(span) is RecordedSpan and (span.end_time is None or not is_former_root(span)):
            return span.as_parent()
        if span is None or is_former_root(span):
            return self.fallback
        span_context = trace.get_current_span(context).get_span_context()
        if not span_context.is_valid:
            return self.fallback
        return Parent(
            span_context.trace_id.to_bytes(16, "big"),
            span_context.span_id.to_bytes(8, "big"),
            span_context.trace_flags,
            span_context.trace_state or None,
            span_context.is_remote,
        )

    def decide(self, parent: Parent | None) -> tuple[bytes, int]:
        """The trace id and W3C flags of a new span under ``parent``, or of a new trace."""
        if parent is None:
            trace_id = ids.new_trace_id()
            return trace_id, NEW_TRACE | self.sampler.root(trace_id)
        if self.sampler.follows_parent:
            return parent.trace_id, parent.flags
        sampled = self.sampler.child(bool(parent.flags & SAMPLED), parent.trace_id)
        return parent.trace_id, parent.flags & ~SAMPLED | sampled

    def of(self, trace_flags: int) -> Recorder | None:
        """The recorder for a span with these flags; None if it is not recorded."""
        return self if trace_flags & SAMPLED else self.unsampled

    def record(
        self,
        template: Template,
        identity: bytes,
        start_time: int,
        end_time: int,
        additions: bytes,
    ) -> None:
        """Write a span that has ended and that no user code ran inside of.

        ``identity`` is the result of ``encode.identity_of``; ``additions`` are further encoded fields.
        """
        encoded = identity + start_and_end(start_time, END_TAG, end_time) + template.body + additions
        try:
            # Inlined from `ended`: this runs for every call of a task.
            self._write(self._prefix, encoded)
            if self.observer is not None:
                self.observer(encoded)
        except BaseException:  # what a signal handler raises
            self.finish(encoded)
            raise

    def record_failed(
        self, template: Template, identity: bytes, start_time: int, end_time: int, additions: bytes
    ) -> None:
        """The same for a span that has failed, as the ``additions`` say."""
        self.record(template, identity, start_time, end_time, additions)

    def start(
        self,
        template: Template,
        trace_id: bytes,
        trace_flags: int,
        parent: Parent | None,
        first: bytes = b"",
        start_time: int | None = None,
    ) -> RecordedSpan:
        """Begin a span that user code runs inside of, and write its start record.

        ``first`` are the encoded attributes that vary between spans of this template.
        """
        if start_time is None:
            start_time = now_ns()
        head = identity_of(trace_id, ids.new_span_id(), parent) + encode_start(start_time) + template.body + first
        trace_state = None if parent is None else parent.trace_state
        return self.begin(template, trace_flags, trace_state, start_time, head)

    def begin(
        self,
        template: Template,
        trace_flags: int,
        trace_state: trace.TraceState | None,
        start_time: int,
        head: bytes,
    ) -> RecordedSpan:
        """Begin a span whose ``head`` holds everything known so far: identity, start, template and attributes."""
        span = RecordedSpan(self, template, trace_flags, trace_state, start_time, head)
        self._begin(self._prefix, head)
        return span

    def begun(self, head: bytes) -> None:
        """Write the start record of a span."""
        self._begin(self._prefix, head)

    def ended(self, encoded: bytes) -> None:
        """Write a span that has ended."""
        self._write(self._prefix, encoded)
        if self.observer is not None:
            self.observer(encoded)

    def finish(self, encoded: bytes) -> None:
        """Write a span that has ended, if something has interrupted :meth:`ended` before it was written."""
        if self._finish(self._prefix, encoded) and self.observer is not None:
            self.observer(encoded)

    def disable_after_fork(self) -> None:
        """Stop recording in a forked child: open spans end in the parent, and must not end twice."""
        self._begin = self._write = _nothing
        self._finish = _nothing_to_finish
        self._writer = None
        self.observer = None
        if self.unsampled is not None:
            self.unsampled.disable_after_fork()


class UnsampledRecorder(Recorder):
    """Records spans of traces that are not sampled: when they end, and only those that the rule selects.

    Nothing is written when they begin, so those whose process is killed are missing. All of it is done in Python.

    Args:
        rule: Which spans are written.
        of_caller: The encoded Resource of a submission that was made in another process.
    """

    def __init__(
        self,
        writer: SpoolWriter,
        *,
        resource: bytes,
        scope: bytes,
        sampler: Sampler,
        limits: SpanLimits,
        rule: KeepRule,
        of_caller: bytes,
    ) -> None:
        super().__init__(writer, resource=resource, scope=scope, sampler=sampler, limits=limits)
        self.rule: KeepRule = rule
        self._spool, self._of_caller = writer, (of_caller, scope)
        self._begin = _nothing
        self._writer = None

    def say(self, resource: bytes, scope: bytes) -> None:
        self._prefix = U16.pack(self._spool.scope(resource, scope))

    def record(self, template: Template, identity: bytes, start_time: int, end_time: int, additions: bytes) -> None:
        if reason := self.rule.reason(end_time - start_time, failed=False):
            super().record(template, identity, start_time, end_time, additions + reason)

    def record_failed(
        self, template: Template, identity: bytes, start_time: int, end_time: int, additions: bytes
    ) -> None:
        if reason := self.rule.reason(end_time - start_time, failed=True):
            super().record(template, identity, start_time, end_time, additions + reason)

    def start_execution(
        self, template: Template, trace_flags: int, parent: Parent, first: bytes, submission: Callable[[], bytes]
    ) -> RecordedSpan:
        """Begin the execution of a call. If its span is written, so is the one of its parent, the submission, which
        ``submission`` encodes.
        """
        start_time = now_ns()
        head = identity_of(parent.trace_id, ids.new_span_id(), parent) + encode_start(start_time)
        with_submission = _WithSubmission(self, submission)
        return RecordedSpan(
            with_submission, template, trace_flags, parent.trace_state, start_time, head + template.body + first
        )

    def submitted(self, encoded: bytes, *, finish: bool = False) -> None:
        """Write the span of a submission; with ``finish`` only if it has not been written yet."""
        (self._finish if finish else self._write)(U16.pack(self._spool.scope(*self._of_caller)), encoded)


class _WithSubmission:
    """Writes the span of an execution, and before it the one of its submission."""

    __slots__ = ("_recorder", "_submission", "limits", "rule")

    def __init__(self, recorder: UnsampledRecorder, submission: Callable[[], bytes]) -> None:
        self._recorder, self._submission = recorder, submission
        self.limits = recorder.limits
        self.rule: KeepRule | None = recorder.rule

    def ended(self, encoded: bytes) -> None:
        self._recorder.submitted(self._of(encoded))
        self._recorder.ended(encoded)

    def finish(self, encoded: bytes) -> None:
        self._recorder.submitted(self._of(encoded), finish=True)
        self._recorder.finish(encoded)

    def _of(self, encoded: bytes) -> bytes:
        return self._submission() + (SLOW if encoded.endswith(SLOW) else FAILED)


def _nothing(_prefix: bytes, _encoded: bytes) -> None:
    pass


def _nothing_to_finish(_prefix: bytes, _encoded: bytes) -> bool:
    return False
