"""Waits for a replica to accept a request: wraps ``_DeploymentResponseBase._fetch_future_result_sync`` (Ray 2.60
``serve/handle.py``), with which ``response.result()`` and the iteration over a response begin.

It is a ``ray.get`` of what the replica's call returns, whose ids are known at its end. The ``ray.get`` of the result
itself follows; :mod:`~ray_tracing_hooks._ray.objects` has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import cause
from ray_tracing_hooks._ray.serve.router import object_of
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame, is_a, traceback_of
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches) -> bool:
    """Wrap this method; False if this Ray lacks it."""
    from ray.serve import handle  # noqa: PLC0415

    responses = getattr(handle, "_DeploymentResponseBase", None)
    return responses is not None and patches.wrap(responses, "_fetch_future_result_sync", _fetch)


def _fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    def fetch_future_result_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        active = tracing.active
        span = _begin(active, self) if active is not None else None
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


def _begin(active: Tracing, response: Any) -> RecordedSpan | None:
    """Begin the span of the wait; None if there is nothing to wait for."""
    try:
        future = response._replica_result_future  # noqa: SLF001  that is what it waits for
        if "get" not in active.selection.parts or future.done():
            return None
        from ray_tracing_hooks._ray.objects import begin_unnamed  # noqa: PLC0415  opt-in

        return begin_unnamed(active, "ray.get")
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's program
        failed("tracing the wait for a replica", error)
        return None


def _end(span: RecordedSpan, result: Any) -> None:
    try:
        if object_id := object_of(result):
            span.set_attribute(names.RAY_OBJECT_IDS, [object_id])
    except Exception as error:  # noqa: BLE001  as above
        failed("tracing the wait for a replica", error)
    span.end()
