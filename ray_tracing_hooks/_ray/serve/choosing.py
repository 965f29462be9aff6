"""The choice of a replica: wraps ``AsyncioRouter.choose_replica`` (Ray 2.60 ``serve/_private/router.py``), by which a
program chooses before it sends a request, and what the router does right before and after it chooses for one,
``_resolve_args_with_metrics`` and ``_register_completion_callback``.

The first has a span, the second is said by the span of the call. What chooses is a class that Serve pickles by value,
with all that is replaced of it, for processes that may know nothing of this package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import hide_frame
from ray_tracing_hooks._ray.serve.router import CHOICE, Call
from ray_tracing_hooks._ray.serve.spans import Templates, of_request
from ray_tracing_hooks._ray.submission import around_of
from ray_tracing_hooks._ray.tracing import INTERNAL, Tracing
from ray_tracing_hooks._record import ids

MODULE = "ray.serve._private.router"

_WORTH_TELLING = 0.001
"""Seconds. A router that need not wait takes a fraction of that."""

_choices = Templates(INTERNAL, names.SERVE_CHOICE)


_ARE_THERE = frozenset({bytes, str, int, float, bool, type(None), list, dict, tuple})
"""Of arguments of these types the router resolves none; it does not look into them."""

_RESOLVED = "_ray_tracing_hooks_resolved"
"""The attribute of ``PendingRequest`` that says when its arguments were there, so that a replica could be chosen."""


def patch(patches: Patches) -> bool:
    """Wrap the choice of replicas, as far as this Ray's router has places for that."""
    from ray.serve._private import router  # noqa: PLC0415

    AsyncioRouter = router.AsyncioRouter  # noqa: N806  its name
    patches.wrap(AsyncioRouter, "choose_replica", _choose_replica)
    if patches.wrap(AsyncioRouter, "_resolve_args_with_metrics", _resolve_args):
        patches.wrap(AsyncioRouter, "_register_completion_callback", _register_completion_callback)
    return True


def _resolve_args(original: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    def resolve_args_with_metrics(self: Any, pending_request: Any) -> Coroutine[Any, Any, None]:
        resolving = original(self, pending_request)
        args, kwargs = getattr(pending_request, "args", None), getattr(pending_request, "kwargs", None)
        if kwargs or args is None or not _ARE_THERE.issuperset(map(type, args)):
            return resolved(resolving, pending_request)
        setattr(pending_request, _RESOLVED, time.perf_counter())
        return resolving

    async def resolved(resolving: Coroutine[Any, Any, None], pending_request: Any) -> None:
        try:
            await resolving
        except BaseException as error:
            hide_frame(error)
            raise
        setattr(pending_request, _RESOLVED, time.perf_counter())

    return resolve_args_with_metrics


def _register_completion_callback(original: Callable[..., None]) -> Callable[..., None]:
    def register_completion_callback(self: Any, result: Any, replica: Any, pending_request: Any) -> None:
        resolved = getattr(pending_request, _RESOLVED, None)
        if resolved is not None:
            taken = time.perf_counter() - resolved
            if taken >= _WORTH_TELLING:
                _note(pending_request, taken)
        original(self, result, replica, pending_request)

    return register_completion_callback


def _note(pending_request: Any, taken: float) -> None:
    try:
        metadata = pending_request.metadata
        setattr(metadata, CHOICE, getattr(metadata, CHOICE, 0.0) + taken)
    except Exception as error:  # noqa: BLE001  the request is the user's, the fault would be ours
        failed("noting how long the choice of a replica took", error)


def _choose_replica(original: Callable[..., AbstractAsyncContextManager[Any]]) -> Callable[..., Any]:
    def choose_replica(self: Any, request_meta: Any, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Any]:
        inner = original(self, request_meta, *args, **kwargs)
        active = tracing.active
        call = _begin(active, self, request_meta) if active is not None else None
        return inner if call is None else _Choice(inner, call)

    return choose_replica


def _begin(active: Tracing, router: Any, metadata: Any) -> Call | None:
    try:
        around, called = around_of(active), router.deployment_id
        template = _choices.of(active, called.name, getattr(called, "app_name", ""), metadata.call_method)
        if around.recorder is None or template is None:
            return None
        identity = around.before + ids.new_span_id() + around.after
        attributes = around.of_caller + of_request(metadata)
        return Call(around.recorder, template, identity, time.time_ns(), attributes, metadata)
    except Exception as error:  # noqa: BLE001  as above
        failed("tracing the choice of a replica", error)
        return None


class _Choice(AbstractAsyncContextManager[Any]):
    """Serve's context manager of a replica that is chosen; the span lasts until it is."""

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
