"""The instrumentation of one connection to Ray: what every wrapper needs, and whether tracing is on at all.

Wrappers look at :data:`active` on each call. It is None before a hook ran, after ``ray.shutdown()``, and while the
process is connected to a cluster without a tracing hook; every wrapper then does what the original does.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from opentelemetry import context as context_api
from opentelemetry import propagate, trace

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._ray import cluster
from ray_tracing_hooks._ray.cluster import JobTrace
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._record import carrier, ids, wire
from ray_tracing_hooks._record.carrier import Carried
from ray_tracing_hooks._record.recorder import SAMPLED, Recorder, Template
from ray_tracing_hooks._record.span import Parent, RecordedSpan, exception_attributes, qualified_name, summary

INTERNAL, PRODUCER, CONSUMER = 1, 4, 5
"""Span kinds, by OTLP's numbers."""

TASK_KEY = "ray_tracing_hooks.task_id"
"""Where a context keeps the id of the task that it belongs to: also right in a thread that the task started, where Ray
would name an invented task."""

TASK_ID = wire.text_attribute_prefix(names.RAY_TASK_ID, 48)
PARENT_TASK_ID = wire.text_attribute_prefix(names.RAY_PARENT_TASK_ID, 48)
ACTOR_ID = wire.text_attribute_prefix(names.RAY_ACTOR_ID, 32)

(SPAN_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, context_api.Context())
"""Where a context keeps its span. To make a context at once takes a third of the time of adding to it one by one."""

_ASK_SECONDS = 10.0
"""How long after a failure to ask for the trace of a job it is tried again."""

_STANDARD_HEADERS = {"traceparent", "tracestate", "baggage"}


class Tracing:
    """Tracing of this process while it is connected.

    Args:
        recorder: Where spans go.
        process: This process.
        parts: The parts of Ray that make spans: ``task``, ``actor``.
        include: Patterns on ``module.function`` or ``Class.method``; if there are any, nothing else makes spans.
        exclude: Patterns of what makes no span.

    Attributes:
        shares_job_trace: Whether all processes of this job know the trace of its driver's root span, so that calls in
            it need not carry their context.
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
        self.methods: dict[tuple[Any, str], Called | None] = {}
        """What is known of the methods that this process has called, by the actor's id and the method's name."""
        self._job_id = process.job_id
        # A driver has a task id, the same for its whole life.
        self._driver_task_id = process.current_task_id() if process.is_driver else b""
        self._driver_attribute = PARENT_TASK_ID + self._driver_task_id.hex().encode() if process.is_driver else b""
        # With only the standard propagators a context without baggage has nothing to inject but the span itself.
        self._only_standard_headers = set(propagate.get_global_textmap().fields) <= _STANDARD_HEADERS
        self.shares_job_trace = cluster.all_traced
        self._job_trace: JobTrace | None = None
        self._job_unsampled: bytes | None = None
        self._root_span: trace.Span | None = None
        self._inherited: Inherited | None = None
        self._knows_inherited = False
        self._ask_again_at = 0.0
        self._asking = threading.RLock()

    def publish_job_trace(self) -> None:
        """Tell the workers of this driver's job the trace of its root span, so that most calls need not carry it."""
        root = self.recorder.fallback
        if root is None or root.trace_state or not self._only_standard_headers or not self.shares_job_trace:
            return
        trace_of_job = JobTrace(root.trace_id, root.span_id, root.flags, self._driver_task_id)
        if cluster.publish(self.process.job_id, trace_of_job):
            self._job_trace = trace_of_job
            self._job_unsampled = None if root.flags & SAMPLED else root.trace_id

    def inherited(self) -> Inherited | None:
        """What calls of this worker's job belong to that carry nothing; None if there is no such thing.

        Only to be asked where a task is running. May raise what Ray raises.
        """
        if self._knows_inherited:
            return self._inherited
        with self._asking:  # the methods of a threaded actor may begin at the same time
            if time.monotonic() >= self._ask_again_at:
                self._ask_again_at = time.monotonic() + _ASK_SECONDS
                found = cluster.published(self.own_job()) if self.shares_job_trace else None
                self._inherited = Inherited(self, found) if found is not None else None
                self._knows_inherited, self._ask_again_at = True, math.inf
        return self._inherited

    def own_job(self) -> str:
        """The id of the job that this process works for. In a worker only to be asked where a task is running."""
        if not self._job_id:
            # A worker has a job from its first task on, and keeps it.
            self._job_id = self.process.current_job_id()
        return self._job_id

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
        name = names.submission_name(full_name) if kind == PRODUCER else names.execution_name(full_name)
        return Template(
            name,
            kind,
            {
                **what,
                names.RAY_FUNCTION: full_name,
                names.RAY_PID: str(os.getpid()),
                names.RAY_JOB_ID: self.own_job(),
                names.RAY_NODE_ID: self.process.node_id,
                names.RAY_WORKER_ID: self.process.worker_id,
            },
        )

    def caller(self, context: context_api.Context) -> bytes:
        """The 24 bytes of the task that ``context`` belongs to, or empty if that is not known."""
        task_id = context.get(TASK_KEY)
        return task_id if isinstance(task_id, bytes) else self._driver_task_id

    def _headers(self, context: context_api.Context, parent: Parent | None) -> dict[str, str] | None:
        """What the global propagators say of a context besides the span itself; None if that is nothing."""
        plain = 2 if TASK_KEY in context else 1
        if self._only_standard_headers and len(context) <= plain and (parent is None or not parent.trace_state):
            return None
        headers: dict[str, str] = {}
        propagate.inject(headers, context)
        headers.pop("traceparent", None)
        return headers

    def attempt(self) -> bytes:
        """The encoded ``ray.attempt`` of the task that is running, if it is a retry."""
        number = self.process.worker.core_worker.get_current_task_attempt_number()
        return wire.attribute(names.RAY_ATTEMPT, number) if number else b""

    def start_root_span(self, script: str, context: context_api.Context) -> trace.Span:
        """Begin the span of this driver, which becomes the parent of all that has none."""
        recorder, process = self.recorder, self.process
        parent = recorder.parent(context)
        trace_id, flags = recorder.decide(parent)
        if not flags & SAMPLED:
            # Not recorded, but known: what happens in this driver is not sampled either.
            recorder.fallback = Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
            self._root_span = unrecorded_span(recorder.fallback)
            return self._root_span
        attributes = {
            names.RAY_PID: str(os.getpid()),
            names.RAY_JOB_ID: process.job_id,
            names.RAY_NODE_ID: process.node_id,
            names.RAY_WORKER_ID: process.worker_id,
            names.RAY_TASK_ID: self._driver_task_id.hex(),
        }
        template = Template(names.driver_name(script), INTERNAL, attributes)
        span = recorder.start(template, trace_id, flags, parent)
        recorder.fallback = Parent(trace_id, span.span_id, flags, span.trace_state, remote=False)
        return span

    def submission(self, describe: Callable[..., Called | None], *called: Any) -> Submission | None:
        """The span and carried context of a call that is about to be submitted; None if it has neither, or that failed.

        ``describe(*called)`` may return None, and fail: it reads what another version of Ray may have changed.
        """
        try:
            what = describe(*called)
            if what is None:
                return None
            context = context_api.get_current()
            if self._job_unsampled is not None and self._is_left_out(what, context):
                return None
            template = what.template
            recorder = self.recorder
            parent = recorder.parent(context)
            if template is None:
                # No span here: the work continues the trace of the span around the call, if there is one.
                if parent is None:
                    return None
                trace_id, flags = parent.trace_id, parent.flags
            else:
                trace_id, flags = recorder.decide(parent)
            headers = self._headers(context, parent)
            caller = self.caller(context)
            job = self._job_trace
            if (
                job is not None
                and what.inherits
                and trace_id == job.trace_id
                and flags == job.flags
                and template is not None
                and headers is None
            ):
                if not flags & SAMPLED:
                    return None
                return Submission(self, what, template, trace_id, b"", parent, time.time_ns(), caller, None)
            span_id = ids.new_span_id() if template is not None or parent is None else parent.span_id
            if not flags & SAMPLED:
                template = None
            start = time.time_ns()
            carried = carrier.encode(trace_id, span_id, flags, start, caller, headers, creation=what.creation)
            return Submission(self, what, template, trace_id, span_id, parent, start, caller, carried)
        except Exception as error:  # noqa: BLE001  the call is the user's, the fault would be ours
            failed("tracing a call", error)
            return None

    def _is_left_out(self, called: Called, context: context_api.Context) -> bool:
        """Whether a call is plainly one of a trace that is not sampled: the shortest way for what most are then."""
        return (
            called.inherits
            and called.template is not None
            and (not context or (len(context) == 1 and context.get(SPAN_KEY) is self._root_span))
            and not self.recorder.sampler.child(False, self._job_unsampled or b"")
        )

    def caller_attribute(self, caller: bytes) -> bytes:
        """The encoded ``ray.parent_task_id``."""
        if caller is self._driver_task_id:
            return self._driver_attribute
        return PARENT_TASK_ID + caller.hex().encode() if caller else b""


class Called(NamedTuple):
    """What a submission calls."""

    template: Template | None
    """None where the call makes no span."""
    inherits: bool
    """Whether the submission returns its task's id, and the task runs in a worker of this process's own job: both sides
    can then tell the submission's span, and nothing has to travel."""
    creation: bool = False
    """Whether it makes an actor."""
    attributes: bytes = b""
    """What the span says of it besides the template, encoded."""


class Inherited:
    """The trace of a worker's job, and what tasks begin with that carry nothing: their submissions are the driver's."""

    def __init__(self, active: Tracing, trace_of_job: JobTrace) -> None:
        self._active = active
        self._trace_id, root_span_id, self._flags, driver = trace_of_job
        self._sampled = bool(self._flags & SAMPLED)
        self._caller = PARENT_TASK_ID + driver.hex().encode()
        # What is not sampled need not know its parent.
        root = Parent(self._trace_id, root_span_id, self._flags, None, remote=True)
        self._unsampled = trace.set_span_in_context(unrecorded_span(root), context_api.Context())

    def begin(self, class_name: str, name: str) -> tuple[context_api.Context, RecordedSpan | None]:
        """The context that a task runs in, and its span, if it has one. Only to be called where it is running."""
        active = self._active
        trace_id, flags = self._trace_id, self._flags
        sampled = active.recorder.sampler.child(self._sampled, trace_id)
        if not sampled and not self._sampled:
            return self._unsampled, None
        task_id = active.process.current_task_id()
        parent = Parent(trace_id, ids.span_id_of_task(task_id, trace_id), flags, None, True)
        template = active.template(CONSUMER, class_name, name)
        if template is None or not sampled:
            return context_api.Context({SPAN_KEY: unrecorded_span(parent), TASK_KEY: task_id}), None
        hex_id = task_id.hex().encode()
        first = TASK_ID + hex_id + self._caller
        if class_name:
            first += ACTOR_ID + hex_id[16:]
        first += active.attempt()
        span = active.recorder.start(template, trace_id, flags | SAMPLED, parent, first)
        return context_api.Context({SPAN_KEY: span, TASK_KEY: task_id}), span


class Submission:
    """One call on its way out: the context that it carries and the PRODUCER span, written when it has been submitted.

    ``template`` is None where there is no span, and ``span_id`` is empty where it is that of the task.

    Attributes:
        carried: The argument that the call takes along, or None if its worker knows the context.
    """

    __slots__ = ("_called", "_caller", "_parent", "_span_id", "_start", "_template", "_trace_id", "_tracing", "carried")

    def __init__(
        self,
        tracing: Tracing,
        called: Called,
        template: Template | None,
        trace_id: bytes,
        span_id: bytes,
        parent: Parent | None,
        start: int,
        caller: bytes,
        carried: bytes | None,
    ) -> None:
        self._tracing = tracing
        self._called = called
        self._template = template
        self._trace_id = trace_id
        self._span_id = span_id
        self._parent = parent
        self._start = start
        self._caller = caller
        self.carried = carried

    def submitted(self, task_id: bytes, attributes: bytes = b"") -> None:
        """Write the span. ``task_id`` is empty if the call returned nothing that tells it."""
        if self._template is None:
            return
        additions = self._called.attributes + self._tracing.caller_attribute(self._caller) + attributes
        if task_id:
            additions += TASK_ID + task_id.hex().encode()
            if not self._span_id:
                self._span_id = ids.span_id_of_task(task_id, self._trace_id)
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
            span_id = self._span_id or ids.new_span_id()
            self._tracing.recorder.record(
                self._template, self._trace_id, span_id, self._parent, self._start, time.time_ns(), additions
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
    return trace.NonRecordingSpan(parent.span_context())


def _traceparent(carried: Carried) -> str:
    return f"00-{carried.trace_id.hex()}-{carried.span_id.hex()}-{carried.flags:02x}"


active: Tracing | None = None
