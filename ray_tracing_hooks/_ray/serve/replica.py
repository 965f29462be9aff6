"""Requests in a replica: wraps ``Replica._wrap_request`` (Ray 2.60 ``serve/_private/replica.py``).

It is a context manager around everything that a replica does for one request, streaming included, whether the request
came by an actor call or by gRPC. The span is current while the user's code runs, since Serve starts that inside of it.

Instrumentation of ASGI applications, such as FastAPI's own in newer versions, finds its parent only in the headers of
the request. So the replica's span is put into the headers, as behind any traced server
(``UserCallableWrapper.call_http_entrypoint``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import submit_time
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.propagation import (
    TASK_KEY,
    caller_attribute,
    incoming,
    reference,
    submission,
    unrecorded_span,
)
from ray_tracing_hooks._ray.serve.in_replica import InReplica, with_context
from ray_tracing_hooks._ray.serve.router import CALLER, CARRIED
from ray_tracing_hooks._ray.serve.spans import Templates, of_request
from ray_tracing_hooks._ray.templates import CONSUMER
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.carrier import Carried, decode
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.recorder import Template, UnsampledRecorder
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_PLACES = ("_wrap_request", "_wrap_user_method_call")
"""The second one is used before Ray 2.43."""

_templates = Templates(CONSUMER, names.SERVE_REPLICA)


def patch(patches: Patches) -> bool:
    """Wrap this context manager; False if this Ray lacks it."""
    from ray.serve._private import replica  # noqa: PLC0415

    for cls in (getattr(replica, "Replica", None), getattr(replica, "ReplicaBase", None)):
        for name in _PLACES:
            own = vars(cls).get(name) if cls is not None else None
            if own is not None and not getattr(own, "__isabstractmethod__", False):
                callables = getattr(replica, "UserCallableWrapper", None)
                if callables is not None:
                    patches.wrap(callables, "call_http_entrypoint", _call_http_entrypoint)
                return patches.wrap(cls, name, _wrap_request)
    return False


def _wrap_request(original: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
    def wrap_request(self: Any, request_metadata: Any, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        inner = original(self, request_metadata, *args, **kwargs)
        active = tracing.active
        if active is not None and getattr(request_metadata, "is_direct_ingress", False):
            from ray_tracing_hooks._ray.serve import direct  # noqa: PLC0415  few replicas use direct ingress

            return direct.around(inner, active, self, request_metadata) or inner
        begun = _begin(active, self, request_metadata) if active is not None else None
        return inner if begun is None else InReplica(inner, *begun)

    return wrap_request


def _call_http_entrypoint(original: Callable[..., Any]) -> Callable[..., Any]:
    def call_http_entrypoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None:
            try:
                # The ASGI scope, whose position depends on the version of Ray.
                for argument in (*args, *kwargs.values()) if kwargs else args:
                    if isinstance(argument, dict) and "headers" in argument:
                        argument["headers"] = with_context(argument["headers"])
                        break
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
                failed("passing the context to an application", error)
        return original(self, *args, **kwargs)

    return call_http_entrypoint


def _begin(active: Tracing, replica: Any, metadata: Any) -> tuple[Context, RecordedSpan | None] | None:
    try:
        recorder, carried = active.recorder, getattr(metadata, CARRIED, None)
        here: dict[str, Any] = {}
        task_id = get_current().get(TASK_KEY)
        if task_id is not None:
            here[TASK_KEY] = task_id
        deployment = replica._deployment_id  # noqa: SLF001  as Serve's own tracing
        replica_id = getattr(replica._replica_id, "unique_id", "")  # noqa: SLF001  as above
        template = _templates.of(active, deployment.name, deployment.app_name, metadata.call_method, replica_id)
        about = of_request(metadata)
        if active.service:
            caller = getattr(metadata, CALLER, "")
            about += encode.attribute(names.SKYWALKING_CALLER, caller) if caller else b""
        if template is not None and carried is not None:
            span = recorder.start_carried(template, carried, about)
            if span is not None:
                here[SPAN_KEY] = span
                return Context(here), span
        context, parent, first, its_submission = Context(), None, b"", None
        if carried is not None:
            decoded = decode(carried)
            context, parent = incoming(decoded)
            first = caller_attribute(decoded.parent_task_id) + submit_time(decoded.submit_time_ns)
            if decoded.headers:
                first += reference(context, parent)
            if template is not None and decoded.parent_id is not None:
                its_submission = partial(_submission, template, decoded, parent, of_request(metadata))
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        if recording is None or template is None:
            around = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
            return Context({**context, SPAN_KEY: unrecorded_span(around), **here}), None
        if parent is not None and its_submission is not None and isinstance(recording, UnsampledRecorder):
            span = recording.start_execution(template, flags, parent, first + about, its_submission)
        else:
            span = recording.start(template, trace_id, flags, parent, first + about)
        return Context({**context, SPAN_KEY: span, **here}), span
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
        failed("tracing a request in a replica", error)
        return None


_OF_CALL = (names.RAY_SERVE_DEPLOYMENT, names.RAY_SERVE_APPLICATION, names.RAY_SERVE_METHOD)


def _submission(template: Template, carried: Carried, parent: Parent, about: bytes) -> bytes:
    """The encoded call of a deployment whose request in the replica has this template."""
    known = {key: template.attributes[key] for key in _OF_CALL if key in template.attributes}
    name = template.name.removesuffix(names.SERVE_REPLICA) + names.SERVE_CALL
    return submission(
        carried, parent, name, encode.attributes(known) + caller_attribute(carried.parent_task_id) + about
    )
