"""The instrumentation of one connection to Ray: what every wrapper needs, and whether tracing is on at all.

Wrappers look at :data:`active` on each call. It is None before a hook ran, after ``ray.shutdown()``, and while the
process is connected to a cluster without a tracing hook; every wrapper then does what the original does.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry import propagate, trace

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._ray import cluster
from ray_tracing_hooks._ray.cluster import JobTrace
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._record import ids, wire
from ray_tracing_hooks._record.carrier import Carried
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import Parent

if TYPE_CHECKING:
    from ray_tracing_hooks._patching import Patches
    from ray_tracing_hooks._ray.rates import RateLimit, RateLimits
    from ray_tracing_hooks._ray.submission import Around, Called
    from ray_tracing_hooks._record.redaction import Redactor

INTERNAL, SERVER, PRODUCER, CONSUMER = 1, 2, 4, 5
"""Span kinds, by OTLP's numbers."""

SERVE = "serve"
"""Of ``RAY_TRACING_RAY``: the requests of Ray Serve."""

OF_SERVE = "ray.serve._private."
"""Where the actors of Serve are: a process that runs or calls one takes part in it."""

HAS_SERVE = "ray.serve.schema"
"""A module that is in a process which has imported Serve."""

TASK_KEY = "ray_tracing_hooks.task_id"
"""Where a context keeps the id of the task that it belongs to: also right in a thread that the task started, where Ray
would name an invented task."""

TASK_ID = wire.text_attribute_prefix(names.RAY_TASK_ID, 48)
PARENT_TASK_ID = wire.text_attribute_prefix(names.RAY_PARENT_TASK_ID, 48)
ACTOR_ID = wire.text_attribute_prefix(names.RAY_ACTOR_ID, 32)

_NOTHING = context_api.Context()

_INTERNAL_MODULES = tuple(
    f"ray.{name}."
    for name in ("_private", "autoscaler", "dashboard", "data._internal", "serve._private", "util.client")
)
"""Where tasks and actors are Ray's own, and no user's code runs in them but by further calls, or through Ray Data."""

_RUNS_CODE_OF_THE_USER = "__ray_call__"
"""Of the methods that Ray gives to each actor."""

_ASK_SECONDS = 10.0
"""How long after a failure to ask for the trace of a job it is tried again."""

_STANDARD_HEADERS = {"traceparent", "tracestate", "baggage"}


class Tracing:
    """Tracing of this process while it is connected.

    Args:
        recorder: Where spans go.
        process: This process.
        parts: The parts of Ray that make spans: ``task``, ``actor``, ``job``, ``serve``.
        include: Patterns on ``module.function`` or ``Class.method``; if there are any, nothing else makes spans.
        exclude: Patterns of what makes no span.
        internal: Whether tasks and actors of Ray's own make spans, those that ``include`` does not name.
        redactor: What shows the arguments and results of executions, or None.
        rate_limits: How many calls a second make spans, if that is limited.
        patches: Where to put what is replaced once it is found to be used.

    Attributes:
        has_patterns: Whether there are patterns of what makes spans, or of what makes none.
        shows_internal: Whether tasks and actors of Ray's own make spans.
        shares_job_trace: Whether all processes of this job know the trace of its driver's root span, so that calls in
            it need not carry their context.
        job_trace: In a driver that trace, once its workers can know it. In a worker the same if it is not recorded:
            else what it calls has to be told who the caller is.
        waits: Whether waiting for objects and storing them makes spans here. In the server of a traced client it is the
            client that waits.
        only_standard_headers: Whether the propagators are those of the W3C, which say nothing but what they are given.
    """

    def __init__(
        self,
        recorder: Recorder,
        process: RayProcess,
        *,
        parts: Iterable[str],
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        internal: bool = False,
        redactor: Redactor | None = None,
        rate_limits: RateLimits | None = None,
        patches: Patches | None = None,
    ) -> None:
        self.recorder = recorder
        self.process = process
        self.parts = frozenset(parts)
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self.has_patterns = bool(self._include or self._exclude)
        self.shows_internal = internal
        self.redactor = redactor
        self.rate_limits = rate_limits
        self.patches = patches
        self._templates: dict[tuple[int, str, str, str, str], Template | None] = {}
        self.called: dict[tuple[Any, Any], Called | None] = {}
        """What is known of what this process has called: of tasks by the function's name and whether they inherit, of
        methods by the actor's id and their name."""
        self.around: Around | None = None
        """What calls have around them in the context in which the last one was made, which lives on until the next."""
        self.object_ref = process.object_ref()
        self._job_id = process.job_id
        # A driver has a task id, the same for its whole life.
        self._driver_task_id = process.current_task_id() if process.is_driver else b""
        # With only the standard propagators a context without baggage has nothing to inject but the span itself.
        self.only_standard_headers = set(propagate.get_global_textmap().fields) <= _STANDARD_HEADERS
        self.shares_job_trace = cluster.all_traced and not process.is_client
        self.job_trace: JobTrace | None = None
        self.waits = True
        self._inherited: JobTrace | None = None
        self._knows_inherited = process.is_driver
        self._ask_again_at = 0.0
        self._asking = threading.RLock()

    def publish_job_trace(self) -> None:
        """Tell the workers of this driver's job the trace of its root span, so that most calls need not carry it."""
        root = self.recorder.fallback
        if root is None or root.trace_state or not self.only_standard_headers or not self.shares_job_trace:
            return
        trace_of_job = JobTrace(root.trace_id, root.span_id, root.flags, self._driver_task_id)
        if cluster.publish(self.process.job_id, trace_of_job):
            self.job_trace = trace_of_job
            self.around = None

    def inherited_trace(self) -> JobTrace | None:
        """What calls of this worker's job belong to that carry nothing; None if there is no such thing.

        Only to be asked where a task is running. May raise what Ray raises.
        """
        if not self._knows_inherited:
            with self._asking:  # the methods of a threaded actor may begin at the same time
                if time.monotonic() >= self._ask_again_at:
                    self._ask_again_at = time.monotonic() + _ASK_SECONDS
                    self._inherited = cluster.published(self.own_job()) if self.shares_job_trace else None
                    if self._inherited is not None and self.recorder.of(self._inherited.flags) is None:
                        self.job_trace = self._inherited
                    self._knows_inherited, self._ask_again_at = True, math.inf
        return self._inherited

    def own_job(self) -> str:
        """The id of the job that this process works for. In a worker only to be asked where a task is running."""
        if not self._job_id:
            # A worker has a job from its first task on, and keeps it.
            self._job_id = self.process.current_job_id()
        return self._job_id

    def selects(self, function: str, part: str, *, is_internal: bool = False) -> bool:
        """Whether calls of ``function`` make spans; ``is_internal`` says that it is one of Ray's own."""
        if part not in self.parts:
            return False
        if self._include:
            if not any(fnmatchcase(function, pattern) for pattern in self._include):
                return False
        elif is_internal and not self.shows_internal:
            return False
        return not any(fnmatchcase(function, pattern) for pattern in self._exclude)

    def template(self, kind: int, class_name: str, function: str, module: str = "", group: str = "") -> Template | None:
        """The template of one call site, or None where its calls make no spans.

        ``class_name`` is empty for a task; ``function`` is then ``module.function``, else the method's name,
        ``module`` that of the class, and ``group`` the concurrency group in which the method is run.
        """
        key = (kind, class_name, function, module, group)
        try:
            return self._templates[key]
        except KeyError:
            made = self._templates[key] = self._make_template(*key)
            return made

    def limit(self, template: Template | None) -> RateLimit | None:
        """The limit on how many calls of this call site make spans."""
        return None if self.rate_limits is None or template is None else self.rate_limits.of(template)

    def template_of_waiting(self, name: str) -> Template:
        """The template of a span around one of Ray's own functions, such as ``ray.get``."""
        key = (INTERNAL, "", name, "", "")
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = Template(name, INTERNAL, self.whereabouts())
        return found

    def _make_template(self, kind: int, class_name: str, function: str, module: str, group: str) -> Template | None:
        full_name = f"{class_name}.{function}" if class_name else function
        is_internal = (f"{module}." if class_name else function).startswith(_INTERNAL_MODULES) or (
            function.startswith("__ray_") and function != _RUNS_CODE_OF_THE_USER
        )
        if not self.selects(full_name, "actor" if class_name else "task", is_internal=is_internal):
            return None
        if class_name:
            what = {names.RAY_REMOTE: "actor", names.RAY_ACTOR_CLASS: class_name, names.RAY_ACTOR_METHOD: function}
        else:
            what = {names.RAY_REMOTE: "function"}
        attributes: dict[str, Any] = {**what, names.RAY_FUNCTION: full_name, **self.whereabouts()}
        if kind == PRODUCER:
            return Template(names.submission_name(full_name), kind, attributes)
        if class_name:
            try:
                attributes |= self.process.of_actor()
            except Exception as error:  # noqa: BLE001  another Ray may tell it otherwise
                failed("asking Ray about this actor", error)
            if group:
                attributes[names.RAY_CONCURRENCY_GROUP] = group
        return Template(names.execution_name(full_name), kind, attributes)

    def whereabouts(self) -> dict[str, str]:
        """Where spans of this process are made. In a worker only to be asked where a task is running."""
        return {
            names.RAY_PID: str(os.getpid()),
            names.RAY_JOB_ID: self.own_job(),
            **({names.RAY_NODE_ID: self.process.node_id} if self.process.node_id else {}),
            names.RAY_WORKER_ID: self.process.worker_id,
        }

    def caller(self, context: context_api.Context) -> bytes:
        """The 24 bytes of the task that ``context`` belongs to, or empty if that is not known."""
        task_id = context.get(TASK_KEY)
        return task_id if isinstance(task_id, bytes) else self._driver_task_id

    def start_root_span(
        self,
        script: str,
        context: context_api.Context,
        attributes: Mapping[str, str] | None = None,
        start_time: int | None = None,
    ) -> trace.Span:
        """Begin the span of this driver, which becomes the parent of all that has none; now, or at an earlier time."""
        recorder = self.recorder
        parent = recorder.parent(context)
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        if recording is None:
            # Not recorded, but known: what happens in this driver is not sampled either.
            state = parent.trace_state if parent is not None else None
            recorder.fallback = Parent(trace_id, ids.new_span_id(), flags, state, remote=False)
            return unrecorded_span(recorder.fallback)
        attributes = {**self.whereabouts(), names.RAY_TASK_ID: self._driver_task_id.hex(), **(attributes or {})}
        template = Template(names.driver_name(script), INTERNAL, attributes)
        span = recording.start(template, trace_id, flags, parent, start_time=start_time)
        recorder.fallback = Parent(trace_id, span.span_id, flags, span.trace_state, remote=False)
        return span


def caller_attribute(caller: bytes) -> bytes:
    """The encoded ``ray.parent_task_id``; nothing if the caller is not known."""
    return PARENT_TASK_ID + caller.hex().encode() if caller else b""


def incoming(carried: Carried) -> tuple[context_api.Context, Parent]:
    """The context that a call brought along, with its submission as the current (remote) span, and that span."""
    context, trace_state = _NOTHING, None
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
