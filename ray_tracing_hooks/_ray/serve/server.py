"""SERVER spans of requests over HTTP, WebSocket and gRPC, at a proxy or at a replica with direct ingress. The context
of any request in a replica, and the end of its span.

Attributes follow OpenTelemetry's semantic conventions for HTTP servers and gRPC.
"""

from __future__ import annotations

import asyncio
from binascii import hexlify as _hex
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.propagation import is_standard, reference, unrecorded_span
from ray_tracing_hooks._ray.serve.spans import TextAttribute, of_status
from ray_tracing_hooks._ray.templates import SERVER
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import REQUEST, SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import NameAndKind, Parent, RecordedSpan
from ray_tracing_hooks._safety.exceptions import is_a
from ray_tracing_hooks._safety.guard import failed

_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"},
)
_OTHER_METHOD = "_OTHER"
_MOST_TEMPLATES = 1000

ENDED_EARLY = {"408": "408", "timeout": "408", "499": "499", "disconnection": "499"}
"""Serve's statuses for requests that timed out, or whose client disconnected."""

REFUSED = "403"
"""The HTTP status for a WebSocket that the application closes before it is open."""

_ERRORS_OF_WEBSOCKET = {"1006", "1011", "1012", "1013", "1014", "1015"}
"""With these codes the connection broke, or the server failed. With other codes, a side closed it on purpose, or the
client is at fault; codes above 3000 are defined by the application."""

_CODES_OF_GRPC = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""The names of gRPC's codes, by number."""

_ERRORS_OF_GRPC = {
    *("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    # Like 499 and 503 of HTTP: the client disconnected, or the server was overloaded.
    *("CANCELLED", "RESOURCE_EXHAUSTED"),
}
"""With the other codes, the client is at fault."""

_NOTHING = Context()

_ABOUT_NOW = 0.1
"""Seconds before a deadline that count as having reached it."""

_path = TextAttribute(names.URL_PATH).encoded
_client_address = TextAttribute(names.CLIENT_ADDRESS).encoded
first_chunk = encode.double_attribute(names.RAY_SERVE_FIRST_CHUNK)

Described = tuple[Template, bytes] | None
"""The start of a span: its template and its own attributes. None for no span."""


def is_left_out_http(active: Tracing, scope: Mapping[str, Any]) -> bool:
    """Whether the patterns leave out a request over HTTP or WebSocket, given its ASGI scope."""
    if not active.selection.has_requests:
        return False
    path = scope.get("path", "")
    return not active.selection.selects_request(path, f"{scope.get('method', 'GET')} {path}")


def is_left_out_grpc(active: Tracing, called: str) -> bool:
    """Whether the patterns leave out a gRPC call of ``/package.Service/Method``."""
    if not active.selection.has_requests:
        return False
    name = called.strip("/")
    return not active.selection.selects_request(f"/{name}", name)


def arrive(
    active: Tracing, headers: Mapping[str, str], describe: Callable[[Tracing, Any], Described] | None, request: Any
) -> tuple[Context, RecordedSpan | None]:
    """The context for working on a request, and its span if it is recorded.

    Without ``describe``, the request is left out: in its context nothing is sampled.
    """
    recorder, context, parent, named = active.recorder, _NOTHING, None, b""
    around = get_current().get(SPAN_KEY)
    if type(around) is RecordedSpan and around.is_recording():
        # The only span that can be current here is that of a middleware, which has read the headers.
        context = get_current()
        parent = recorder.parent(context)
    elif headers:  # extracting a context from headers without one would take longer than everything else here
        context = propagate.extract(headers, _NOTHING)
        # Without it, do not use this process's fallback parent, which is the driver that started Serve.
        if trace.get_current_span(context).get_span_context().is_valid:
            parent = recorder.parent(context)
            named = reference(context, parent)
    trace_id, flags = recorder.decide(parent)
    recording = recorder.of(flags)
    if describe is None:
        flags &= ~trace.TraceFlags.SAMPLED
        parent = parent._replace(flags=flags) if parent is not None else None
    described = describe(active, request) if describe is not None and recording is not None else None
    if recording is None or described is None:
        known = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
        return Context({**context, SPAN_KEY: unrecorded_span(known)}), None
    template, first = described
    span = recording.start(template, trace_id, flags, parent, first + named)
    return Context({**context, SPAN_KEY: span}), span


_STANDARD = frozenset({b"traceparent", b"tracestate", b"baggage"})


class _Propagators:
    """The global propagators, which the application may set at any time."""

    def __init__(self) -> None:
        self._known: tuple[Any, frozenset[bytes]] = (None, frozenset())

    def fields(self) -> frozenset[bytes]:
        """The names of the headers that they read; empty unless they are all those of the W3C or of SkyWalking."""
        textmap = propagate.get_global_textmap()
        known, fields = self._known
        if known is not textmap:
            # These are the headers that they write. Other propagators may read more, such as both forms of B3.
            written = [field.lower() for field in textmap.fields]
            is_known = all(map(is_standard, written)) and _reads_what_it_writes(textmap)
            fields = frozenset(field.encode() for field in written) if is_known else frozenset()
            self._known = (textmap, fields)
        return fields


def _reads_what_it_writes(propagator: Any) -> bool:
    """Whether it and its parts are no classes of an application, which may read further headers."""
    is_known = type(propagator).__module__.startswith(("opentelemetry.", "ray_tracing_hooks."))
    return is_known and all(map(_reads_what_it_writes, getattr(propagator, "_propagators", ())))


_propagators = _Propagators()


def only_standard_headers() -> bool:
    """Whether the propagators, which the application may have set, are only those of the W3C."""
    fields = _propagators.fields()
    return bool(fields) and fields <= _STANDARD


def http_headers(given: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a request that can carry a context, and all of them if it is not known which can."""
    fields = _propagators.fields()
    if fields and fields.isdisjoint(dict(given)):
        return {}
    read = (pair for pair in given if not fields or pair[0] in fields)
    return _joined((key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in read)


def grpc_headers(metadata: Iterable[tuple[str, Any]] | None) -> dict[str, str]:
    """The text metadata of a call."""
    return _joined((key.lower(), value) for key, value in metadata or () if isinstance(value, str))


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for key, value in pairs:
        headers[key] = f"{headers[key]},{value}" if key in headers else value
    return headers


class Descriptions:
    """Describes the spans of requests at one place, which all have these ``attributes``.

    If the place is not ``selected``, there are no spans.
    """

    def __init__(self, attributes: Mapping[str, Any], *, selected: bool = True) -> None:
        self._attributes, self._selected = attributes, selected
        self._active: Tracing | None = None
        self._templates: dict[tuple[str, str, str], Template] = {}

    def of_http(self, active: Tracing, scope: Mapping[str, Any]) -> Described:
        """Describe a request over HTTP or WebSocket, given its ASGI scope."""
        if not self._selected:
            return None
        # A WebSocket starts as a GET.
        given = scope.get("method", "GET")
        key = given, scope.get("scheme", ""), scope.get("http_version", "")
        known = self._templates if active is self._active else self._known(active)
        template = known.get(key)
        if template is None:
            method = given.upper() if given.upper() in _METHODS else _OTHER_METHOD
            attributes = {
                names.HTTP_METHOD: method,
                names.HTTP_METHOD_ORIGINAL: given if method != given else "",
                names.URL_SCHEME: key[1],
                names.NETWORK_PROTOCOL_VERSION: key[2],
            }
            name = method if method != _OTHER_METHOD else "HTTP"
            template = self._made(active, key, name, {key: value for key, value in attributes.items() if value})
        first = _path(scope.get("path", "")[: active.recorder.limits.value_length])
        query = scope.get("query_string")
        if query and active.redactor is not None:
            first += encode.attribute(names.URL_QUERY, active.redactor.query(query.decode("latin-1")))
        client = scope.get("client")
        return template, first + _client_address(client[0]) if client else first

    def of_grpc(self, active: Tracing, call: tuple[str, str]) -> Described:
        """Describe a gRPC call, given as ``/package.Service/Method`` and the client as ``ipv4:10.0.0.1:40000``."""
        if not self._selected:
            return None
        name, client = call[0].strip("/"), call[1]
        key = "grpc", name, ""
        template = self._known(active).get(key)
        if template is None:
            service, _, method = name.rpartition("/")
            attributes = {names.RPC_SYSTEM: "grpc", names.RPC_SERVICE: service, names.RPC_METHOD: method}
            template = self._made(active, key, name, attributes)
        kind, _, address = client.partition(":")
        if kind not in ("ipv4", "ipv6"):
            return template, b""
        return template, _client_address(unquote(address).rpartition(":")[0].strip("[]"))

    def _known(self, active: Tracing) -> dict[tuple[str, str, str], Template]:
        """The templates of this connection. Those of an earlier one have other attributes."""
        if active is not self._active:
            self._templates, self._active = {}, active
        return self._templates

    def _made(self, active: Tracing, key: tuple[str, str, str], name: str, attributes: Mapping[str, Any]) -> Template:
        template = Template(name, SERVER, {**attributes, **self._attributes, **active.process_attributes.attributes()})
        if len(self._templates) < _MOST_TEMPLATES:
            self._templates[key] = template
        return template


def of_route(template: NameAndKind, route: str) -> bytes:
    """The encoded route of an HTTP request, and the span name with the route."""
    # The last value of a singular field wins, in every protobuf reader.
    return encode.attribute(names.HTTP_ROUTE, route) + encode.name(f"{template.name} {route}")


def outcome_of_http(number: str) -> tuple[str, bytes]:
    """The ``error.type``, if this HTTP status is an error, and the encoded status."""
    # Old versions of Ray use words instead: "timeout", "disconnection".
    number = ENDED_EARLY.get(number, number)
    # Below 500, the client is at fault.
    error = number if number >= "500" or number in ENDED_EARLY.values() else ""
    return error, of_status(int(number)) if number.isdigit() else b""


def outcome_of_websocket(number: str) -> tuple[str, bytes]:
    """The same for the close code of a WebSocket, or for its HTTP status if it was not opened."""
    if len(number) != 4 or not number.isdigit():
        return outcome_of_http(number)
    error = number if number in _ERRORS_OF_WEBSOCKET else ""
    return error, encode.attribute(names.RAY_SERVE_CLOSE_CODE, int(number))


def outcome_of_grpc(code: str) -> tuple[str, bytes]:
    """The same for the name of a gRPC code."""
    number = _CODES_OF_GRPC.index(code) if code in _CODES_OF_GRPC else -1
    return code if code in _ERRORS_OF_GRPC else "", encode.attribute(
        names.RPC_GRPC_STATUS, number
    ) if number >= 0 else b""


def grpc_code(context: Any, code: Any) -> str:
    """The name of the gRPC code that the client gets; ``code`` unless the server's context has one."""
    # A code that the user's code has set takes precedence; it is a number.
    given = context.code() or code
    name = _CODES_OF_GRPC[given] if type(given) is int and given < len(_CODES_OF_GRPC) else getattr(given, "name", "")
    if name == "CANCELLED":
        # A client cancels a call at its deadline without waiting for the server to notice it.
        remaining = context.time_remaining()
        if remaining is not None and remaining < _ABOUT_NOW:
            return "DEADLINE_EXCEEDED"
    return name


def with_context(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a request, with the current span as their context."""
    span = get_current().get(SPAN_KEY)
    if type(span) is RecordedSpan and only_standard_headers():
        trace_id, span_id, flags, _, _ = span.as_parent()
        traceparent = b"00-%b-%b-%02x" % (_hex(trace_id), _hex(span_id), flags)
        return [*[pair for pair in headers if pair[0] != b"traceparent"], (b"traceparent", traceparent)]
    injected: dict[str, str] = {}
    propagate.inject(injected)
    injected.pop("baggage", None)  # unchanged
    added = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in injected.items()}
    if any(map(_is_of_b3, added)):
        # The other form of B3 would take precedence over this one.
        headers = [pair for pair in headers if not _is_of_b3(pair[0])]
    return [*[pair for pair in headers if pair[0] not in added], *added.items()]


def _is_of_b3(name: bytes) -> bool:
    return name == b"b3" or name.startswith(b"x-b3-")


class InReplica(AbstractContextManager[Any]):
    """Wraps Serve's context manager of a request, and attaches the request's context inside of it."""

    def __init__(self, inner: AbstractContextManager[Any], context: Context, span: RecordedSpan | None) -> None:
        self._inner, self._context, self._span = inner, context, span
        self._token: Any = None
        self._status: Any = None

    def __enter__(self) -> Any:
        self._token = attach(self._context)
        REQUEST.set(self._span)
        try:
            callback = self._inner.__enter__()
        except BaseException as error:
            self._end(error)
            raise
        if not callable(callback):
            return callback

        def status_code_callback(status: Any) -> Any:
            """Serve's callback for the status of a response, which also records the status here."""
            self._status = status
            return callback(status)

        return status_code_callback

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return self._inner.__exit__(kind, error, traceback)
        finally:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        detach(self._token)
        span = self._span
        if span is None:
            return
        try:
            self._finish(span, error)
        except Exception as fault:  # noqa: BLE001  a fault here must not reach the user's request
            failed("ending the span of a request", fault)

    def _finish(self, span: RecordedSpan, error: BaseException | None) -> None:
        status = 0
        if self._status is not None:
            status, encoded = _reported(str(self._status))
            span.add_encoded(encoded)
        if is_a(error, asyncio.CancelledError):
            # Who made the request has left or waits no more, as the span of that says. This deployment has not failed.
            span.set_attribute(names.ERROR_TYPE, names.TASK_CANCELLED)
            span.record_exception(error, escaped=True)
        elif error is not None and not is_a(error, GeneratorExit):
            fail(span, of_user(error))
            return
        if 500 <= status < 600:
            span.set_status(trace.StatusCode.ERROR)
            span.set_attribute(names.ERROR_TYPE, str(status))
        span.end()


@lru_cache(maxsize=1000)
def _reported(text: str) -> tuple[int, bytes]:
    """The HTTP status that Serve reports, as a number and encoded; 0 and empty if it is not a number."""
    status = int(text) if text.isascii() and text.isdigit() else 0
    return status, of_status(status) if status else b""


def of_user(error: BaseException) -> BaseException:
    """The error of the user's code, without Serve's wrapper for errors with a gRPC code."""
    original = getattr(error, "original_exception", None) if type(error).__name__ == "gRPCStatusError" else None
    return original if is_a(original, BaseException) else error
