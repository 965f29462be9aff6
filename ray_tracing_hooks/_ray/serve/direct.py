"""Requests that a replica receives from clients directly (direct ingress, also behind HAProxy): wraps
``Replica._direct_ingress_asgi``, ``_prepare_direct_ingress_grpc_request`` and
``_direct_ingress_grpc_streaming_response`` (Ray 2.60 ``serve/_private/replica.py``).

Such requests pass no proxy of Serve, so the replica's span is the SERVER span, and its parent is the client's span.

Behind HAProxy, an application may have an ingress request router. HAProxy then asks that deployment for a replica
before it forwards a request, without the client's context (``serve/_private/ingress_request_router.lua.tmpl``). It adds
the headers that are in the answer to the request, so the context and the time of the choice travel in one of these.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.generators import watched
from ray_tracing_hooks._ray.propagation import TASK_KEY
from ray_tracing_hooks._ray.serve import server
from ray_tracing_hooks._ray.serve.spans import Templates, of_request
from ray_tracing_hooks._ray.templates import INTERNAL, SERVE
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame, hide_frame, is_a
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import Patches

_MONITORED = {"/-/healthz", "/-/routes"}
"""Paths of monitoring systems, which make no spans."""

_ROUTING = "/internal/route"
"""The path by which HAProxy asks an ingress request router for a replica."""

_ROUTED = b"x-serve-router-ray-tracing"
"""The header from the router to the replica. HAProxy removes headers with this prefix from the requests of clients."""

_ROUTED_VALUE = re.compile(r"(00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2}))?;([0-9]{1,14})", re.ASCII)
"""The router's span as a ``traceparent``, if it has one, and the nanoseconds that the choice took."""

_MOST_ANSWER = 1 << 16
"""Longer answers of a router, in bytes, are passed on as they are."""

_routes = Templates(INTERNAL, names.SERVE_ROUTE)

_choice_time = encode.double_attribute(names.RAY_SERVE_CHOICE_TIME)

_OK, _UNKNOWN = 0, 2
"""Codes of gRPC."""

_EARLY = {*server.ENDED_EARLY.values(), "CANCELLED", "DEADLINE_EXCEEDED"}
"""These outcomes are more specific than the cancellation of an asyncio task."""


def patch(patches: Patches) -> bool:
    """Wrap the arrival of requests at a replica; False if this Ray has direct ingress but lacks a wrapped method."""
    from ray.serve._private.replica import Replica  # noqa: PLC0415

    if not hasattr(Replica, "_direct_ingress_asgi"):
        return True
    by_grpc = patches.wrap(Replica, "_prepare_direct_ingress_grpc_request", _prepare_grpc_request)
    patches.wrap(Replica, "_direct_ingress_grpc_streaming_response", _grpc_stream)
    return patches.wrap(Replica, "_direct_ingress_asgi", _direct_ingress_asgi) and by_grpc


class _Choice(NamedTuple):
    """What a router has told of the choice of this replica."""

    router: trace.SpanContext
    """The router's span; invalid without one."""
    traceparent: str
    """The same as a header; empty without one."""
    taken: int
    """Nanoseconds."""

    def note(self, span: RecordedSpan) -> None:
        """Record the choice on the span of the request, with a link if the client has given it another trace."""
        span.add_encoded(_choice_time(self.taken / 1e9))
        if self.router.trace_flags.sampled and self.router.trace_id != int.from_bytes(span.trace_id, "big"):
            span.add_link(self.router)


def _choice(scope: dict[str, Any]) -> _Choice | None:
    """Take what a router has told of the choice out of the headers of a request; None if there is nothing."""
    headers = scope.get("headers", ())
    values = [value for key, value in headers if key == _ROUTED]
    if not values:
        return None
    scope["headers"] = [pair for pair in headers if pair[0] != _ROUTED]
    found = _ROUTED_VALUE.fullmatch(values[-1].decode("latin-1"))
    if found is None:
        return None
    traceparent, trace_id, span_id, flags, taken = found.groups()
    if traceparent is None:
        return _Choice(trace.INVALID_SPAN_CONTEXT, "", int(taken))
    router = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))
    return _Choice(router, traceparent, int(taken))


class _Request:
    """A request to a replica, and the times of the parts of its response."""

    def __init__(self) -> None:
        self.has_raised = False
        """Whether it failed before Serve could report an outcome."""
        self.first = 0
        self._parts = 0

    def part(self, *, is_end: bool = False) -> None:
        """Record a part of the response; ``is_end`` says that it is known to be the last."""
        self._parts += 1
        if self._parts == 1 and not is_end:
            self.first = now_ns()

    def first_chunk(self, start: int) -> bytes:
        """The encoded time from ``start`` to the first of several parts."""
        return server.first_chunk((self.first - start) / 1e9) if self._parts > 1 else b""


class _HttpRequest(_Request):
    def __init__(self, scope: dict[str, Any], choice: _Choice | None = None) -> None:
        super().__init__()
        self.scope, self._choice = scope, choice
        self.begun = False
        self.status = ""
        """The status of the response, or the close code of a WebSocket."""
        self.early = ""
        """The outcome if Serve or the client ended it early."""
        self.was_refused = False
        """Whether a WebSocket was never opened. Its client then disconnects, which is not an error."""
        self._is_open = False

    def arrived(self, active: Tracing, replica: Any) -> tuple[Context, RecordedSpan | None]:
        self.begun = True
        headers, choice = server.http_headers(self.scope.get("headers", ())), self._choice
        if choice is not None and choice.traceparent:
            # Without a context of the client, the request is in the trace that the router has begun.
            headers.setdefault("traceparent", choice.traceparent)
        context, span = server.arrive(active, headers, self._describe(active, replica), self.scope)
        if choice is not None and span is not None:
            choice.note(span)
        return context, span

    def _describe(self, active: Tracing, replica: Any) -> Callable[[Tracing, Any], server.Described] | None:
        if server.is_left_out_http(active, self.scope):
            return None
        return descriptions_of(active, replica, "__call__").of_http

    def note(self, message: Mapping[str, Any]) -> None:
        """Record an ASGI message from or to the client."""
        kind = message["type"]
        if kind in ("http.response.body", "websocket.send"):
            self.part(is_end=kind == "http.response.body" and not message.get("more_body"))
        elif kind == "websocket.accept":
            self._is_open = True
        elif kind in ("http.response.start", "websocket.http.response.start"):
            self.status, self.was_refused = str(message["status"]), kind != "http.response.start"
        elif self.status:
            pass
        elif kind == "websocket.close" and not self._is_open:
            self.status, self.was_refused = server.REFUSED, True
        elif kind in ("websocket.close", "websocket.disconnect"):
            self.status = str(message.get("code", 1000))

    def of_route(self, span: RecordedSpan, route: str) -> bytes:
        """The encoded route, and the span name with it."""
        return server.of_route(span.template, route)

    def outcome(self) -> tuple[str, bytes]:
        of_kind = server.outcome_of_http if self.scope["type"] == "http" else server.outcome_of_websocket
        error, encoded = of_kind(self.status)
        return self.early or error, encoded


class _RoutingRequest(_HttpRequest):
    """A request of HAProxy to a router. No client has made it, so its span is no SERVER span."""

    def __init__(self, scope: dict[str, Any]) -> None:
        super().__init__(scope)
        self._start = now_ns()
        self._traceparent = ""
        self._held: Any = None

    def arrived(self, active: Tracing, replica: Any) -> tuple[Context, RecordedSpan | None]:
        context, span = super().arrived(active, replica)
        if span is not None:
            self._start = span.start_time
        here = trace.get_current_span(context).get_span_context()
        # A span that is left out by a pattern is no parent. That of a trace that is not sampled keeps the request from
        # another decision.
        if span is not None or not here.trace_flags.sampled:
            self._traceparent = f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
        return context, span

    def _describe(self, active: Tracing, replica: Any) -> Callable[[Tracing, Any], server.Described]:
        deployment, replica_id = replica._deployment_id, replica._replica_id.unique_id  # noqa: SLF001  as below
        template = _routes.of(active, deployment.name, deployment.app_name, "__call__", replica_id)
        return lambda *_: (template, b"") if template is not None else None

    def of_route(self, span: RecordedSpan, route: str) -> bytes:
        return b""

    def outcome(self) -> tuple[str, bytes]:
        error, encoded = super().outcome()
        # The client gets an error for every other status.
        return error or (self.status if self.status != "200" else ""), encoded

    def answer(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """The messages to send for a message of the response: its head is sent with its body."""
        if message["type"] == "http.response.start" and message["status"] == 200:
            self._held = message
            return []
        held, self._held = self._held, None
        if held is None:
            return [message]
        try:
            return self._with_choice(held, message)
        except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
            failed("telling a replica that it was chosen", error)
            return [held, message]

    def _with_choice(self, head: dict[str, Any], message: dict[str, Any]) -> list[dict[str, Any]]:
        """Both messages, with a header for the request in what the router answers."""
        body = message.get("body", b"")
        is_whole = not message.get("more_body") and len(body) <= _MOST_ANSWER
        answer = _object(body) if is_whole else None
        if answer is None or "replica_id" not in answer:
            return [head, message]
        given = answer.get("request_headers") or {}
        value = f"{self._traceparent};{now_ns() - self._start}"
        answer["request_headers"] = {**given, _ROUTED.decode(): value}
        # As the application's own framework writes it: HAProxy reads it with patterns, which know no escapes.
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        others = [pair for pair in head["headers"] if pair[0].lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        return [{**head, "headers": [*others, length]}, {**message, "body": body}]


def _object(body: bytes) -> dict[str, Any] | None:
    """A JSON object; None if it is something else."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class _GrpcCall(_Request):
    def __init__(self, called: str, context: Any) -> None:
        super().__init__()
        self._called, self._context = called, context

    def arrived(self, active: Tracing, replica: Any) -> tuple[Context, RecordedSpan | None]:
        headers = server.grpc_headers(self._context.invocation_metadata())
        descriptions = descriptions_of(active, replica, self._called.rpartition("/")[2])
        describe = descriptions.of_grpc if not server.is_left_out_grpc(active, self._called) else None
        return server.arrive(active, headers, describe, (self._called, self._context.peer()))

    def outcome(self) -> tuple[str, bytes]:
        return server.outcome_of_grpc(server.grpc_code(self._context, _UNKNOWN if self.has_raised else _OK))


_arrived: ContextVar[_HttpRequest | _GrpcCall | None] = ContextVar("request to a replica", default=None)
"""The request of this asyncio task."""


@lru_cache(maxsize=100)  # clients choose the names of methods
def _described(active: Tracing, deployment: str, application: str, replica_id: str, method: str) -> server.Descriptions:
    attributes = {
        names.RAY_SERVE_DEPLOYMENT: deployment,
        names.RAY_SERVE_APPLICATION: application,
        names.RAY_SERVE_METHOD: method,
        names.RAY_SERVE_REPLICA_ID: replica_id,
    }
    selected = active.selection.selects(f"{deployment}.{method}", SERVE)
    return server.Descriptions({key: value for key, value in attributes.items() if value}, selected=selected)


def descriptions_of(active: Tracing, replica: Any, method: str) -> server.Descriptions:
    """The descriptions of requests to a method of this replica."""
    deployment, replica_id = replica._deployment_id, replica._replica_id.unique_id  # noqa: SLF001  as Serve's own tracing
    return _described(active, deployment.name, deployment.app_name, replica_id, method)


def _direct_ingress_asgi(original: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    async def direct_ingress_asgi(self: Any, scope: dict[str, Any], receive: Any, send: Any) -> None:
        active = tracing.active
        path = scope.get("path", "")[len(scope.get("root_path", "")) :]
        if active is None or path in _MONITORED:
            return await original(self, scope, receive, send)
        is_routing = path == _ROUTING and getattr(self, "_is_ingress_request_router", False)
        routing = _RoutingRequest(scope) if is_routing else None
        request = routing or _HttpRequest(scope, _choice(scope))
        _arrived.set(request)

        def sending(message: Any) -> Any:
            _note(request, message)
            return send(message) if routing is None else answering(routing.answer(message))

        async def answering(messages: Iterable[Any]) -> None:
            for message in messages:
                await send(message)

        async def receiving() -> Any:
            message = await receive()
            _note(request, message)
            return message

        try:
            with hidden_frame:
                # Messages from an HTTP client do not affect the outcome.
                await original(self, scope, receive if scope.get("type") == "http" else receiving, sending)
        finally:
            if not request.begun:
                _refused(active, self, request)

    return direct_ingress_asgi


def _note(request: _HttpRequest, message: Any) -> None:
    try:
        request.note(message)
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
        failed("recording a response", error)


def _prepare_grpc_request(original: Callable[..., Any]) -> Callable[..., Any]:
    def prepare(self: Any, service_method: str, context: Any, **rest: Any) -> Any:
        call = _GrpcCall(service_method, context)
        _arrived.set(call)
        active = tracing.active
        try:
            prepared = original(self, service_method, context, **rest)
        except Exception as error:
            hide_frame(error)
            if active is not None:
                _refused(active, self, call, error)
            raise
        if prepared is None and active is not None:
            _refused(active, self, call)
        return prepared

    return prepare


def _grpc_stream(original: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., AsyncGenerator[Any, None]]:
    def direct_ingress_grpc_streaming_response(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        return watched(original(self, *args, **kwargs), _note_part)

    return direct_ingress_grpc_streaming_response


def _note_part(_message: Any) -> None:
    call = _arrived.get()
    if call is not None:
        call.part()


@guarded("tracing a request that a replica has refused")
def _refused(active: Tracing, replica: Any, request: _HttpRequest | _GrpcCall, error: Exception | None = None) -> None:
    """Record a span for a request that never reached the user's code: for another application, beyond the limit of
    requests, or for a gRPC method that the deployment lacks.
    """
    _, span = request.arrived(active, replica)
    if span is not None:
        request.has_raised = error is not None
        _end(span, request, b"", error)


@guarded("tracing a request in a replica")
def around(inner: AbstractContextManager[Any], active: Tracing, replica: Any, metadata: Any) -> server.InReplica | None:
    """A traced version of Serve's context manager for a direct request; None on failure."""
    request = _arrived.get()
    if request is None:
        return None
    context, span = request.arrived(active, replica)
    task_id = get_current().get(TASK_KEY)
    if task_id is not None:
        context = Context({**context, TASK_KEY: task_id})
    return _Direct(inner, context, span, request, replica, metadata)


class _Direct(server.InReplica):
    def __init__(
        self,
        inner: AbstractContextManager[Any],
        context: Context,
        span: RecordedSpan | None,
        request: _HttpRequest | _GrpcCall,
        replica: Any,
        metadata: Any,
    ) -> None:
        super().__init__(inner, context, span)
        self._request, self._replica, self._metadata = request, replica, metadata

    def __enter__(self) -> Any:
        result = super().__enter__()
        request = self._request
        wrapper = self._replica._user_callable_wrapper  # noqa: SLF001  as above
        if isinstance(request, _HttpRequest) and not getattr(wrapper, "_run_user_code_in_separate_thread", True):
            # On this path, Serve does not call the method that otherwise adds the context to the headers.
            with guarded("passing the context to an application"):
                request.scope["headers"] = server.with_context(request.scope["headers"])
        return result

    def _finish(self, span: RecordedSpan, error: BaseException | None) -> None:
        metadata, request = self._metadata, self._request
        encoded = of_request(metadata)
        if isinstance(request, _HttpRequest):
            status = str(self._status or "")
            if status in _EARLY and request.scope["type"] == "http":
                request.early = status
            if request.was_refused and is_a(error, asyncio.CancelledError):
                error = None
            # A client that is gone, or did not wait, gets no response.
            request.status = request.status or status
            if metadata.route:
                encoded += request.of_route(span, metadata.route)
        _end(span, request, encoded, error)


def _end(span: RecordedSpan, request: _HttpRequest | _GrpcCall, encoded: bytes, error: BaseException | None) -> None:
    kind, status = request.outcome()
    span.add_encoded(encoded + status + request.first_chunk(span.start_time))
    if kind:
        span.set_status(trace.StatusCode.ERROR)
        if error is None or kind in _EARLY:
            span.set_attribute(names.ERROR_TYPE, kind)
    if error is None or kind in _EARLY or is_a(error, GeneratorExit):
        span.end()
    else:
        fail(span, server.of_user(error))
