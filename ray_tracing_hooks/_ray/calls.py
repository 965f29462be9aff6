"""What the calls of one connection share: what they call, and the context in which they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.context import Context

from ray_tracing_hooks._formats.encoded_span.encode import after_id, before_id
from ray_tracing_hooks._ray.cluster import SharedTrace
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._ray.propagation import (
    SPAN_AND_TASK,
    TASK_KEY,
    caller_attribute,
    headers_of,
    only_standard_headers,
)
from ray_tracing_hooks._ray.templates import Templates, Whereabouts
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.recorder import Recorder, Template

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.rates import RateLimit, RateLimits


class Called(NamedTuple):
    """What a submission calls."""

    template: Template | None
    """None where the call makes no span."""
    inherits: bool
    """Whether the submission returns its task's id, and the task runs in a worker of this process's own job: both sides
    can then tell the submission's span, and nothing has to travel."""
    is_of_own_job: bool = True
    """Whether the task runs in a worker of this process's own job."""
    creation: bool = False
    """Whether it makes an actor."""
    attributes: bytes = b""
    """What the span says of it besides the template, encoded."""
    limit: RateLimit | None = None
    """How many such calls a second make spans. With a limit ``inherits`` is False: its task has to be told."""
    name: str = ""
    """What ``.options(name=...)`` gave the call; ``inherits`` is False then, for the same reason."""

    def named(self, name: Any) -> Called:
        """The same call with a name."""
        return self._replace(inherits=False, name=name) if name and isinstance(name, str) else self


class Calls:
    """The calls that this process makes.

    Args:
        recorder: Where spans go.
        process: This process.
        driver_task_id: Its task id if it is a driver: the same for its whole life. Else empty.
        templates: The templates of call sites.
        whereabouts: Where spans of this process are made.
        job: The trace of its job.
        rate_limits: How many calls a second make spans, if that is limited.
        join_serve: Called for an actor of Serve's; whether Serve is traced, so that this call makes no span.

    Attributes:
        called: What is known of what this process has called: of tasks by the function's name and whether they inherit,
            of methods by the actor's id and their name.
        only_standard_headers: Whether the propagators are those of the W3C, which say nothing but what they are given.
        around: What calls have around them in the context in which the last one was made, which lives on until the
            next.
    """

    def __init__(
        self,
        recorder: Recorder,
        process: RayProcess,
        driver_task_id: bytes,
        templates: Templates,
        whereabouts: Whereabouts,
        job: SharedTrace,
        rate_limits: RateLimits | None,
        join_serve: Callable[[], bool],
    ) -> None:
        self.recorder = recorder
        self.templates = templates
        self.job = job
        self.own_job = whereabouts.job_id
        self.join_serve = join_serve
        self.object_ref = process.object_ref()
        self.called: dict[tuple[Any, Any], Called | None] = {}
        self.around: Around | None = None
        # With only the standard propagators a context without baggage has nothing to inject but the span itself.
        self.only_standard_headers = only_standard_headers()
        self._rate_limits = rate_limits
        self._driver_task_id = driver_task_id

    def limit(self, template: Template | None) -> RateLimit | None:
        """The limit on how many calls of this call site make spans."""
        return None if self._rate_limits is None or template is None else self._rate_limits.of(template)

    def caller(self, context: Context) -> bytes:
        """The 24 bytes of the task that ``context`` belongs to, or empty if that is not known."""
        task_id = context.get(TASK_KEY)
        return task_id if isinstance(task_id, bytes) else self._driver_task_id

    def publish_job_trace(self) -> None:
        """Tell the workers of this driver's job the trace of its root span, so that most calls need not carry it."""
        if self.only_standard_headers and self.job.publish():
            self.around = None


class Around:
    """What the calls have in common that are made in one context."""

    __slots__ = (
        "after",
        "before",
        "caller",
        "context",
        "fallback",
        "flags",
        "headers",
        "inherits",
        "mask",
        "object_ref",
        "of_caller",
        "parent",
        "recorder",
        "sampler",
        "trace_id",
    )

    def __init__(self, calls: Calls, context: Context) -> None:
        recorder = calls.recorder
        self.context, self.sampler, self.fallback = context, recorder.sampler, recorder.fallback
        self.parent = parent = recorder.parent(context)
        self.trace_id, self.flags = recorder.decide(parent)
        self.recorder = recorder.of(self.flags)
        self.headers = headers_of(context, parent, only_standard=calls.only_standard_headers)
        self.caller = calls.caller(context)
        job = calls.job.published
        self.inherits = (
            job is not None and self.headers is None and (self.trace_id, self.flags) == (job.trace_id, job.flags)
        )
        # What is the same in the encoded spans of all these calls.
        self.mask = ids.mask_of_driver(job.root_span_id) if job is not None and self.inherits else 0
        self.before = before_id(self.trace_id)
        self.after = after_id(parent)
        self.of_caller = caller_attribute(self.caller)
        self.object_ref = calls.object_ref


def around_of(calls: Calls) -> Around:
    """What calls have around them that are made now: that of the last one, where nothing has changed."""
    context, recorder, around = get_current(), calls.recorder, calls.around
    if (
        around is None
        or around.context is not context
        or around.fallback is not recorder.fallback
        or around.sampler is not recorder.sampler
    ):
        around = _look_around(calls, context)
    return around


def _look_around(calls: Calls, context: Context) -> Around:
    """What calls have around them that are made in ``context``, kept for the next one where that is possible."""
    around = Around(calls, context)
    # Not where each call begins a trace of its own, where the sampler or propagators may say something else next time,
    # and where the context holds more than a span, which would live longer because of us.
    if (
        around.parent is not None
        and around.sampler.is_constant
        and calls.only_standard_headers
        and SPAN_AND_TASK.issuperset(context)
    ):
        calls.around = around
    return around
