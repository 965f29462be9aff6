"""Requests at a proxy, over HTTP, WebSocket and gRPC: wraps ``GenericProxy.proxy_request`` (Ray 2.60
``serve/_private/proxy.py``).

Health checks and route requests of monitoring systems make no spans.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.serve import server
from ray_tracing_hooks._ray.serve.spans import of_request_id, of_status
from ray_tracing_hooks._ray.templates import SERVE
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current, reset
from ray_tracing_hooks._record.span import NameAndKind, RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame, is_a
from ray_tracing_hooks._safety.guard import failed, guarded


def _proxy_request(original: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., AsyncGenerator[Any, None]]:
    def proxy_request(self: Any, proxy_request: Any) -> AsyncGenerator[Any, None]:
        active = tracing.active
        begun = _begin(active, self, proxy_request) if active is not None else None
        body = original(self, proxy_request)
        return body if begun is None else _traced(self, body, proxy_request, *begun)

    return proxy_request


_was_refused: ContextVar[bool] = ContextVar("a WebSocket was refused", default=False)
"""The client of a refused WebSocket disconnects at once, which Serve may report as a disconnect during the request."""


def _get_http_response_status(original: Callable[..., Any]) -> Callable[..., Any]:
    """Serve calls it for the status of an exception. If a response has begun, Serve keeps the status it began with."""

    def get_http_response_status(*args: Any, **kwargs: Any) -> Any:
        status = original(*args, **kwargs)
        with guarded("recording the error of a request at Serve's proxy"):
            span = get_current().get(SPAN_KEY)
            error, _ = server.outcome_of_http(str(status.code))
            if error and not _was_refused.get() and type(span) is RecordedSpan and span.is_recording():
                _failed(span, error, status.message)
        return status

    return get_http_response_status


def _failed(span: RecordedSpan, error: str, message: str) -> None:
    span.set_status(trace.StatusCode.ERROR, message or None)
    span.set_attribute(names.ERROR_TYPE, error)


_descriptions = server.Descriptions({})
_none = server.Descriptions({}, selected=False)

_OWN_PATHS = "/-/"
"""Part of all paths that Serve answers itself."""


def _begin(active: Tracing, proxy: Any, request: Any) -> tuple[Context, RecordedSpan | None] | None:
    try:
        all_selected = not active.selection.has_patterns
        if request.request_type == "grpc":
            if request.is_health_request or request.is_route_request:
                return None
            called, headers = request.service_method, server.grpc_headers(request.context.invocation_metadata())
            descriptions = _descriptions if all_selected or _is_selected(active, proxy, request) else _none
            describe_call = descriptions.of_grpc if not server.is_left_out_grpc(active, called) else None
            return server.arrive(active, headers, describe_call, (called, request.context.peer()))
        scope = request.scope
        # Check the path first, since these properties take six calls.
        if _OWN_PATHS in scope["path"] and (request.is_health_request or request.is_route_request):
            return None
        descriptions = _descriptions if all_selected or _is_selected(active, proxy, request) else _none
        describe = descriptions.of_http if not server.is_left_out_http(active, scope) else None
        return server.arrive(active, server.http_headers(scope["headers"]), describe, scope)
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
        failed("tracing a request at Serve's proxy", error)
        return None


def _is_selected(active: Tracing, proxy: Any, request: Any) -> bool:
    """Whether the deployment method for this request makes spans, where patterns decide that."""
    router, path = proxy.proxy_router, request.route_path
    by_grpc = request.request_type == "grpc"
    found = router.get_handle_for_endpoint(path) if by_grpc else router.match_route(path)
    if found is None:
        return active.selection.selects("", SERVE)
    method = request.service_method.rpartition("/")[2] if by_grpc else "__call__"
    return active.selection.selects(f"{found[1].deployment_id.name}.{method}", SERVE)


_LEAST_ERROR, _UNKNOWN = 400, 1000
"""HTTP status codes: the lowest error, and a placeholder."""

_HEADS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
"""The messages before the first part of a response."""

_REFUSAL, _CLOSE = "websocket.http.response.start", "websocket.close"


async def _traced(
    proxy: Any, body: AsyncGenerator[Any, None], request: Any, context: Context, span: RecordedSpan | None
) -> AsyncGenerator[Any, None]:
    """``body``, with ``context`` attached during each step, since the consumer has its own context."""
    status: Any = None
    code, parts, first = _UNKNOWN, 0, 0
    answered, refused = False, ""  # a WebSocket
    token = attach(context)
    try:
        async for message in body:
            kind = message.get("type") if type(message) is dict else type(message).__name__
            if kind in _HEADS:
                given = message.get("status")
                code = given if type(given) is int and kind == "http.response.start" else _UNKNOWN
                answered, refused = True, str(given) if kind == _REFUSAL else ""
                if refused:
                    _was_refused.set(True)
            elif kind == _CLOSE and not answered:
                answered, refused = True, server.REFUSED
                _was_refused.set(True)
            elif kind == "ResponseStatus":
                status = message  # the last message
                if span is not None and span.end_time is None:
                    _end(proxy, span, request, status, first if parts > 1 else 0, refused)
            else:
                parts += 1
                is_end = kind == "http.response.body" and not message.get("more_body")
                if parts == 1 and not is_end:
                    first = now_ns()
                # End the span while the client still waits, since it may end Serve once it has its response. More
                # details of a failure in a replica follow later.
                if (
                    is_end
                    and span is not None
                    and span.end_time is None
                    and (code < _LEAST_ERROR or (code != _UNKNOWN and _has_failed(span)))
                ):
                    _end(proxy, span, request, code, first if parts > 1 else 0)
            reset(token)
            token = None
            yield message
            token = attach(context)
    except BaseException as error:
        hide_frame(error)
        if is_a(error, GeneratorExit):
            await body.aclose()
            _left(span, request, code)
        elif span is not None:
            fail(span, error)
        raise
    finally:
        if token is not None:
            detach(token)
        if span is not None and span.end_time is None:
            _end(proxy, span, request, status)


_GONE = {"http": "499", "websocket": "1006", "grpc": 1}
"""The outcome of a request whose client is gone, by type: 1 is CANCELLED."""


@guarded("recording an abandoned request at Serve's proxy")
def _left(span: RecordedSpan | None, request: Any, code: int) -> None:
    """Record that the response was abandoned, in which case Serve does not report its outcome."""
    if span is None or span.end_time is not None:
        return
    error, outcome = _outcome(request, _GONE[request.request_type])
    span.add_encoded(outcome if code == _UNKNOWN else of_status(code))
    _failed(span, error, "")


def _end(proxy: Any, span: RecordedSpan, request: Any, status: Any, first: int = 0, refused: str = "") -> None:
    """End the span, which is open.

    ``status`` is Serve's ``ResponseStatus``, or an HTTP status if nothing more is known. ``first`` is the time of the
    first of several parts of the response. ``refused`` is the HTTP status for the client of a WebSocket that was never
    opened, for which Serve only reports the close code.
    """
    try:
        if first:
            span.add_encoded(server.first_chunk((first - span.start_time) / 1e9))
        _describe(proxy, span, request, status, refused)
    except Exception as error:  # noqa: BLE001  as above
        failed("describing a request at Serve's proxy", error)
    span.end()


def _has_failed(span: RecordedSpan) -> bool:
    return span.status.status_code is trace.StatusCode.ERROR


_descriptions_at_end: dict[tuple[NameAndKind, str, str, Any], bytes] = {}
"""The encoded attributes at the end of requests, which are the same for many: by route, application, and the HTTP
status if nothing more is known.
"""

_MOST_DESCRIPTIONS = 1000


def _describe(proxy: Any, span: RecordedSpan, request: Any, status: Any, refused: str) -> None:
    known = _serve_context()._serve_request_context.get()  # noqa: SLF001  as Serve's proxy
    route, application = getattr(known, "route", ""), getattr(known, "app_name", "")
    code = status if type(status) is int else None
    if code is None and request.request_type == "websocket" and route:
        route = _websocket_route(proxy, request, route)
    key = span.template, route, application, code
    encoded = _descriptions_at_end.get(key)
    if encoded is None:
        encoded = encode.attribute(names.RAY_SERVE_APPLICATION, application) if application else b""
        if route and request.request_type != "grpc":
            encoded += server.of_route(span.template, route)
        if code is not None:
            encoded += of_status(code)
        if len(_descriptions_at_end) < _MOST_DESCRIPTIONS:
            _descriptions_at_end[key] = encoded
    encoded += of_request_id(getattr(known, "request_id", ""))
    if code is None and status is not None:
        error, outcome = _outcome(request, refused or status.code)
        encoded += outcome
        if error:
            _failed(span, error, status.message)
    span.add_encoded(encoded)


@functools.cache
def _serve_context() -> Any:
    """``ray.serve.context``, which every proxy has imported."""
    from ray.serve import context  # noqa: PLC0415

    return context


def _websocket_route(proxy: Any, request: Any, route: str) -> str:
    """The route of the application, which Serve does not look up for WebSockets."""
    match = getattr(proxy.proxy_router, "match_route_pattern", None)
    if match is None:
        return route
    return str(match(route, {**request.scope, "type": "http", "method": "GET"}))


def _outcome(request: Any, code: Any) -> tuple[str, bytes]:
    """The ``error.type``, if this code is an error, and the encoded code."""
    if request.request_type == "grpc":
        return server.outcome_of_grpc(server.grpc_code(request.context, code))
    return (server.outcome_of_http if request.request_type == "http" else server.outcome_of_websocket)(str(code))


WRAPPERS = {"get_http_response_status?": _get_http_response_status, "GenericProxy.proxy_request": _proxy_request}
