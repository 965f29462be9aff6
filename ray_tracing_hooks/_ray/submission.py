"""Submission of calls: the context that a call carries, and its PRODUCER span, written when Ray has taken the call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import context as context_api
from opentelemetry import propagate

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.arguments import outgoing, with_place
from ray_tracing_hooks._ray.errors import hide_frame
from ray_tracing_hooks._ray.tracing import ACTOR_ID, TASK_ID, TASK_KEY, Tracing, caller_attribute
from ray_tracing_hooks._record import carrier, ids, wire
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.recorder import Template, after_id, before_id
from ray_tracing_hooks._record.span import Parent, exception_attributes, qualified_name, summary

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.rates import RateLimit

_MOST_IDS = 64
"""Of more objects than these the ids are not named, only counted."""

_SPAN_AND_TASK = frozenset({SPAN_KEY, TASK_KEY})

_time_ns = time.time_ns


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
    limit: RateLimit | None = None
    """How many such calls a second make spans. With a limit ``inherits`` is False: its task has to be told."""


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

    def __init__(self, active: Tracing, context: context_api.Context) -> None:
        recorder = active.recorder
        self.context, self.sampler, self.fallback = context, recorder.sampler, recorder.fallback
        self.parent = parent = recorder.parent(context)
        self.trace_id, self.flags = recorder.decide(parent)
        self.recorder = recorder.of(self.flags)
        self.headers = headers_of(active, context, parent)
        self.caller = active.caller(context)
        job = active.job_trace
        self.inherits = (
            job is not None and self.headers is None and (self.trace_id, self.flags) == (job.trace_id, job.flags)
        )
        # What is the same in the encoded spans of all these calls.
        self.mask = ids.mask_of_trace(self.trace_id)
        self.before = before_id(self.trace_id)
        self.after = after_id(parent)
        self.of_caller = caller_attribute(self.caller)
        self.object_ref = active.object_ref


def _look_around(active: Tracing, context: context_api.Context) -> Around:
    """What calls have around them that are made in ``context``, kept for the next one where that is possible."""
    around = Around(active, context)
    # Not where each call begins a trace of its own, where the sampler or propagators may say something else next time,
    # and where the context holds more than a span, which would live longer because of us.
    if (
        around.parent is not None
        and around.sampler.is_constant
        and active.only_standard_headers
        and _SPAN_AND_TASK.issuperset(context)
    ):
        active.around = around
    return around


def around_of(active: Tracing) -> Around:
    """What calls have around them that are made now: that of the last one, where nothing has changed."""
    context, recorder, around = get_current(), active.recorder, active.around
    if (
        around is None
        or around.context is not context
        or around.fallback is not recorder.fallback
        or around.sampler is not recorder.sampler
    ):
        around = _look_around(active, context)
    return around


def headers_of(active: Tracing, context: context_api.Context, parent: Parent | None) -> dict[str, str] | None:
    """What the global propagators say of a context besides the span itself; None where they need not be asked."""
    if active.only_standard_headers and _SPAN_AND_TASK.issuperset(context) and not (parent and parent.trace_state):
        return None
    headers: dict[str, str] = {}
    propagate.inject(headers, context)
    headers.pop("traceparent", None)
    return headers


def begin(active: Tracing, describe: Callable[..., Called | None], *called: Any) -> Submission | None:
    """The span and carried context of a call that is about to be submitted; None if it has neither, or that failed.

    ``describe(active, *called)`` may return None, and fail: it reads what another version of Ray may have changed.
    """
    try:
        what = describe(active, *called)
        if what is None:
            return None
        around = around_of(active)
        template = what.template
        if around.inherits and what.inherits and template is not None:
            return Submission(what, template, around, _time_ns(), b"", None) if around.recorder is not None else None
        return _carrying(what, around)
    except Exception as error:  # noqa: BLE001  the call is the user's, the fault would be ours
        failed("tracing a call", error)
        return None


def _carrying(what: Called, around: Around) -> Submission | None:
    template, parent, flags = what.template, around.parent, around.flags
    without_span = False
    if what.limit is not None and around.recorder is not None:
        left_out = what.limit.take(around.caller)
        if left_out < 0:
            template, without_span = None, True
        elif left_out:
            what = what._replace(attributes=what.attributes + wire.attribute(names.RAY_LEFT_OUT, left_out))
    if template is not None:
        span_id = ids.new_span_id()
        if around.recorder is None:
            template = None
    elif parent is not None:
        # No span here: the work continues the trace of the span around the call.
        span_id, flags = parent.span_id, parent.flags
    else:
        return None
    start = _time_ns()
    carried = carrier.encode(
        around.trace_id,
        span_id,
        flags,
        start,
        around.caller,
        around.headers,
        creation=what.creation,
        without_span=without_span,
    )
    return Submission(what, template, around, start, span_id, carried)


class Submission:
    """One call on its way out.

    Attributes:
        carried: The argument that the call takes along, or None if its worker knows the context.
    """

    __slots__ = ("_around", "_called", "_span_id", "_start", "_template", "carried")

    def __init__(
        self,
        called: Called,
        template: Template | None,
        around: Around,
        start: int,
        span_id: bytes,
        carried: bytes | None,
    ) -> None:
        self._called = called
        # None where there is no span.
        self._template = template
        self._around = around
        self._start = start
        # Empty where it is that of the task.
        self._span_id = span_id
        self.carried = carried

    def submitted(self, result: Any, identify: Callable[[Any], bytes], args: Any, kwargs: Any) -> None:
        """Write the span. ``identify`` gives the id of the task by what the call returned, or nothing."""
        template, called, around = self._template, self._called, self._around
        if template is None:
            return
        try:
            task_id = identify(result)
            attributes = called.attributes + around.of_caller
            if task_id:
                hex_id = task_id.hex().encode()
                attributes += TASK_ID + hex_id
                if called.creation:
                    attributes += ACTOR_ID + hex_id[16:]
                if not self._span_id:
                    self._span_id = ids.span_id_of_task(task_id, around.mask)
            if args or kwargs:
                attributes += _of_arguments(around.object_ref, args, kwargs)
            self._write(template, attributes)
        except Exception as error:  # noqa: BLE001  as in `begin`; what a decorated call returns may be anything
            failed("recording a call", error)

    def refused(self, error: BaseException) -> None:
        """Write the span of a call that Ray did not take."""
        template = self._template
        if template is None:
            return
        try:
            self._write(template, failure(error, _time_ns()))
        except Exception as fault:  # noqa: BLE001  as above
            failed("recording a call", fault)

    def _write(self, template: Template, additions: bytes) -> None:
        around = self._around
        identity = around.before + (self._span_id or ids.new_span_id()) + around.after
        if around.recorder is not None:
            around.recorder.record(template, identity, self._start, _time_ns(), additions)


def failure(error: BaseException, now: int, error_type: str | None = None) -> bytes:
    """What a span says that an error has ended, encoded."""
    return (
        wire.attribute(names.ERROR_TYPE, error_type or qualified_name(type(error)))
        + wire.event("exception", now, exception_attributes(error, error.__traceback__))
        + wire.status(wire.STATUS_ERROR, summary(error))
    )


def _of_arguments(object_ref: type[Any], args: Any, kwargs: Any) -> bytes:
    """What tells the objects among the arguments, encoded: Ray waits for them before it begins the task.

    It does not for those that are within other objects, which nobody looks for.
    """
    refs = [each for each in args or () if type(each) is object_ref]
    if kwargs:
        refs += [each for each in kwargs.values() if type(each) is object_ref]
    if not refs:
        return b""
    named = wire.attribute(names.RAY_ARGUMENT_IDS, [ref.hex() for ref in refs[:_MOST_IDS]])
    return named + wire.attribute(names.RAY_ARGUMENT_COUNT, len(refs))


def task_of(result: Any) -> bytes:
    """The id of the task whose submission returned ``result``, or nothing if it returned nothing that tells it."""
    if isinstance(result, list):
        if not result:
            return b""
        result = result[0]
    ref = getattr(result, "_generator_ref", result)
    task_id = getattr(ref, "task_id", None)
    return bytes(task_id().binary()) if task_id is not None else b""


def traced(
    describe: Callable[..., Called | None],
    identify: Callable[[Any], bytes] = task_of,
    with_place: Callable[[Any], Any] = with_place,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What wraps a ``_remote(self, args, kwargs, ..., **options)`` of Ray's, which submits a call.

    ``describe(active, self, rest, options)`` tells what is called, ``identify`` by what the call returned which task it
    is, and ``with_place`` what to call Ray with so that there is a place for what is carried.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _remote(self: Any, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
            active = tracing.active
            call = begin(active, describe, self, rest, options) if active is not None else None
            carried = call.carried if call is not None else None
            # Not None where Ray is just submitting another call, whose arguments make this one while they are pickled.
            before = outgoing.carried
            try:
                if carried is not before:
                    outgoing.carried = carried
                if carried is not None:
                    args = with_place(args)
                result = original(self, args, kwargs, *rest, **options)
            except BaseException as error:
                hide_frame(error)
                if call is not None:
                    call.refused(error)
                raise
            finally:
                if carried is not before:
                    outgoing.carried = before
            if call is not None:
                call.submitted(result, identify, args, kwargs)
            return result

        return _remote

    return wrap
