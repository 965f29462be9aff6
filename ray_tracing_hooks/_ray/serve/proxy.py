"""Requests at a proxy: wraps ``GenericProxy.proxy_request`` (Ray 2.60 ``serve/_private/proxy.py``), by HTTP, WebSocket
and gRPC.

Attributes follow the semantic conventions of OpenTelemetry for HTTP servers and for gRPC. What monitors ask a proxy
(its health, its routes) makes no span.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import hide_frame
from ray_tracing_hooks._ray.execution import _fail
from ray_tracing_hooks._ray.tracing import SERVER, Tracing, unrecorded_span
from ray_tracing_hooks._record import ids, wire
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import Parent, RecordedSpan

MODULE = "ray.serve._private.proxy"

_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"},
)
_OTHER_METHOD = "_OTHER"
_ENDED_EARLY = {"408": "408", "timeout": "408", "499": "499", "disconnection": "499"}
"""What Serve answers where a request took too long, or its client has gone."""

_NO_ERROR_OF_WEBSOCKET = {"1000", "1001", "1005"}


def patch(patches: Patches) -> bool:
    """Wrap the proxy; False if this Ray has no such place."""
    from ray.serve._private.proxy import GenericProxy  # noqa: PLC0415

    return patches.wrap(GenericProxy, "proxy_request", _proxy_request)


def _proxy_request(original: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    def proxy_request(self: Any, proxy_request: Any) -> AsyncIterator[Any]:
        active = tracing.active
        begun = _begin(active, proxy_request) if active is not None else None
        body = original(self, proxy_request)
        return body if begun is None else _traced(body, proxy_request, *begun)

    return proxy_request


def _begin(active: Tracing, request: Any) -> tuple[Context, RecordedSpan | None] | None:
    try:
        if request.is_health_request or request.is_route_request:
            return None
        # Not that of the proxy's actor, which is the driver's that started Serve.
        context = propagate.extract(_headers(request), Context())
        recorder = active.recorder
        known = trace.get_current_span(context).get_span_context().is_valid
        parent = recorder.parent(context) if known else None
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        if recording is None:
            around = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
            return Context({**context, SPAN_KEY: unrecorded_span(around)}), None
        template, first = (_of_grpc if request.request_type == "grpc" else _of_http)(active, request)
        span = recording.start(template, trace_id, flags, parent, wire.attributes(first))
        return Context({**context, SPAN_KEY: span}), span
    except Exception as error:  # noqa: BLE001  the request is the user's, the fault would be ours
        failed("tracing a request at Serve's proxy", error)
        return None


def _headers(request: Any) -> dict[str, str]:
    if request.request_type == "grpc":
        pairs = [(key, value) for key, value in request.context.invocation_metadata() or () if isinstance(value, str)]
    else:
        pairs = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in request.headers]
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]},{value}" if key in headers else value
    return headers


_templates: dict[tuple[int, str], Template] = {}


def _template(active: Tracing, name: str, attributes: dict[str, str]) -> Template:
    key = id(active), name
    found = _templates.get(key)
    if found is None:
        found = _templates[key] = Template(name, SERVER, {**attributes, **active.whereabouts()})
    return found


def _of_http(active: Tracing, request: Any) -> tuple[Template, dict[str, Any]]:
    scope = request.scope
    # A WebSocket begins as a GET.
    given = scope.get("method", "GET").upper()
    method = given if given in _METHODS else _OTHER_METHOD
    name = method if method != _OTHER_METHOD else "HTTP"
    template = _template(active, name, {names.HTTP_METHOD: method})
    client = scope.get("client")
    told = {
        names.URL_PATH: scope.get("path", ""),
        names.URL_SCHEME: scope.get("scheme", ""),
        names.NETWORK_PROTOCOL_VERSION: scope.get("http_version", ""),
        names.CLIENT_ADDRESS: client[0] if isinstance(client, (list, tuple)) and client else "",
        names.HTTP_METHOD_ORIGINAL: given if method != given else "",
    }
    return template, {key: value for key, value in told.items() if value}


def _of_grpc(active: Tracing, request: Any) -> tuple[Template, dict[str, Any]]:
    template = _template(active, "grpc", {names.RPC_SYSTEM: "grpc"})
    service, _, method = request.service_method.strip("/").rpartition("/")
    return template, {names.RPC_SERVICE: service, names.RPC_METHOD: method}


async def _traced(
    body: AsyncIterator[Any], request: Any, context: Context, span: RecordedSpan | None
) -> AsyncIterator[Any]:
    status: Any = None
    token = attach(context)
    try:
        async for message in body:
            if type(message).__name__ == "ResponseStatus":
                status = message  # the last one
                _end(span, request, status)  # while the client still waits
            yield message
    except BaseException as error:
        hide_frame(error)
        if span is not None and not isinstance(error, GeneratorExit):
            _fail(span, error)
        raise
    finally:
        detach(token)
        _end(span, request, status)


def _end(span: RecordedSpan | None, request: Any, status: Any) -> None:
    if span is None or not span.is_recording():
        return
    try:
        _describe(span, request, status)
    except Exception as error:  # noqa: BLE001  as above
        failed("describing a request at Serve's proxy", error)
    span.end()


def _describe(span: RecordedSpan, request: Any, status: Any) -> None:
    from ray.serve import context  # noqa: PLC0415  a proxy has it

    known = context._serve_request_context.get()  # noqa: SLF001  as Serve's proxy
    route = getattr(known, "route", "")
    told = {
        names.RAY_SERVE_APPLICATION: getattr(known, "app_name", ""),
        names.RAY_SERVE_REQUEST_ID: getattr(known, "request_id", ""),
    }
    code = getattr(status, "code", None)
    if request.request_type == "grpc":
        span.update_name(request.service_method.strip("/"))
        if code is not None:
            span.set_attribute(names.RPC_GRPC_STATUS, code.value[0])
    elif route:
        told[names.HTTP_ROUTE] = route
        span.update_name(f"{span.template.name} {route}")
    span.set_attributes({key: value for key, value in told.items() if value})
    if status is None:
        return
    error = ""
    if request.request_type == "grpc":
        error = getattr(code, "name", str(code)) if status.is_error else ""
    else:
        number = str(code)
        if request.request_type == "websocket":
            error = number if status.is_error and number not in _NO_ERROR_OF_WEBSOCKET else ""
        else:
            # Old versions of Ray have words for the same: "timeout", "disconnection".
            number = _ENDED_EARLY.get(number, number)
            if number.isdigit():
                span.set_attribute(names.HTTP_STATUS, int(number))
            # Below 500 the fault is the client's.
            error = number if number >= "500" or number in _ENDED_EARLY.values() else ""
    if error:
        span.set_status(trace.StatusCode.ERROR, status.message or None)
        span.set_attribute(names.ERROR_TYPE, error)
