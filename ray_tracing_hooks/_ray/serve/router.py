"""Calls of deployments: wraps ``AsyncioRouter.assign_request`` (Ray 2.60 ``serve/_private/router.py``), and the methods
that call all replicas (``broadcast``) or a previously chosen one (``choose_replica``, ``dispatch``).

Proxies and ``DeploymentHandle.remote`` call it for each request, in the context of the caller. It returns a coroutine,
which another thread may run, and which ends when a replica has accepted the request. The context is carried as an
attribute of the request's ``RequestMetadata``, which is pickled as it is for both actor calls and gRPC, and which an
untraced replica does not read.

Waits for a replica to accept a request: wraps ``_DeploymentResponseBase._fetch_future_result_sync`` (Ray 2.60
``serve/handle.py``), with which ``response.result()`` and the iteration over a response begin.

It is a ``ray.get`` of what the replica's call returns, whose ids are known at its end. The ``ray.get`` of the result
itself follows; :mod:`~ray_tracing_hooks._ray.objects` has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import cause, failure
from ray_tracing_hooks._ray.serve.spans import Templates, of_request
from ray_tracing_hooks._ray.templates import PRODUCER
from ray_tracing_hooks._ray.tracing import Tracing, around_of
from ray_tracing_hooks._record import carrier, ids
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame, is_a, traceback_of
from ray_tracing_hooks._safety.guard import failed, guarded

CARRIED = "_ray_tracing_hooks_context"
"""The attribute of ``RequestMetadata`` that carries a request's context."""

CALLER = "_ray_tracing_hooks_caller"
"""The attribute of ``RequestMetadata`` with the service as which SkyWalking knows the calling process, if deployments
are services of their own."""

_ATTEMPTS = "_ray_tracing_hooks_attempts"
"""The attribute of ``RequestMetadata``, in the calling process, with the number of replicas tried so far."""

CHOICE = "_ray_tracing_hooks_choice"
"""The attribute of ``RequestMetadata``, in the calling process, with the seconds spent on choosing replicas."""

_choice_time = encode.double_attribute(names.RAY_SERVE_CHOICE_TIME)

_templates = Templates(PRODUCER, names.SERVE_CALL)


def _assign_request(original: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    def assign(self: Any, request_meta: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        active = tracing.active
        call = _begin(active, self, request_meta) if active is not None else None
        if call is None:
            return original(self, request_meta, *args, **kwargs)

        call.is_waiting = True

        async def assign_request() -> Any:  # Ray logs the name
            call.is_waiting = False
            try:
                result = await original(self, request_meta, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                call.ended(error)
                raise
            call.ended(None, result if active is not None and "get" in active.selection.parts else None)
            return result

        return assign_request()

    return assign


def _dispatch(original: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Like ``assign_request``, for a replica that ``choose_replica`` has chosen."""

    def dispatch(self: Any, selection: Any, request_meta: Any, *rest: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        def chosen(self: Any, request_meta: Any, *rest: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            return original(self, selection, request_meta, *rest, **kwargs)

        return _assign_request(chosen)(self, request_meta, *rest, **kwargs)

    return dispatch


def _replace(original: Callable[..., Any]) -> Callable[..., Any]:
    """``dataclasses.replace`` as Serve's router has imported it: copies of a request's metadata keep its context."""

    def replace(instance: Any, /, **changes: Any) -> Any:
        copy = original(instance, **changes)
        for name in (CARRIED, CALLER):
            carried = getattr(instance, name, None)
            if carried is not None:
                setattr(copy, name, carried)
        return copy

    return replace


class Call:
    """A call of a deployment on its way to a replica. It is recorded only at its end, since no user code runs inside of
    it except a custom choice of replicas, which gets the context from the request.

    Attributes:
        is_waiting: Whether there is a coroutine for it that has not made its first step.
    """

    __slots__ = ("_attributes", "_identity", "_metadata", "_recorder", "_start", "_template", "is_waiting")
    _is_carried = False  # whether a replica gets its ids

    def __init__(
        self, recorder: Recorder, template: Template, identity: bytes, start: int, attributes: bytes, metadata: Any
    ) -> None:
        self.is_waiting = False
        self._recorder, self._template, self._identity = recorder, template, identity
        self._start, self._attributes, self._metadata = start, attributes, metadata

    def ended(self, error: BaseException | None, result: Any = None) -> None:
        """``result`` is what the replica's call returned, where it is recorded what callers wait for."""
        try:
            if error is not None and is_a(error, GeneratorExit):
                error = None
            if error is None and self._is_carried and self._recorder.rule is not None:
                return  # the replica records it together with the request, if that failed or was slow
            now, additions = now_ns(), self._attributes
            if result is not None and (object_id := object_of(result)):
                additions += encode.attribute(names.RAY_OBJECT_IDS, [object_id])
            attempts = getattr(self._metadata, _ATTEMPTS, 0)
            if attempts:
                additions += encode.attribute(names.RAY_SERVE_ATTEMPTS, attempts)
            chosen = vars(self._metadata).pop(CHOICE, None)
            if chosen is not None:
                additions += _choice_time(chosen)
            if error is not None:
                kind = names.TASK_CANCELLED if is_a(error, asyncio.CancelledError) else None
                additions += failure(cause(error), now, kind)
            record = self._recorder.record if error is None else self._recorder.record_failed
            record(self._template, self._identity, self._start, now, additions)
        except Exception as fault:  # noqa: BLE001  a fault here must not reach the user's request
            failed("recording a call of a deployment", fault)


def object_of(result: Any) -> str:
    """The id of what a call of a replica returns, an object or a generator; empty for a call by gRPC."""
    generator = getattr(result, "_obj_ref_gen", None)
    ref = getattr(result, "_obj_ref", None) if generator is None else getattr(generator, "_generator_ref", None)
    return str(ref.hex()) if ref is not None else ""


C = TypeVar("C", bound=Call)


class _Assigned(Call):
    """A call that a coroutine makes and ends. It ends by itself if the coroutine, which holds it, is cancelled or
    dropped before its first step.
    """

    __slots__ = ()
    _is_carried = True

    def __del__(self) -> None:
        if self.is_waiting:
            self.ended(asyncio.CancelledError())


def _begin(active: Tracing, router: Any, metadata: Any) -> _Assigned | None:
    try:
        called = router.deployment_id
        template = _templates.of(active, called.name, getattr(called, "app_name", ""), metadata.call_method)
        now = now_ns()
        if active.service:
            setattr(metadata, CALLER, active.service)
        return begin_anywhere(active, template, now, metadata, _Assigned)
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
        failed("tracing a call of a deployment", error)
        return None


def begin_anywhere(active: Tracing, template: Template | None, now: int, metadata: Any, kind: type[C]) -> C | None:
    """Begin a call of this kind, whose context ``metadata`` carries; None if it is not recorded."""
    around, call = around_of(active.calls), None
    parent, flags = around.parent, around.flags
    if template is None and parent is not None:
        span_id, flags = parent.span_id, parent.flags
    else:
        span_id = ids.new_span_id()
        if template is not None and around.recorder is not None:
            identity = around.before + span_id + around.after
            call = kind(around.recorder, template, identity, now, around.of_caller + of_request(metadata), metadata)
    parent_id = around.parent_id if template is not None else None
    carried = carrier.encode(around.trace_id, span_id, flags, now, around.caller, around.headers, parent_id=parent_id)
    setattr(metadata, CARRIED, carried)
    return call


def count_attempt(metadata: Any) -> None:
    """Count another replica that is tried for a request, because the previous one was full or gone."""
    setattr(metadata, _ATTEMPTS, getattr(metadata, _ATTEMPTS, 1) + 1)


def _fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    def fetch_future_result_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        active = tracing.active
        span = _begin_wait(active, self) if active is not None else None
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            if span is not None:
                if is_a(error, TimeoutError):
                    span.set_attribute(names.RAY_CANCELLED, True)
                span.fail(cause(error), traceback_of(error))
                span.end()
            raise
        if span is not None:
            _end(span, result)
        return result

    return fetch_future_result_sync


@guarded("tracing the wait for a replica")
def _begin_wait(active: Tracing, response: Any) -> RecordedSpan | None:
    """Begin the span of the wait; None if there is nothing to wait for."""
    future = response._replica_result_future  # noqa: SLF001  that is what it waits for
    if "get" not in active.selection.parts or future.done():
        return None
    from ray_tracing_hooks._ray.objects import begin_unnamed  # noqa: PLC0415  opt-in

    return begin_unnamed(active, "ray.get")


def _end(span: RecordedSpan, result: Any) -> None:
    with guarded("tracing the wait for a replica"):
        if object_id := object_of(result):
            span.set_attribute(names.RAY_OBJECT_IDS, [object_id])
    span.end()


WRAPPERS = {
    # Older versions of Ray do not call a chosen replica or all replicas.
    "AsyncioRouter._dispatch_to_marked_selection?": _dispatch,
    "AsyncioRouter.broadcast?": _assign_request,
    "replace?": _replace,
    "AsyncioRouter.assign_request": _assign_request,
}

RESPONSES = {"_DeploymentResponseBase._fetch_future_result_sync": _fetch}
