"""The choice of a replica: wraps ``AsyncioRouter.choose_replica`` (Ray 2.60 ``serve/_private/router.py``), with which a
program chooses before it sends a request, and the router's methods right before and after it chooses for a request,
``_resolve_args_with_metrics`` and ``_register_completion_callback``, and ``_route_and_send_request_once`` around them.

The first has its own span; the second is an attribute of the call's span. The object that chooses is of a class that
Serve pickles by value, replaced attributes included, for processes that may lack this package. So where it has to be
wrapped, the instance is, once its router has it (``update_deployment_config``; in Ray 2.40
``schedule_and_send_request``):

- ``choose_replicas`` of a class of the user. Serve calls it in a task that chooses for many requests, with the context
  of the first of them. The wrapper gives it the context of its request.
- ``_choose_replica_for_request`` of routers without these methods before and after it, as in Ray 2.52;
  ``choose_replica_for_request`` in Ray 2.40.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.propagation import incoming, unrecorded_span
from ray_tracing_hooks._ray.serve.router import CARRIED, CHOICE, Call, begin_anywhere, count_attempt
from ray_tracing_hooks._ray.serve.spans import Templates, traced
from ray_tracing_hooks._ray.templates import INTERNAL
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.carrier import decode
from ray_tracing_hooks._record.current import SPAN_KEY
from ray_tracing_hooks._safety.exceptions import hidden_frame, hide_frame
from ray_tracing_hooks._safety.guard import failed, guarded

_LEAST_RECORDED = 0.001
"""Shorter choices, in seconds, are not recorded. A router that need not wait takes a fraction of that."""

_choices = Templates(INTERNAL, names.SERVE_CHOICE)


_RESOLVED_TYPES = frozenset({bytes, str, int, float, bool, type(None), list, dict, tuple})
"""Types of arguments that the router does not resolve; it does not look into containers."""

_WRAPPED = "_ray_tracing_hooks_wrapped"
"""Marks an object that chooses replicas as examined. Its wrappers stay in place, and only call the original if nothing
is traced."""

_RESOLVED = "_ray_tracing_hooks_resolved"
"""The attribute of ``PendingRequest`` with the time when its arguments were resolved."""


def _resolve_args(original: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    def resolve_args_with_metrics(self: Any, pending_request: Any) -> Coroutine[Any, Any, None]:
        resolving = original(self, pending_request)
        args, kwargs = getattr(pending_request, "args", None), getattr(pending_request, "kwargs", None)
        if kwargs or args is None or not _RESOLVED_TYPES.issuperset(map(type, args)):
            return resolved(resolving, pending_request)
        setattr(pending_request, _RESOLVED, monotonic())
        return resolving

    async def resolved(resolving: Coroutine[Any, Any, None], pending_request: Any) -> None:
        with hidden_frame:
            await resolving
        setattr(pending_request, _RESOLVED, monotonic())

    return resolve_args_with_metrics


def _register_completion_callback(original: Callable[..., None]) -> Callable[..., None]:
    def register_completion_callback(self: Any, result: Any, replica: Any, pending_request: Any) -> None:
        _chosen(pending_request)
        original(self, result, replica, pending_request)

    return register_completion_callback


def _route_and_send_request_once(original: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    async def route_and_send_request_once(self: Any, pr: Any, response_id: str, is_retry: bool, *rest: Any) -> Any:
        if is_retry:
            count_attempt(pr.metadata)
        try:
            return await original(self, pr, response_id, is_retry, *rest)
        except BaseException as error:
            hide_frame(error)
            _chosen(pr)  # such as a request whose client leaves while it waits for a replica
            raise

    return route_and_send_request_once


def _chosen(pending_request: Any) -> None:
    """The choice that began when the arguments were there has ended, with a replica or without."""
    try:
        resolved = vars(pending_request).pop(_RESOLVED, None)
        if resolved is not None:
            taken = monotonic() - resolved
            if taken >= _LEAST_RECORDED:
                _note(pending_request.metadata, taken)
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
        failed("recording how long the choice of a replica took", error)


def _note(metadata: Any, taken: float) -> None:
    setattr(metadata, CHOICE, getattr(metadata, CHOICE, 0.0) + taken)


def _update_deployment_config(original: Callable[..., None]) -> Callable[..., None]:
    def update_deployment_config(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _examine(self, getattr(self, "_request_router", None))

    return update_deployment_config


def _schedule_and_send_request(original: Callable[..., Any]) -> Callable[..., Any]:
    def schedule_and_send_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        _examine(self, getattr(self, "_replica_scheduler", None))
        return original(self, *args, **kwargs)

    return schedule_and_send_request


@guarded("wrapping the choice of replicas")
def _examine(router: Any, chooser: Any) -> None:
    if chooser is None or _WRAPPED in vars(chooser):
        return
    vars(chooser)[_WRAPPED] = True
    own = getattr(chooser, "choose_replicas", None)
    if own is not None and not getattr(own, "__module__", "").startswith("ray.serve."):
        chooser.choose_replicas = _in_its_request(own)
    if hasattr(router, "_resolve_args_with_metrics") and hasattr(router, "_register_completion_callback"):
        return
    counts_attempts = hasattr(router, "_route_and_send_request_once")
    for name in ("_choose_replica_for_request", "choose_replica_for_request"):
        original = getattr(chooser, name, None)
        if original is not None:
            setattr(chooser, name, _timed(original, counts_attempts=counts_attempts))


def _in_its_request(original: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def choose_replicas(*args: Any, **kwargs: Any) -> Any:
        pending_request = kwargs.get("pending_request", args[1] if len(args) > 1 else None)
        context = _context(pending_request) if tracing.active is not None else None
        with hidden_frame:
            choosing = original(*args, **kwargs)
            return await (choosing if context is None else traced(choosing, context, None))

    return choose_replicas


@guarded("passing the context to a request router")
def _context(pending_request: Any) -> Context | None:
    """The context of the waiting call. Without one, an empty context, not that of another request."""
    carried = getattr(getattr(pending_request, "metadata", None), CARRIED, None)
    if carried is None:
        return Context()
    context, call = incoming(decode(carried))
    return Context({**context, SPAN_KEY: unrecorded_span(call)})


def _timed(
    original: Callable[..., Coroutine[Any, Any, Any]], *, counts_attempts: bool
) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def choose_replica_for_request(pending_request: Any, *, is_retry: bool = False) -> Any:
        if is_retry and not counts_attempts:
            count_attempt(pending_request.metadata)
        began = monotonic()
        try:
            with hidden_frame:
                return await original(pending_request, is_retry=is_retry)
        finally:
            setattr(pending_request, _RESOLVED, began)
            _chosen(pending_request)

    return choose_replica_for_request


def _choose_replica(original: Callable[..., AbstractAsyncContextManager[Any]]) -> Callable[..., Any]:
    def choose_replica(self: Any, request_meta: Any, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Any]:
        inner = original(self, request_meta, *args, **kwargs)
        active = tracing.active
        call = _begin(active, self, request_meta) if active is not None else None
        return inner if call is None else _Choice(inner, call)

    return choose_replica


@guarded("tracing the choice of a replica")
def _begin(active: Tracing, router: Any, metadata: Any) -> Call | None:
    called = router.deployment_id
    template = _choices.of(active, called.name, getattr(called, "app_name", ""), metadata.call_method)
    # For the choice itself. The request that is then sent to the replica has its own context.
    return begin_anywhere(active, template, now_ns(), metadata, Call)


class _Choice(AbstractAsyncContextManager[Any]):
    """Wraps Serve's context manager for a chosen replica; the span lasts until one is chosen."""

    def __init__(self, inner: AbstractAsyncContextManager[Any], call: Call) -> None:
        self._inner, self._call = inner, call

    async def __aenter__(self) -> Any:
        try:
            selection = await self._inner.__aenter__()
        except BaseException as error:
            hide_frame(error)
            self._call.ended(error)
            raise
        self._call.ended(None)
        return selection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)


WRAPPERS = {
    "AsyncioRouter._route_and_send_request_once?": _route_and_send_request_once,
    "AsyncioRouter.choose_replica?": _choose_replica,
    "AsyncioRouter._resolve_args_with_metrics?": _resolve_args,
    "AsyncioRouter._register_completion_callback?": _register_completion_callback,
    "AsyncioRouter.schedule_and_send_request?": _schedule_and_send_request,
    "AsyncioRouter.update_deployment_config": _update_deployment_config,
}
