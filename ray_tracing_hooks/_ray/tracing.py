"""The instrumentation of one connection to Ray: what every wrapper needs, and whether tracing is on at all.

Wrappers look at :data:`active` on each call. It is None before a hook ran, after ``ray.shutdown()``, and while the
process is connected to a cluster without a tracing hook; every wrapper then does what the original does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from opentelemetry import context as context_api
from opentelemetry import propagate, trace

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._record import carrier, ids, wire
from ray_tracing_hooks._record.carrier import Carried
from ray_tracing_hooks._record.recorder import SAMPLED, Parent, Recorder, Template
from ray_tracing_hooks._record.span import exception_attributes, qualified_name, summary

INTERNAL, PRODUCER, CONSUMER = 1, 4, 5
"""Span kinds, by OTLP's numbers."""

TASK_KEY = "ray_tracing_hooks.task_id"
"""Where a context keeps the id of the task that it belongs to: also right in a thread that the task started, where Ray
would name an invented task."""

TASK_ID = wire.text_attribute_prefix(names.RAY_TASK_ID, 48)
PARENT_TASK_ID = wire.text_attribute_prefix(names.RAY_PARENT_TASK_ID, 48)
ACTOR_ID = wire.text_attribute_prefix(names.RAY_ACTOR_ID, 32)

_STANDARD_HEADERS = {"traceparent", "tracestate", "baggage"}


class Tracing:
    """Tracing of this process while it is connected.

    Args:
        recorder: Where spans go.
        process: This process.
        parts: The parts of Ray that make spans: ``task``, ``actor``.
        include: Patterns on ``module.function`` or ``Class.method``; if there are any, nothing else makes spans.
        exclude: Patterns of what makes no span.
    """

    def __init__(
        self,
        recorder: Recorder,
        process: RayProcess,
        *,
        parts: Iterable[str],
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
    ) -> None:
        self.recorder = recorder
        self.process = process
        self._parts = frozenset(parts)
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._templates: dict[tuple[int, str, str], Template | None] = {}
        self._job_id = process.job_id
        # A driver has a task id, the same for its whole life.
        self._driver_task_id = process.current_task_id() if process.is_driver else b""
        # With only the standard propagators a context without baggage has nothing to inject but the span itself.
        self._only_standard_headers = set(propagate.get_global_textmap().fields) <= _STANDARD_HEADERS

    def selects(self, function: str, part: str) -> bool:
        """Whether calls of ``function`` make spans."""
        if part not in self._parts:
            return False
        if self._include and not any(fnmatchcase(function, pattern) for pattern in self._include):
            return False
        return not any(fnmatchcase(function, pattern) for pattern in self._exclude)

    def template(self, kind: int, class_name: str, function: str) -> Template | None:
        """The template of one call site, or None where its calls make no spans.

        ``class_name`` is empty for a task; ``function`` is then ``module.function``, else the method's name.
        """
        key = (kind, class_name, function)
        try:
            return self._templates[key]
        except KeyError:
            made = self._templates[key] = self._make_template(kind, class_name, function)
            return made

    def _make_template(self, kind: int, class_name: str, function: str) -> Template | None:
        full_name = f"{class_name}.{function}" if class_name else function
        if not self.selects(full_name, "actor" if class_name else "task"):
            return None
        if class_name:
            what = {names.RAY_REMOTE: "actor", names.RAY_ACTOR_CLASS: class_name, names.RAY_ACTOR_METHOD: function}
        else:
            what = {names.RAY_REMOTE: "function"}
        if not self._job_id:
            # A worker has a job from its first task on, and keeps it.
            self._job_id = self.process.current_job_id()
        name = names.submission_name(full_name) if kind == PRODUCER else names.execution_name(full_name)
        return Template(
            name,
            kind,
            {
                **what,
                names.RAY_FUNCTION: full_name,
                names.RAY_PID: str(os.getpid()),
                names.RAY_JOB_ID: self._job_id,
                names.RAY_NODE_ID: self.process.node_id,
                names.RAY_WORKER_ID: self.process.worker_id,
            },
        )

    def caller(self, context: context_api.Context) -> bytes:
        """The 24 bytes of the task that ``context`` belongs to, or empty if that is not known."""
        task_id = context.get(TASK_KEY)
        return task_id if isinstance(task_id, bytes) else self._driver_task_id

    def outgoing(
        self,
        context: context_api.Context,
        trace_id: bytes,
        span_id: bytes,
        flags: int,
        submit_time: int,
        parent: Parent | None,
        *,
        creation: bool = False,
    ) -> bytes:
        """The argument that carries the context of a call."""
        headers: dict[str, str] | None = None
        plain = 2 if TASK_KEY in context else 1
        if not self._only_standard_headers or len(context) > plain or (parent is not None and parent.trace_state):
            headers = {}
            propagate.inject(headers, context)
            headers.pop("traceparent", None)
        return carrier.encode(trace_id, span_id, flags, submit_time, self.caller(context), headers, creation=creation)

    def start_root_span(self, script: str, context: context_api.Context) -> trace.Span:
        """Begin the span of this driver, which becomes the parent of all that has none."""
        recorder, process = self.recorder, self.process
        parent = recorder.parent(context)
        trace_id, flags = recorder.decide(parent)
        if not flags & SAMPLED:
            # Not recorded, but known: what happens in this driver is not sampled either.
            recorder.fallback = Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
            return unrecorded_span(recorder.fallback)
        attributes = {
            names.RAY_PID: str(os.getpid()),
            names.RAY_JOB_ID: process.job_id,
            names.RAY_NODE_ID: process.node_id,
            names.RAY_WORKER_ID: process.worker_id,
            names.RAY_TASK_ID: self._driver_task_id.hex(),
        }
        template = Template(names.driver_name(script), INTERNAL, attributes)
        span = recorder.start(template, trace_id, flags, parent, b"", {})
        recorder.fallback = Parent(trace_id, span.span_id, flags, span.trace_state, remote=False)
        return span

    def submission(
        self, names_of: Callable[[Any], tuple[str, str] | None], called: Any, *, creation: bool = False
    ) -> Submission | None:
        """The span and carried context of a call that is about to be submitted; None if there is none, or that failed.

        ``names_of(called)`` is the class name, empty for a task, and the function's. It may return None, and fail: it
        reads what another version of Ray may have changed.
        """
        try:
            call_names = names_of(called)
            if call_names is None:
                return None
            template = self.template(PRODUCER, *call_names)
            return Submission(self, context_api.get_current(), template, creation=creation)
        except Exception as error:  # noqa: BLE001  the call is the user's, the fault would be ours
            failed("tracing a call", error)
            return None


class Submission:
    """One call on its way out: the context that it carries and the PRODUCER span, written when it has been submitted.

    Attributes:
        carried: The argument that the call takes along, or None if there is nothing to say.
    """

    __slots__ = ("_context", "_flags", "_parent", "_span_id", "_start", "_template", "_trace_id", "_tracing", "carried")

    def __init__(
        self, tracing: Tracing, context: context_api.Context, template: Template | None, *, creation: bool
    ) -> None:
        recorder = tracing.recorder
        self._tracing = tracing
        self._context = context
        self._template = template
        self._parent = parent = recorder.parent(context)
        self._start = time.time_ns()
        if template is None:
            # No span here: the work continues the trace of the span around the call, if there is one.
            self.carried = None
            if parent is None:
                return
            self._trace_id, self._span_id, self._flags = parent.trace_id, parent.span_id, parent.flags
        else:
            self._trace_id, self._flags = recorder.decide(parent)
            self._span_id = ids.new_span_id()
            if not self._flags & SAMPLED:
                self._template = None
        self.carried = tracing.outgoing(
            context, self._trace_id, self._span_id, self._flags, self._start, parent, creation=creation
        )

    def submitted(self, task_id: str, actor_id: str = "") -> None:
        """Write the span. ``task_id`` is empty if the call returned nothing that tells it."""
        if self._template is None:
            return
        additions = b""
        if task_id:
            additions = TASK_ID + task_id.encode()
        caller = self._tracing.caller(self._context)
        if caller:
            additions += PARENT_TASK_ID + caller.hex().encode()
        if actor_id:
            additions += ACTOR_ID + actor_id.encode()
        self._write(additions)

    def refused(self, error: BaseException) -> None:
        """Write the span of a call that Ray did not take."""
        if self._template is None:
            return
        now = time.time_ns()
        self._write(
            wire.attribute(names.ERROR_TYPE, qualified_name(type(error)))
            + wire.event("exception", now, exception_attributes(error, error.__traceback__))
            + wire.status(wire.STATUS_ERROR, summary(error)),
        )

    def _write(self, additions: bytes) -> None:
        assert self._template is not None
        try:
            self._tracing.recorder.record(
                self._template, self._trace_id, self._span_id, self._parent, self._start, time.time_ns(), additions
            )
        except Exception as error:  # noqa: BLE001  as in `submission`
            failed("recording a call", error)


def incoming(carried: Carried) -> tuple[context_api.Context, Parent]:
    """The context that a call brought along, with its submission as the current (remote) span, and that span."""
    context = context_api.Context()
    trace_state = None
    if carried.headers:
        context = propagate.extract({**carried.headers, "traceparent": _traceparent(carried)}, context)
        trace_state = trace.get_current_span(context).get_span_context().trace_state or None
    return context, Parent(carried.trace_id, carried.span_id, carried.flags, trace_state, remote=True)


def unrecorded_span(parent: Parent) -> trace.Span:
    """A span that is not recorded and stands for ``parent``."""
    return trace.NonRecordingSpan(
        trace.SpanContext(
            int.from_bytes(parent.trace_id, "big"),
            int.from_bytes(parent.span_id, "big"),
            is_remote=parent.remote,
            trace_flags=trace.TraceFlags(parent.flags),
            trace_state=parent.trace_state,
        )
    )


def _traceparent(carried: Carried) -> str:
    return f"00-{carried.trace_id.hex()}-{carried.span_id.hex()}-{carried.flags:02x}"


active: Tracing | None = None
