"""Periodic requests of Serve to a replica: wraps the methods of ``UserCallableWrapper`` (Ray 2.60
``serve/_private/replica.py``) that run the user's ``check_health``, ``record_routing_stats``,
``record_autoscaling_stats`` and ``record_replica_metadata``.

They run every few seconds in each replica and belong to no request, so they make no spans, unless spans of Ray's
internal work are enabled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.propagation import unrecorded_span
from ray_tracing_hooks._ray.serve.spans import traced
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._safety.patching import Patches

_NOT_SAMPLED = 0


def patch(patches: Patches) -> bool:
    """Wrap these methods; False if this Ray lacks the one for health checks."""
    from ray.serve._private.replica import UserCallableWrapper  # noqa: PLC0415

    for name in (
        "call_user_record_routing_stats",
        "call_record_autoscaling_stats",
        "call_user_record_replica_metadata",
    ):
        patches.wrap(UserCallableWrapper, name, _asked)
    return patches.wrap(UserCallableWrapper, "call_user_health_check", _asked)


def _asked(original: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        active = tracing.active
        if active is None or active.selection.shows_internal:
            return original(*args, **kwargs)
        nobody = Parent(ids.new_trace_id(), ids.new_span_id(), _NOT_SAMPLED, None, remote=False)
        context = Context({SPAN_KEY: unrecorded_span(nobody)})
        token = attach(context)
        try:
            # It runs in the event loop of the user's code, with a copy of this context.
            answer = original(*args, **kwargs)
        finally:
            detach(token)
        return traced(answer, context, None) if inspect.iscoroutine(answer) else answer

    return asked
