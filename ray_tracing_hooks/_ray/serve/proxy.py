"""Requests at a proxy: wraps ``GenericProxy.proxy_request`` (Ray 2.60 ``serve/_private/proxy.py``), by HTTP, WebSocket
and gRPC.

Attributes follow the semantic conventions of OpenTelemetry for HTTP servers and for gRPC. What monitors ask a proxy
(its health, its routes) makes no span.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import hide_frame
from ray_tracing_hooks._ray.execution import fail
from ray_tracing_hooks._ray.serve.spans import TextAttribute, of_status
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


_context: Any = None
"""``ray.serve.context``, which a proxy has imported."""


def patch(patches: Patches) -> bool:
    """Wrap the proxy; False if this Ray has no such place."""
    global _context  # noqa: PLW0603  a process has one
    from ray.serve import context  # noqa: PLC0415
    from ray.serve._private.proxy import GenericProxy  # noqa: PLC0415

    _context = context
    return patches.wrap(GenericProxy, "proxy_request", _proxy_request)


def _proxy_request(original: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., AsyncGenerator[Any, None]]:
    def proxy_request(self: Any, proxy_request: Any) -> AsyncGenerator[Any, None]:
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
        headers = _headers(request)
        # Looking for a context among headers that tell none would take longer than all else here.
        context = propagate.extract(headers, Context()) if headers else Context()
        recorder = active.recorder
        known = trace.get_current_span(context).get_span_context().is_valid
        parent = recorder.parent(context) if known else None
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        if recording is None:
            around = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
            return Context({**context, SPAN_KEY: unrecorded_span(around)}), None
        template, first = (_of_grpc if request.request_type == "grpc" else _of_http)(active, request)
        span = recording.start(template, trace_id, flags, parent, first)
        return Context({**context, SPAN_KEY: span}), span
    except Exception as error:  # noqa: BLE001  the request is the user's, the fault would be ours
        failed("tracing a request at Serve's proxy", error)
        return None


_fields: tuple[Any, frozenset[bytes]] = (None, frozenset())
"""The global propagators, and the names of the headers that they write."""


def _headers(request: Any) -> dict[str, str]:
    """The headers of a request, if there is one among them that tells of a context."""
    global _fields  # noqa: PLW0603  made when first needed, and again when the propagators are others
    if request.request_type == "grpc":
        metadata = request.context.invocation_metadata() or ()
        pairs = [(key.lower(), value) for key, value in metadata if isinstance(value, str)]
    else:
        textmap = propagate.get_global_textmap()
        known, fields = _fields
        if known is not textmap:
            fields = frozenset(field.lower().encode() for field in textmap.fields)
            _fields = (textmap, fields)
        for key, _ in request.headers:
            if key in fields:
                break
        else:
            return {}
        pairs = [(key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in request.headers]
    headers: dict[str, str] = {}
    for key, value in pairs:
        headers[key] = f"{headers[key]},{value}" if key in headers else value
    return headers


_templates: dict[tuple[int, str, str, str], Template] = {}
_MOST_TEMPLATES = 1000

_path = TextAttribute(names.URL_PATH).encoded
_client_address = TextAttribute(names.CLIENT_ADDRESS).encoded
_request_id = TextAttribute(names.RAY_SERVE_REQUEST_ID).encoded


def _of_http(active: Tracing, request: Any) -> tuple[Template, bytes]:
    scope = request.scope
    # A WebSocket begins as a GET.
    given = scope.get("method", "GET")
    key = id(active), given, scope.get("scheme", ""), scope.get("http_version", "")
    template = _templates.get(key)
    if template is None:
        method = given.upper() if given.upper() in _METHODS else _OTHER_METHOD
        told = {
            names.HTTP_METHOD: method,
            names.HTTP_METHOD_ORIGINAL: given if method != given else "",
            names.URL_SCHEME: key[2],
            names.NETWORK_PROTOCOL_VERSION: key[3],
        }
        name = method if method != _OTHER_METHOD else "HTTP"
        attributes = {key: value for key, value in told.items() if value}
        template = Template(name, SERVER, {**attributes, **active.whereabouts()})
        if len(_templates) < _MOST_TEMPLATES:
            _templates[key] = template
    first = _path(scope.get("path", "")[: active.recorder.limits.value_length])
    client = scope.get("client")
    return template, first + _client_address(client[0]) if client else first


def _of_grpc(active: Tracing, request: Any) -> tuple[Template, bytes]:
    name = request.service_method.strip("/")
    key = id(active), "grpc", name, ""
    template = _templates.get(key)
    if template is None:
        service, _, method = name.rpartition("/")
        attributes = {names.RPC_SYSTEM: "grpc", names.RPC_SERVICE: service, names.RPC_METHOD: method}
        template = Template(name, SERVER, {**attributes, **active.whereabouts()})
        if len(_templates) < _MOST_TEMPLATES:
            _templates[key] = template
    return template, b""


async def _traced(
    body: AsyncGenerator[Any, None], request: Any, context: Context, span: RecordedSpan | None
) -> AsyncGenerator[Any, None]:
    """``body``, with ``context`` attached during each step: whoever iterates has a context of its own."""
    status: Any = None
    # By HTTP the first message is the status and the headers.
    messages, head, first = 0, int(request.request_type != "grpc"), 0
    try:
        while True:
            token = attach(context)
            try:
                message = await body.__anext__()
            except StopAsyncIteration:
                return
            finally:
                detach(token)
            if type(message).__name__ == "ResponseStatus":
                status = message  # the last one
                if messages > head + 1 and span is not None:
                    span.set_attribute(names.RAY_SERVE_FIRST_CHUNK, (first - span.start_time) / 1e9)
                _end(span, request, status)  # while the client still waits
            else:
                messages += 1
                if messages == head + 1:
                    first = time.time_ns()
            yield message
    except BaseException as error:
        hide_frame(error)
        if isinstance(error, GeneratorExit):
            await body.aclose()
        elif span is not None:
            fail(span, error)
        raise
    finally:
        _end(span, request, status)


def _end(span: RecordedSpan | None, request: Any, status: Any) -> None:
    if span is None or not span.is_recording():
        return
    try:
        _describe(span, request, status)
    except Exception as error:  # noqa: BLE001  as above
        failed("describing a request at Serve's proxy", error)
    span.end()


_named: dict[tuple[Template, str, str], bytes] = {}
"""What is known at the end of a request, and the same for many."""


def _describe(span: RecordedSpan, request: Any, status: Any) -> None:
    known = _context._serve_request_context.get()  # noqa: SLF001  as Serve's proxy
    route, application = getattr(known, "route", ""), getattr(known, "app_name", "")
    is_grpc = request.request_type == "grpc"
    key = span.template, route, application
    told = _named.get(key)
    if told is None:
        told = wire.attribute(names.RAY_SERVE_APPLICATION, application) if application else b""
        if route and not is_grpc:
            told += wire.attribute(names.HTTP_ROUTE, route)
            # The last value of a singular field wins, in every protobuf reader.
            told += wire.field(0x2A, wire.utf8(f"{span.template.name} {route}"))
        if len(_named) < _MOST_TEMPLATES:
            _named[key] = told
    told += _request_id(getattr(known, "request_id", ""))
    if status is not None:
        error, encoded = (_outcome_of_grpc if is_grpc else _outcome_of_http)(request, status)
        told += encoded
        if error:
            span.set_status(trace.StatusCode.ERROR, status.message or None)
            span.set_attribute(names.ERROR_TYPE, error)
    span.add_at_end(lambda: told)


def _outcome_of_grpc(_request: Any, status: Any) -> tuple[str, bytes]:
    code = status.code
    error = getattr(code, "name", str(code)) if status.is_error else ""
    return error, wire.attribute(names.RPC_GRPC_STATUS, code.value[0]) if code is not None else b""


def _outcome_of_http(request: Any, status: Any) -> tuple[str, bytes]:
    """The type of the error, if it is one, and the encoded status."""
    number = str(status.code)
    if request.request_type == "websocket":
        return number if status.is_error and number not in _NO_ERROR_OF_WEBSOCKET else "", b""
    # Old versions of Ray have words for the same: "timeout", "disconnection".
    number = _ENDED_EARLY.get(number, number)
    # Below 500 the fault is the client's.
    error = number if number >= "500" or number in _ENDED_EARLY.values() else ""
    return error, of_status(int(number)) if number.isdigit() else b""
