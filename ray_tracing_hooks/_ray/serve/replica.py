"""Requests in a replica: wraps ``Replica._wrap_request`` (Ray 2.60 ``serve/_private/replica.py``).

It is a context manager around everything that a replica does for one request, streaming included, whether the request
came by an actor call or by gRPC. The span is current while the user's code runs, since Serve starts that inside of it.

Instrumentation of ASGI applications, such as FastAPI's own in newer versions, finds its parent only in the headers of
the request. So the replica's span is put into the headers, as behind any traced server
(``UserCallableWrapper.call_http_entrypoint``).

How long a request waited for the event loop of its replica: wraps ``UserCallableWrapper`` (Ray 2.60
``serve/_private/replica.py``).

A replica runs the code of its deployment in an event loop of its own, in another thread than the one that accepts
requests (``RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD``). From when a request is handed to that loop until its code
begins, the loop did not come to it, since other code kept it. Where both share one loop, nothing is recorded. The
function that hands it over also gets the one that takes what a streaming response is made of (:func:`_items`).

The start of a replica: wraps ``UserCallableWrapper.initialize_callable`` (Ray 2.60 ``serve/_private/replica.py``),
which runs the constructor of a deployment, where models are loaded.

Each start is its own trace: its cause may be a driver that is long gone, or autoscaling.

Periodic requests of Serve to a replica: wraps the methods of ``UserCallableWrapper`` (Ray 2.60
``serve/_private/replica.py``) that run the user's ``check_health``, ``record_routing_stats``,
``record_autoscaling_stats`` and ``record_replica_metadata``.

They run every few seconds in each replica and belong to no request, so they make no spans, unless spans of Ray's
internal work are enabled.

Streaming responses of a replica: when its code made the first item, how many, and how long it made none.

Each item of a streaming call passes the function by which the event loop of the deployment hands it on, and each part
of a response over HTTP or WebSocket the ``send`` of its application (Ray 2.60 ``serve/_private/replica.py``,
``_call_user_generator`` and ``_call_http_entrypoint``). Where the replica has no such loop of its own
(``RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD``), items come out of a generator.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import submit_time
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.generators import watched
from ray_tracing_hooks._ray.library_spans import begun
from ray_tracing_hooks._ray.propagation import (
    TASK_KEY,
    Begun,
    caller_attribute,
    incoming,
    reference,
    submission,
    unrecorded_span,
)
from ray_tracing_hooks._ray.serve.router import CALLER, CARRIED
from ray_tracing_hooks._ray.serve.server import InReplica, with_context
from ray_tracing_hooks._ray.serve.spans import Templates, of_request, of_this_replica, traced
from ray_tracing_hooks._ray.templates import CONSUMER, INTERNAL
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.carrier import Carried, decode
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import Template, UnsampledRecorder
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.guard import failed, guarded
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


_LEAST_RECORDED = 0.01
"""Shorter waits, in seconds, are not recorded: a loop that is free takes a fraction of that."""

_HANDED_OVER = "call_user_method", "_call_user_generator", "_call_http_entrypoint"
"""The methods that hand a request to the loop. Each begins there with a call of the same name to ``_BEGUN``."""
_BEGUN = "_raise_if_not_initialized"

_since: ContextVar[float] = ContextVar("ray_tracing_hooks_handed_over", default=0.0)
"""When the request was handed to the loop. What runs there has a copy of the context."""

_loop_wait = encode.double_attribute(names.RAY_SERVE_LOOP_WAIT)


def patch_event_loop(patches: Patches) -> bool:
    """Wrap both ends of the wait; False if this Ray lacks one of them. Old versions lack both: nothing is recorded."""
    from ray.serve._private import replica  # noqa: PLC0415

    callables = getattr(replica, "UserCallableWrapper", None)
    handed_over = [patches.wrap(callables, name, _hand_over) for name in _HANDED_OVER if hasattr(callables, name)]
    return len(handed_over) < len(_HANDED_OVER) or patches.wrap(callables, _BEGUN, _begun)


def _hand_over(original: Callable[..., Any]) -> Callable[..., Any]:
    def hand_over(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is None:
            return original(self, *args, **kwargs)
        token = _since.set(monotonic())
        try:
            return original(self, *args, **kwargs)
        finally:
            _since.reset(token)

    name = original.__name__
    if name == "_call_user_generator":
        return _streams(hand_over, _of_generator)
    return _streams(hand_over, _of_response) if name == "_call_http_entrypoint" else hand_over


def _streams(hand_over: Callable[..., Any], stream: Callable[..., Any]) -> Callable[..., Any]:
    def stream_over(self: Any, *args: Any, **kwargs: Any) -> Any:
        span = get_current().get(SPAN_KEY) if tracing.active is not None else None
        if type(span) is not RecordedSpan:
            return hand_over(self, *args, **kwargs)
        return stream(span, hand_over, self, *args, **kwargs)

    return stream_over


def _of_generator(
    span: RecordedSpan, hand_over: Callable[..., Any], self: Any, *args: Any, enqueue: Any = None, **kwargs: Any
) -> Any:
    if enqueue is not None:
        return hand_over(self, *args, enqueue=_items(enqueue, span), **kwargs)
    making = hand_over(self, *args, **kwargs)
    return _generated(making, span) if inspect.iscoroutine(making) else making


def _of_response(span: RecordedSpan, hand_over: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    # The user's method, ASGI's scope, its `receive` and its `send`.
    if args and callable(args[-1]):
        args = (*args[:-1], _parts(args[-1], span))
    return hand_over(self, *args, **kwargs)


Handed = Callable[[Any], Any]
"""Takes one item."""

_first_item = encode.double_attribute(names.RAY_SERVE_FIRST_ITEM)
_longest_pause = encode.double_attribute(names.RAY_SERVE_LONGEST_PAUSE)


def _counting(span: RecordedSpan) -> Callable[[], None]:
    """A function to call for each item, whose number and times are added to ``span`` when that ends."""
    count = first = last = longest = 0

    def count_item() -> None:
        nonlocal count, first, last, longest
        now = now_ns()
        if count == 0:
            first = now
        elif now - last > longest:
            longest = now - last
        last = now
        count += 1

    span.add_at_end(lambda: _encoded(span, count, first, longest))
    return count_item


def _items(hand_on: Handed, span: RecordedSpan) -> Handed:
    """``hand_on``, which takes the items of a streaming call, and adds their times to ``span``."""
    count_item = _counting(span)

    def of_item(item: Any) -> Any:
        count_item()
        return hand_on(item)

    return of_item


def _parts(send: Handed, span: RecordedSpan) -> Handed:
    """The same for the ASGI messages of a response. One that is not streamed adds nothing."""
    count_item: Callable[[], None] | None = None

    def of_message(message: Any) -> Any:
        nonlocal count_item
        try:
            begins = message.get("more_body") or message["type"] == "websocket.send"
            is_part = begins or (count_item is not None and message.get("body"))
        except (AttributeError, LookupError):  # no message of ASGI, for Serve to refuse
            is_part = False
        if is_part:
            count_item = count_item or _counting(span)
            count_item()
        return send(message)

    return of_message


async def _generated(making: Awaitable[Any], span: RecordedSpan) -> Any:
    """What ``making`` returns; if that is a generator, one that yields the same and adds the times to ``span``."""
    with hidden_frame:
        body = await making
    return watched(body, _items(_nothing, span)) if hasattr(body, "aclose") else body


def _nothing(_: Any) -> None:
    """Hands nothing on."""


def _encoded(span: RecordedSpan, count: int, first: int, longest: int) -> bytes:
    found = encode.attribute(names.RAY_SERVE_ITEMS, count)
    if count > 0:
        found += _first_item((first - span.start_time) / 1e9)
    return found + _longest_pause(longest / 1e9) if count > 1 else found


def _begun(original: Callable[..., Any]) -> Callable[..., Any]:
    def begun(self: Any, method_name: str, *args: Any, **kwargs: Any) -> Any:
        if method_name in _HANDED_OVER:
            since = _since.get()
            if since and monotonic() - since >= _LEAST_RECORDED:
                _note(monotonic() - since)
        return original(self, method_name, *args, **kwargs)

    return begun


@guarded("recording how long a request waited for the event loop of its replica")
def _note(waited: float) -> None:
    span = get_current().get(SPAN_KEY)
    if type(span) is RecordedSpan:
        span.add_encoded(_loop_wait(waited))


_start_templates = Templates(INTERNAL, names.SERVE_REPLICA)


def _initialize_callable(original: Callable[..., Any]) -> Callable[..., Any]:
    def initialize_callable(self: Any) -> Any:
        active = tracing.active
        if active is not None and active.on_replica is not None:
            _say_so(active.on_replica, self)
        context, span = begun(_begin_start, active, self) or (None, None)
        if context is None or span is None:
            return original(self)
        token = attach(context)
        try:
            # It runs in the event loop of the user's code, with a copy of this context.
            done = original(self)
        finally:
            detach(token)
        if inspect.iscoroutine(done):
            return traced(done, context, span)
        done.add_done_callback(lambda future: _end_start(span, future))
        return done

    return initialize_callable


@guarded("naming the service of a replica")
def _say_so(on_replica: Callable[[str, str], None], wrapper: Any) -> None:
    deployment, application, _ = of_this_replica()
    if deployment and not getattr(wrapper, "_local_testing_mode", False):
        on_replica(deployment, application)


def _begin_start(active: Tracing, wrapper: Any) -> Begun | None:
    if getattr(wrapper, "_is_function", False) or wrapper._deployment_def.__init__ is object.__init__:  # noqa: SLF001
        return None  # no constructor to run
    deployment, application, replica_id = of_this_replica()
    if not deployment or getattr(wrapper, "_local_testing_mode", False):
        return None  # not a replica: the constructor is part of the program that deploys it
    template = _start_templates.of(active, deployment, application, "__init__", replica_id)
    return library_spans.begin(active, template, Context()) if template is not None else None


@guarded("ending the span of a replica's start")
def _end_start(span: RecordedSpan, future: Any) -> None:
    error = None if future.cancelled() else future.exception()
    if error is None:
        span.end()
    else:
        fail(span, error)


_NOT_SAMPLED = 0


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


START = {"UserCallableWrapper.initialize_callable": _initialize_callable}

HEALTH_CHECKS = {
    "UserCallableWrapper.call_user_record_routing_stats?": _asked,
    "UserCallableWrapper.call_record_autoscaling_stats?": _asked,
    "UserCallableWrapper.call_user_record_replica_metadata?": _asked,
    "UserCallableWrapper.call_user_health_check": _asked,
}
