"""The instrumentation of one connection to Ray, the state that its calls share, and whether tracing is on.

Wrappers read :data:`active` on each call and use the part that they need. It is None before a hook ran, after
``ray.shutdown()``, in a forked child, and while the process is connected to a cluster without a tracing hook; every
wrapper then only calls the original.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import get_ident
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.context import Context

from ray_tracing_hooks import _compiled, names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import START_TAG, after_id, before_id
from ray_tracing_hooks._ray.cluster import Cluster, SharedTrace
from ray_tracing_hooks._ray.labels import CallLabel, CallLabeler, Namings
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._ray.propagation import (
    SPAN_AND_TASK,
    TASK_ID,
    TASK_KEY,
    caller_attribute,
    headers_of,
    only_standard_headers,
    reference,
)
from ray_tracing_hooks._ray.templates import PRODUCER, HeldResources, ProcessAttributes, Selection, Templates
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.recorder import Recorder, Template

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.memory import Memory
    from ray_tracing_hooks._ray.rates import RateLimit, RateLimits
    from ray_tracing_hooks._record.argument_text import Redactor


class GenerationOptions(NamedTuple):
    """What the settings say of the spans of generations.

    Attributes:
        phases: Whether the phases of a generation are spans too.
        usage: Whether tokens are counted under the standard names, which viewers add up.
    """

    phases: bool = False
    usage: bool = True


class Options(NamedTuple):
    """What the settings say of the spans of calls.

    Attributes:
        redactor: Renders the arguments and results of executions, or None.
        redact: Patterns of what is redacted in the configurations of a library, which are recorded in any case.
        rate_limits: The rate limits on calls that make spans, or None.
        memory: Measures the memory of executions, or None.
    """

    selection: Selection
    redactor: Redactor | None = None
    redact: tuple[str, ...] = ()
    rate_limits: RateLimits | None = None
    memory: Memory | None = None
    llm: GenerationOptions = GenerationOptions()


class Tracing:
    """The parts of the instrumentation of one connection.

    Args:
        options: What the settings say of the spans of calls; each of them is an attribute too.
        carries_submit_time: Whether recorded calls of tasks carry the time of their submission (:class:`SharedTrace`).
        join_serve: Traces what this process has imported of Ray Serve; returns whether Serve is traced.

    Attributes:
        namings: The namings of calls that run something else than their function's name says.
        job: The trace of this process's job.
        held: The resources that its current task holds.
        service: The service as which SkyWalking knows this process, if it knows deployments of Ray Serve as services of
            their own; else empty.
        on_replica: Called in a replica that starts, with its deployment and application, or None.
        thread: The thread in which this process connected to Ray: that of a driver's own code.
        waits: Whether waiting for objects and storing them makes spans here. For a traced client, the
            client waits and not its server.
    """

    def __init__(
        self,
        recorder: Recorder,
        process: RayProcess,
        cluster: Cluster,
        options: Options,
        *,
        carries_submit_time: bool = False,
        join_serve: Callable[[], bool] = lambda: False,
    ) -> None:
        self.process = process
        self.join_serve = join_serve
        self.driver_task_id = process.current_task_id() if process.is_driver else b""
        self.process_attributes = ProcessAttributes(process)
        self.job = SharedTrace(cluster, process, recorder, self.driver_task_id, carries_submit_time=carries_submit_time)
        self.held = HeldResources()
        self.service = ""
        self.on_replica: Callable[[str, str], None] | None = None
        self.thread = get_ident()
        self.waits = True
        self._set(recorder, options)

    def changed(self, recorder: Recorder, options: Options) -> Tracing:
        """The instrumentation of the same connection with other settings. What has begun keeps those it began with."""
        found = copy.copy(self)
        found.job.recorder = recorder
        found._set(recorder, options)  # noqa: SLF001  of this class
        return found

    def is_in_other_thread(self) -> bool:
        """Whether this runs in a thread of a driver that is not the one of its own code."""
        return get_ident() != self.thread and self.process.is_driver

    def thread_attribute(self) -> bytes:
        """The encoded ``thread.id`` in such a thread; empty in others."""
        return encode.attribute(names.THREAD_ID, get_ident()) if self.is_in_other_thread() else b""

    def _set(self, recorder: Recorder, options: Options) -> None:
        self.recorder = recorder
        self.selection, self.redactor, self.redact, self.rate_limits, self.memory, self.llm = options
        self.templates = Templates(self.process, self.process_attributes, self.selection)
        self.namings = Namings(self.selection.parts)
        self.calls = OutgoingCalls(self)


active: Tracing | None = None
"""The instrumentation of this process's connection to Ray, or None if it is not traced."""


class Called(NamedTuple):
    """The target of a submission."""

    template: Template | None
    """None if the call makes no span."""
    inherits: bool
    """Whether the submission returns its task's id, and the task runs in a worker of this process's own job: both sides
    can then derive the submission's span id, and nothing has to be carried."""
    is_of_own_job: bool = True
    """Whether the task runs in a worker of this process's own job."""
    creation: bool = False
    """Whether it creates an actor."""
    attributes: bytes = b""
    """The encoded attributes of the span besides the template."""
    limit: RateLimit | None = None
    """The rate limit on such calls. With a limit, ``inherits`` is False, since the task must know the decision."""
    name: str = ""
    """The name from ``.options(name=...)``; ``inherits`` is False then, for the same reason."""
    runs: CallLabel | None = None
    """What the call runs, if its worker has to be told; ``inherits`` is False then, for the same reason."""

    def named(self, name: Any) -> Called:
        """The same call with a name, unless its span has that name already."""
        if not name or not isinstance(name, str):
            return self
        if self.template is not None:
            known = self.template.attributes
            function = known[names.RAY_FUNCTION]
            # Ray Train names each call of `execute` by the function too.
            if name in {function, f"{known.get(names.RAY_ACTOR_METHOD)}.{function.rpartition('.')[2]}"}:
                return self
        return self._replace(inherits=False, name=name)


class Dispatched(NamedTuple):
    """The target of submissions that run something else than its name says."""

    naming: CallLabeler
    called: Called
    """The target, for calls that do not say what they run."""
    named: tuple[str, str, str]
    """The names of its class and function and the module of its class, for its templates."""


class OutgoingCalls:
    """The calls that this process makes, with the parts of :class:`Tracing` that they need.

    Attributes:
        called: Caches descriptions of targets: of tasks by the function's name and whether they inherit, of methods by
            the actor's id and their name.
        dispatched: The same for those with a naming, which are described anew for each call.
        only_standard_headers: Whether the propagators are only those of the W3C, which inject nothing but the context.
        around: The surroundings of the last call, cached for the next one.
        submissions: The same for the compiled part, if calls in them carry nothing; else None.
        bodies: For the compiled part, what is constant in the spans of calls that carry nothing, by the keys of
            :attr:`called`.
    """

    def __init__(self, active: Tracing) -> None:
        self.recorder, self.templates, self.namings = active.recorder, active.templates, active.namings
        self.job, self.join_serve = active.job, active.join_serve
        self.own_job = active.process_attributes.job_id
        self.object_ref = active.process.object_ref()
        self.called: dict[tuple[Any, Any], Called | None] = {}
        self.dispatched: dict[tuple[Any, Any], Dispatched] = {}
        self.bodies: dict[tuple[Any, Any], bytes] = {}
        self.around: CallContext | None = None
        self.submissions: _compiled.hotpath.Submissions | None = None
        # With the standard propagators, a context without baggage has nothing to inject but the span itself.
        self.only_standard_headers = only_standard_headers()
        self._rate_limits = active.rate_limits
        self._driver_task_id = active.driver_task_id

    def limit(self, template: Template | None) -> RateLimit | None:
        return None if self._rate_limits is None or template is None else self._rate_limits.of(template)

    def describe_dispatched(self, dispatched: Dispatched, args: Any, kwargs: Any) -> Called:
        """A call with a naming, described by what it runs."""
        called, naming = dispatched.called, dispatched.naming
        shown = naming.shown(args, kwargs)
        if shown is None:
            return called
        return self.shown(called, dispatched.named, naming.part, shown)

    def shown(self, called: Called, named: tuple[str, str, str], part: str, runs: CallLabel) -> Called:
        """A call of ``named``, its class, function and the module of its class, described by what it runs."""
        template = self.templates.of(PRODUCER, *named, "", runs.name, part)
        limit = self.limit(template)
        return called._replace(
            template=template,
            inherits=called.inherits and limit is None and not runs.is_carried,
            limit=limit,
            attributes=called.attributes + runs.attributes,
            runs=runs if runs.is_carried else None,
        )

    def caller(self, context: Context) -> bytes:
        """The 24 bytes of the id of the task that ``context`` belongs to, or empty if unknown."""
        task_id = context.get(TASK_KEY)
        return task_id if isinstance(task_id, bytes) else self._driver_task_id

    def publish_job_trace(self) -> None:
        """Publish the trace of this driver's root span to the workers of its job: most calls need not carry it then."""
        if self.only_standard_headers and self.job.publish():
            self.around = self.submissions = None


_ENDLESS = SimpleNamespace(end_time=None)
"""Stands for spans whose end is not known here, such as those of other processes."""


class CallContext:
    """What calls in one context have in common."""

    def __init__(self, calls: OutgoingCalls, context: Context) -> None:
        recorder = calls.recorder
        self.context, self.sampler, self.fallback = context, recorder.sampler, recorder.fallback
        span = context.get(SPAN_KEY)
        # Once it has ended, it may be the parent of one call and not of the next.
        self.span: Any = span if hasattr(span, "end_time") else _ENDLESS
        self.parent = parent = recorder.parent(context)
        self.trace_id, self.flags = recorder.decide(parent)
        self.recorder = recorder.of(self.flags)
        # They carry it where their workers record them: those of unsampled traces, if they failed or were slow.
        self.parent_id: bytes | None = None
        if self.recorder is not None and self.recorder.rule is not None:
            self.parent_id = parent.span_id if parent is not None else b""
        self.headers = headers_of(context, parent, only_standard=calls.only_standard_headers)
        self.caller = calls.caller(context)
        job = calls.job.published
        self.inherits = (
            job is not None
            and self.headers is None
            and self.parent_id is None
            and (self.trace_id, self.flags) == (job.trace_id, job.flags)
        )
        # The parts that are the same in the encoded spans of all these calls.
        self.mask = ids.mask_of_driver(job.root_span_id) if job is not None and self.inherits else 0
        self.before = before_id(self.trace_id)
        self.after = after_id(parent)
        self.of_caller = caller_attribute(self.caller) + reference(context, parent)
        if parent is None:
            self.of_caller += calls.job.link
        self.object_ref = calls.object_ref


def around_of(calls: OutgoingCalls) -> CallContext:
    """The surroundings of calls made now: those of the last call, if nothing has changed."""
    context, recorder, around = get_current(), calls.recorder, calls.around
    if (
        around is None
        or around.context is not context
        or around.fallback is not recorder.fallback
        or around.sampler is not recorder.sampler
        or around.span.end_time is not None
    ):
        around = _look_around(calls, context)
    return around


def _look_around(calls: OutgoingCalls, context: Context) -> CallContext:
    """The surroundings of calls in ``context``, cached for the next call if possible."""
    around = CallContext(calls, context)
    # Not if each call begins its own trace, if the sampler or propagators may decide differently next time, or if the
    # context contains more than a span, which the cache would keep alive.
    if (
        around.parent is not None
        and around.sampler.is_constant
        and calls.only_standard_headers
        and SPAN_AND_TASK.issuperset(context)
    ):
        # None if calls carry their context.
        calls.submissions = _submissions(calls, around) if around.inherits else None
        calls.around = around
    return around


def _submissions(calls: OutgoingCalls, around: CallContext) -> _compiled.hotpath.Submissions | None:
    """``around`` for the compiled part, if that is in use."""
    if not _compiled.use.is_on:
        return None
    return _compiled.use.submissions(
        made_of=(calls, around),
        context=around.context,
        span=around.span,
        connection=calls.recorder,
        sampler=around.sampler,
        fallback=around.fallback,
        recorder=around.recorder,
        object_ref=around.object_ref,
        bodies=calls.bodies,
        mask=around.mask,
        before_span_id=around.before,
        after_span_id=around.after + START_TAG,
        before_task_id=around.of_caller + TASK_ID,
    )
