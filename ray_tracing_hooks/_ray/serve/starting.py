"""The start of a replica: wraps ``UserCallableWrapper.initialize_callable`` (Ray 2.60 ``serve/_private/replica.py``),
which runs the constructor of a deployment, where models are loaded.

Each start is its own trace: its cause may be a driver that is long gone, or autoscaling.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.serve.spans import Templates, of_this_replica, traced
from ray_tracing_hooks._ray.templates import INTERNAL
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_templates = Templates(INTERNAL, names.SERVE_REPLICA)


def patch(patches: Patches) -> bool:
    """Wrap the start of replicas; False if this Ray lacks the wrapped method."""
    from ray.serve._private.replica import UserCallableWrapper  # noqa: PLC0415

    return patches.wrap(UserCallableWrapper, "initialize_callable", _initialize_callable)


def _initialize_callable(original: Callable[..., Any]) -> Callable[..., Any]:
    def initialize_callable(self: Any) -> Any:
        active = tracing.active
        if active is not None and active.on_replica is not None:
            _say_so(active.on_replica, self)
        span = _begin(active, self) if active is not None else None
        if span is None:
            return original(self)
        context = Context({SPAN_KEY: span})
        token = attach(context)
        try:
            # It runs in the event loop of the user's code, with a copy of this context.
            done = original(self)
        finally:
            detach(token)
        if inspect.iscoroutine(done):
            return traced(done, context, span)
        done.add_done_callback(lambda future: _end(span, future))
        return done

    return initialize_callable


def _say_so(on_replica: Callable[[str, str], None], wrapper: Any) -> None:
    try:
        deployment, application, _ = of_this_replica()
        if deployment and not getattr(wrapper, "_local_testing_mode", False):
            on_replica(deployment, application)
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's replica
        failed("naming the service of a replica", error)


def _begin(active: Tracing, wrapper: Any) -> RecordedSpan | None:
    try:
        if getattr(wrapper, "_is_function", False) or wrapper._deployment_def.__init__ is object.__init__:  # noqa: SLF001
            return None  # no constructor to run
        deployment, application, replica_id = of_this_replica()
        if not deployment or getattr(wrapper, "_local_testing_mode", False):
            return None  # not a replica: the constructor is part of the program that deploys it
        trace_id, flags = active.recorder.decide(None)
        recording = active.recorder.of(flags)
        template = _templates.of(active, deployment, application, "__init__", replica_id)
        return recording.start(template, trace_id, flags, None) if recording is not None and template else None
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's replica
        failed("tracing the start of a replica", error)
        return None


def _end(span: RecordedSpan, future: Any) -> None:
    try:
        error = None if future.cancelled() else future.exception()
        if error is None:
            span.end()
        else:
            fail(span, error)
    except Exception as fault:  # noqa: BLE001  as above
        failed("ending the span of a replica's start", fault)
