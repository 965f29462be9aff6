"""Submission of calls: the context that a call carries, and its PRODUCER span, written when Ray accepted the call."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from ray_tracing_hooks import _compiled, names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.arguments import outgoing
from ray_tracing_hooks._ray.errors import failure
from ray_tracing_hooks._ray.propagation import ACTOR_ID, TASK_ID
from ray_tracing_hooks._ray.tracing import CallContext, Called, OutgoingCalls, around_of
from ray_tracing_hooks._record import carrier, ids
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed

_MOST_IDS = 64
"""At most this many objects are listed by id; further ones are only counted."""


def begin(calls: OutgoingCalls, describe: Callable[..., Called | None], *called: Any) -> Submission | None:
    """The span and carried context of a call to be submitted; None if it has neither, or on failure.

    ``describe(calls, *called)`` may return None, and may fail, since it reads internals of Ray.
    """
    try:
        what = describe(calls, *called)
        if what is None:
            return None
        around = around_of(calls)
        template = what.template
        if around.inherits and what.inherits and template is not None:
            return Submission(what, template, around, now_ns(), b"", None) if around.recorder is not None else None
        return _carrying(calls, what, around)
    except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
        failed("tracing a call", error)
        return None


def _carrying(calls: OutgoingCalls, what: Called, around: CallContext) -> Submission | None:
    template, parent, flags = what.template, around.parent, around.flags
    without_span = False
    if what.limit is not None and around.recorder is not None and around.parent_id is None:
        left_out = what.limit.take(around.caller)
        if left_out < 0:
            template, without_span = None, True
        elif left_out:
            what = what._replace(attributes=what.attributes + encode.attribute(names.RAY_LEFT_OUT, left_out))
    if template is not None:
        span_id = ids.new_span_id()
        if around.recorder is None:
            template = None
    elif parent is not None:
        # No span here: the execution continues the trace of the span around the call.
        span_id, flags = parent.span_id, parent.flags
    else:
        return _without_context(calls, what, around, without_span=without_span)
    start = now_ns()
    # The name of a creation is that of the actor.
    name = encode.attribute(names.RAY_NAME, what.name) if what.name and not what.creation else b""
    if len(name) + (len(what.runs.attributes) if what.runs is not None else 0) > carrier.MOST_BYTES:
        name = b""  # the submission has it
    runs = (what.runs.name, what.runs.attributes + name) if what.runs is not None else ("", name) if name else None
    carried = carrier.encode(
        around.trace_id,
        span_id,
        flags,
        start,
        around.caller,
        around.headers,
        creation=what.creation,
        without_span=without_span,
        runs=runs,
        parent_id=around.parent_id if template is not None else None,
    )
    if around.parent_id is not None:
        return _UnsampledSubmission(what, template, around, start, span_id, carried)
    if what.name:
        return _NamedSubmission(what, template, around, start, span_id, carried)
    return Submission(what, template, around, start, span_id, carried)


def _without_context(
    calls: OutgoingCalls, what: Called, around: CallContext, *, without_span: bool
) -> Submission | None:
    """A call that makes no span and has no span around it: in a thread of a worker, or without a root span.

    It belongs to the job's trace, below its root span, or to none. It must carry which, unless the worker knows of no
    job trace: otherwise the worker would treat it as a call for which the job's driver has made a span.
    """
    job = calls.job.inherited if what.is_of_own_job else None
    if job is not None:
        start = now_ns()
        carried = carrier.encode(
            job.trace_id,
            job.root_span_id,
            job.flags,
            start,
            around.caller,
            None,
            creation=what.creation,
            without_span=without_span,
        )
    elif what.creation or (what.is_of_own_job and not calls.job.may_inherit):
        return None
    else:
        start, carried = 0, carrier.NO_TRACE
    return Submission(what, None, around, start, b"", carried)


class Submission:
    """A call that is being submitted.

    Attributes:
        carried: The encoded context that the call carries, or None if its worker knows the context.
    """

    __slots__ = ("_around", "_called", "_span_id", "_start", "_template", "carried")

    def __init__(
        self,
        called: Called,
        template: Template | None,
        around: CallContext,
        start: int,
        span_id: bytes,
        carried: bytes | None,
    ) -> None:
        self._called = called
        # None without a span.
        self._template = template
        self._around = around
        self._start = start
        # Empty if it is derived from the task id.
        self._span_id = span_id
        self.carried = carried

    def submitted(self, result: Any, identify: Callable[[Any], bytes], args: Any, kwargs: Any) -> None:
        """Write the span. ``identify`` returns the task id for the result of the call, or nothing."""
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
        except Exception as error:  # noqa: BLE001  as in `begin`; a decorated call may return anything
            failed("recording a call", error)

    def refused(self, error: BaseException) -> None:
        """Write the span of a call that Ray refused."""
        template = self._template
        if template is None:
            return
        try:
            self._write(template, self._around.of_caller + failure(error, now_ns()))
        except Exception as fault:  # noqa: BLE001  as above
            failed("recording a call", fault)

    def _write(self, template: Template, additions: bytes) -> None:
        around = self._around
        identity = around.before + (self._span_id or ids.new_span_id()) + around.after
        if around.recorder is not None:
            around.recorder.record(template, identity, self._start, now_ns(), additions)


class _NamedSubmission(Submission):
    """A call with a name, which comes last in its span because it may differ each time."""

    __slots__ = ()

    def _write(self, template: Template, additions: bytes) -> None:
        super()._write(template, additions + encode.attribute(names.RAY_NAME, self._called.name))


class _UnsampledSubmission(Submission):
    """A call in a trace that is not sampled. If it is accepted, its worker writes the span, if any."""

    __slots__ = ()

    def submitted(self, result: Any, identify: Callable[[Any], bytes], args: Any, kwargs: Any) -> None:
        pass

    def _write(self, template: Template, additions: bytes) -> None:
        around, name = self._around, self._called.name
        if around.recorder is not None:
            named = encode.attribute(names.RAY_NAME, name) if name else b""
            identity = around.before + self._span_id + around.after
            around.recorder.record_failed(template, identity, self._start, now_ns(), additions + named)


def _of_arguments(object_ref: type[Any], args: Any, kwargs: Any) -> bytes:
    """The encoded attributes for the objects among the arguments, which Ray waits for before it starts the task.

    Ray does not wait for references inside other objects, so these are not searched.
    """
    refs = [each for each in args or () if type(each) is object_ref]
    if kwargs:
        refs += [each for each in kwargs.values() if type(each) is object_ref]
    if not refs:
        return b""
    named = encode.attribute(names.RAY_ARGUMENT_IDS, [ref.hex() for ref in refs[:_MOST_IDS]])
    return named + encode.attribute(names.RAY_ARGUMENT_COUNT, len(refs))


def task_of(result: Any) -> bytes:
    """The id of the task whose submission returned ``result``; empty if the result does not show it."""
    if isinstance(result, list):
        if not result:
            return b""
        result = result[0]
    ref = getattr(result, "_generator_ref", result)
    task_id = getattr(ref, "task_id", None)
    return bytes(task_id().binary()) if task_id is not None else b""


def as_they_are(args: Any) -> Any:
    """For calls whose arguments Ray always flattens, even if there are none."""
    return args


def traced(
    describe: Callable[..., Called | None],
    identify: Callable[[Any], bytes] = task_of,
    with_place: Callable[[Any], Any] = as_they_are,
    key_of: Callable[[Any], tuple[Any, Any]] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper for a ``_remote(self, args, kwargs, ..., **options)`` of Ray, which submits a call.

    ``describe(calls, self, args, kwargs, rest, options)`` describes the call, ``identify`` finds the task id in its
    result, and ``with_place`` converts the arguments so that they have a place for the carried context. ``key_of``
    returns the key of ``self`` in :attr:`OutgoingCalls.called`; with it, the compiled part makes the calls that carry
    nothing.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _remote(self: Any, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
            active = tracing.active
            call = begin(active.calls, describe, self, args, kwargs, rest, options) if active is not None else None
            carried = call.carried if call is not None else None
            # Not None inside of another submission, while pickling its arguments makes this call.
            before = outgoing.carried
            try:
                if carried is not before:
                    outgoing.carried = carried
                if carried is not None and getattr(self, "_decorator", None) is None:
                    args = with_place(args)  # a decorator of the program would take these for arguments
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

        compiled = _method(original, _remote, describe, identify, key_of) if key_of is not None else None
        return compiled or _remote

    return wrap


def _method(
    original: Callable[..., Any],
    remote: Callable[..., Any],
    describe: Callable[..., Called | None],
    identify: Callable[[Any], bytes],
    key_of: Callable[[Any], tuple[Any, Any]],
) -> Callable[..., Any] | None:
    """``remote``, which wraps ``original``, with the compiled part for the common calls, if that is in use."""

    def submission(made_of: tuple[OutgoingCalls, CallContext], start: int, arguments: Any) -> Submission | None:
        calls, around = made_of
        called = describe(calls, *arguments, (), {})
        return Submission(called, called.template, around, start, b"", None) if called is not None else None

    def accepted(made_of: tuple[OutgoingCalls, CallContext], start: int, result: Any, arguments: Any) -> None:
        call = submission(made_of, start, arguments)
        if call is not None:
            call.submitted(result, identify, *arguments[1:])

    def refused(made_of: tuple[OutgoingCalls, CallContext], start: int, error: BaseException, arguments: Any) -> None:
        call = submission(made_of, start, arguments)
        if call is not None:
            call.refused(error)

    return _compiled.use.method(
        original=original,
        python=remote,
        accepted=accepted,
        refused=refused,
        failed=lambda error: failed("recording a call", error),
        tracing=tracing,
        outgoing=outgoing,
        get_current=get_current,
        key_of=key_of,
        bind=MethodType,
    )
