"""Calls of deployments: wraps ``AsyncioRouter.assign_request`` (Ray 2.60 ``serve/_private/router.py``).

It is called for each request, by proxies and by ``DeploymentHandle.remote``, in the context of the caller; what it
returns is a coroutine, which another thread may run, and which is done when a replica has taken the request. The
context travels as an attribute of the request's ``RequestMetadata``, which is pickled as it is whether it goes by an
actor call or by gRPC, and which an untraced replica does not look at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import hide_frame
from ray_tracing_hooks._ray.execution import _fail
from ray_tracing_hooks._ray.serve.spans import Templates, of_request
from ray_tracing_hooks._ray.submission import headers_of
from ray_tracing_hooks._ray.tracing import PRODUCER, Tracing, caller_attribute
from ray_tracing_hooks._record import carrier, ids, wire
from ray_tracing_hooks._record.current import SPAN_KEY, attach, get_current
from ray_tracing_hooks._record.span import RecordedSpan

MODULE = "ray.serve._private.router"

CARRIED = "_ray_tracing_hooks_context"
"""The attribute of ``RequestMetadata`` that a request's context travels in."""

_templates = Templates(PRODUCER, names.SERVE_CALL)


def patch(patches: Patches) -> bool:
    """Wrap the router; False if this Ray has no such place."""
    from ray.serve._private.router import AsyncioRouter  # noqa: PLC0415

    # What counts the attempts is not in older versions of Ray.
    patches.wrap(AsyncioRouter, "_route_and_send_request_once", _route_and_send_request_once)
    return patches.wrap(AsyncioRouter, "assign_request", _assign_request)


def _assign_request(original: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    def assign(self: Any, request_meta: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        active = tracing.active
        begun = _begin(active, self, request_meta) if active is not None else None
        if begun is None:
            return original(self, request_meta, *args, **kwargs)
        context, span = begun

        async def assign_request() -> Any:  # Ray logs the name
            attach(context)  # in the task of this request, and for its rest
            try:
                result = await original(self, request_meta, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                _fail(span, error)
                raise
            span.end()
            return result

        return assign_request()

    return assign


def _begin(active: Tracing, router: Any, metadata: Any) -> tuple[Context, RecordedSpan] | None:
    try:
        context, recorder = get_current(), active.recorder
        parent = recorder.parent(context)
        trace_id, flags = recorder.decide(parent)
        recording, caller = recorder.of(flags), active.caller(context)
        called = router.deployment_id
        method = metadata.call_method
        template = _templates.of(active, called.name, getattr(called, "app_name", ""), method)
        now, span = time.time_ns(), None
        if template is None and parent is not None:
            span_id, flags = parent.span_id, parent.flags
        elif template is None or recording is None:
            span_id = ids.new_span_id()
        else:
            first = caller_attribute(caller) + wire.attributes(of_request(metadata))
            span = recording.start(template, trace_id, flags, parent, first, now)
            span_id = span.span_id
        headers = headers_of(active, context, parent)
        setattr(metadata, CARRIED, carrier.encode(trace_id, span_id, flags, now, caller, headers))
        return None if span is None else (Context({**context, SPAN_KEY: span}), span)
    except Exception as error:  # noqa: BLE001  the request is the user's, the fault would be ours
        failed("tracing a call of a deployment", error)
        return None


def _route_and_send_request_once(original: Callable[..., Any]) -> Callable[..., Any]:
    def route_and_send_request_once(self: Any, pr: Any, response_id: str, is_retry: bool, *rest: Any) -> Any:
        if is_retry:
            # A replica was full or gone.
            span = get_current().get(SPAN_KEY)
            if type(span) is RecordedSpan and span.template.kind == PRODUCER:
                attempts = span.attributes.get(names.RAY_SERVE_ATTEMPTS, 1)
                span.set_attribute(names.RAY_SERVE_ATTEMPTS, attempts + 1)
        return original(self, pr, response_id, is_retry, *rest)

    return route_and_send_request_once
