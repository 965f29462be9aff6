"""Jaeger, over OTLP or over its own protocols.

The settings are ``RAY_TRACING_JAEGER_*`` and the standard ``OTEL_EXPORTER_JAEGER_*`` variables. A driver reads them to
log where its spans go, so nothing heavy is imported here.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import SplitResult

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._formats.jaeger import API_V2, Encoder, jaeger_span, process
from ray_tracing_hooks._formats.otlp import TRACES, Group
from ray_tracing_hooks._safety.guard import SettingError
from ray_tracing_hooks._settings.otel import JAEGER, read_with_source
from ray_tracing_hooks._settings.otel import read as read_variable
from ray_tracing_hooks._settings.table import from_variables
from ray_tracing_hooks._settings.values import URL, hint, shown, without_credentials
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import DeliveryError, Destination, Sink, SinkContext, Tls
from ray_tracing_hooks._ship.sinks import otlp as otlp_sink
from ray_tracing_hooks._ship.sinks.jaeger_settings import Settings
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink, resource_of, scope_of
from ray_tracing_hooks._ship.transport.contract import Refused, ServerSettings, Transport

PORTS = {"otlp-grpc": 4317, "otlp-http": 4318, "thrift-http": 14268, "thrift-udp": 6831, "grpc": 14250}
"""Jaeger's default port for each protocol."""

_OTHER_PORTS = (5775, 6832)
"""Jaeger's ports for forms of Thrift over UDP that are not supported here."""

_PATHS = {"otlp-http": "/v1/traces", "thrift-http": "/api/traces"}
_STANDARD_PORTS = {"http": 80, "https": 443}

_Problem = Callable[[str], None]


def destination(_plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
    found = read(environ, problem)
    target = found.target if found.protocol.startswith("otlp") else None
    return Destination(f"Jaeger {found.address}", (found.address,), target)


def read(environ: Mapping[str, str], problem: Callable[[str], None]) -> ServerSettings:
    """The settings from ``environ``. Invalid values are reported, and a default is used instead.

    The endpoint is ``RAY_TRACING_JAEGER_ENDPOINT``, else ``OTEL_EXPORTER_JAEGER_ENDPOINT``, else
    ``_AGENT_HOST``, else localhost. ``_AGENT_PORT`` applies to ``thrift-udp`` alone; there ``_ENDPOINT``, which names
    no agent, applies only if nothing else is set. A port or a path that is Jaeger's default for another protocol is
    replaced by that of the protocol in use. The ``OTEL_EXPORTER_OTLP_*`` variables do not apply: their headers may
    contain the key of another backend.
    """
    given = from_variables(Settings, environ, problem)
    protocol = given.protocol
    endpoint, source = _endpoint(given, environ, problem)
    parts = otlp_sink.split(endpoint)
    scheme = "https" if parts.scheme == "https" else "http"
    place = f"{otlp_sink.host_of(parts)}:{_port(protocol, parts, source, problem)}"
    certificate = read_variable(JAEGER + "CERTIFICATE", environ, problem)
    tls: Tls | None = Tls(certificate)
    if protocol in _PATHS:
        path = parts.path.rstrip("/")
        address = f"{scheme}://{place}{_PATHS[protocol] if path in {'', *_PATHS.values()} else path}"
        query = parts.query or ("format=jaeger.thrift" if protocol == "thrift-http" else "")
        target = f"{address}?{query}" if query else address
    elif protocol == "thrift-udp":
        target, address = place, f"udp://{place}"
    else:
        target, address = place, f"{scheme}://{place}"
        tls = tls if scheme == "https" else None
    headers = _headers(protocol, endpoint, environ, problem)
    timeout, max_spans, delay = otlp_sink.limits(environ, problem, read_variable(JAEGER + "TIMEOUT", environ, problem))
    return ServerSettings(protocol, target, address, headers, timeout, tls, max_spans, delay)


def _endpoint(settings: Settings, environ: Mapping[str, str], problem: _Problem) -> tuple[str, str]:
    """The endpoint, and the variable that it comes from."""
    endpoint, source = settings.endpoint, "RAY_TRACING_JAEGER_ENDPOINT"
    given, variable = read_with_source(JAEGER + "ENDPOINT", environ, problem)
    if endpoint is None and given is not None and settings.protocol != "thrift-udp":
        endpoint, source = given, str(variable)
    if endpoint is None:
        endpoint, source = _agent(settings.protocol, environ, problem)
    if endpoint is None and given is not None:
        # A URL of the collector gives the host of the agent, but not its port.
        endpoint, source = _bracketed(otlp_sink.split(given).hostname or ""), str(variable)
    if endpoint is not None and endpoint.startswith("unix:"):
        problem(f"{source}={shown(endpoint)} is ignored: expected a URL, such as http://jaeger:4317; using localhost.")
        endpoint = None
    return endpoint or "localhost", source


def _agent(protocol: str, environ: Mapping[str, str], problem: _Problem) -> tuple[str | None, str]:
    """``host`` or ``host:port`` from the agent's variables, or None if unset, and the variable it comes from."""
    host = read_variable(JAEGER + "AGENT_HOST", environ, problem)
    port = read_variable(JAEGER + "AGENT_PORT", environ, problem) if protocol == "thrift-udp" else None
    if host is not None:
        host = _bracketed(host)
        try:
            parts = otlp_sink.split(URL.read(host))
        except ValueError:
            given = shown(without_credentials(host))
            problem(f"{JAEGER}AGENT_HOST={given} is ignored: expected the name or address of a host; using localhost.")
            host = None
        else:
            if port is not None:
                host = _bracketed(parts.hostname or "")
    if port is not None:
        return f"{host or 'localhost'}:{port}", JAEGER + "AGENT_PORT"
    return host, JAEGER + "AGENT_HOST"


def _bracketed(host: str) -> str:
    """An IPv6 address in brackets, as in a URL; everything else unchanged."""
    return f"[{host}]" if host.count(":") > 1 and "[" not in host and "://" not in host else host


def _port(protocol: str, parts: SplitResult, source: str, problem: _Problem) -> int:
    right, given = PORTS[protocol], parts.port
    if given is None:
        # A URL without a port means a proxy in front of Jaeger; a plain name means Jaeger itself.
        is_url = parts.scheme == "https" or (protocol in _PATHS and parts.scheme and parts.path.rstrip("/"))
        return _STANDARD_PORTS[parts.scheme] if is_url and protocol != "thrift-udp" else right
    if given != right and given in {*PORTS.values(), *_OTHER_PORTS}:
        hint(
            problem,
            f"{source}: port {given} is Jaeger's port for a protocol other than {protocol}, which is in use "
            f"(RAY_TRACING_JAEGER_PROTOCOL); using port {right}.",
        )
        return right
    return given


def _headers(protocol: str, endpoint: str, environ: Mapping[str, str], problem: _Problem) -> dict[str, str]:
    if protocol == "thrift-udp":
        return {}
    user = read_variable(JAEGER + "USER", environ, problem)
    password = read_variable(JAEGER + "PASSWORD", environ, problem)
    authorization = otlp_sink.credentials(endpoint)
    if user is not None and password is not None:
        authorization = otlp_sink.basic(user, password)
    elif user is not None or password is not None:
        given, missing = ("USER", "PASSWORD") if password is None else ("PASSWORD", "USER")
        problem(
            f"{JAEGER}{given} is ignored: expected {JAEGER}{missing} with it; using "
            f"{'the credentials of the endpoint' if authorization else 'no authentication'}."
        )
    return {"authorization": authorization} if authorization else {}


_POST_SPANS = "/jaeger.api_v2.CollectorService/PostSpans"

_BATCH_HEAD = 64
"""An upper bound of the bytes of a request besides its process and its spans."""


SIGNALS = frozenset({TRACES})


def make(context: SinkContext) -> Sink:
    """The sink for the settings. Raises SettingError if a package is missing."""
    settings = read(context.environ, context.problem)
    if settings.protocol.startswith("otlp"):
        protocol = "grpc" if settings.protocol == "otlp-grpc" else "http/protobuf"
        return otlp_sink.OtlpSink(settings._replace(protocol=protocol), context)
    encoder = _encoder(settings.protocol)
    return JaegerSink(settings, context, _transport(settings), encoder)


class JaegerSink(SendingSink):
    """Sends Jaeger's ``Batch`` messages, each with spans of one process.

    Over UDP a batch counts as accepted when it has been sent, since there is no response.
    """

    def __init__(self, settings: ServerSettings, context: SinkContext, transport: Transport, encoder: Encoder) -> None:
        super().__init__(context, transport, settings.delay)
        self._encoder = encoder
        self._max_spans = settings.max_spans
        self._max_bytes = (DATAGRAM_BYTES if settings.protocol == "thrift-udp" else REQUEST_BYTES) - _BATCH_HEAD

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        # Encode here, so that sizes are exact, and only once however often a request is retried.
        for group in self._encoded(groups):
            yield from otlp.cut([group], self._max_bytes, self._max_spans)

    def encode(self, groups: Sequence[Group]) -> bytes:
        return self._encoder.request(groups[0].resource, [span for group in groups for span in group.spans])

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        """Jaeger's responses are empty."""

    def _encoded(self, groups: Sequence[Group]) -> list[Group]:
        """The spans in Jaeger's format, grouped by process, with the process in place of the resource."""
        spans_of: dict[bytes, list[bytes]] = {}
        bad = 0
        for group in groups:
            spans, scope = spans_of.setdefault(group.resource, []), scope_of(group.scope)
            for span in group.spans:
                try:
                    spans.append(self._encoder.span(jaeger_span(decode_span(span), scope)))
                except (ValueError, OverflowError, RecursionError, struct.error):  # malformed, or numbers out of range
                    bad += 1
        self._lose("{count} spans could not be decoded and were skipped", bad)
        return [
            Group(self._encoder.process(process(resource_of(resource))), b"", spans)
            for resource, spans in spans_of.items()
        ]


# Only the library that is needed is imported.


def _encoder(protocol: str) -> Encoder:
    if protocol == "grpc":
        return API_V2
    try:
        from ray_tracing_hooks._formats import jaeger_thrift  # noqa: PLC0415
    except ImportError as error:
        raise SettingError(
            f"RAY_TRACING_JAEGER_PROTOCOL={protocol} needs the package 'thrift', which cannot be imported ({error}): "
            "pip install 'ray-tracing-hooks[jaeger]' on every node, or use otlp-grpc, which needs no package"
        ) from error
    return jaeger_thrift.COMPACT if protocol == "thrift-udp" else jaeger_thrift.BINARY


def _transport(settings: ServerSettings) -> Transport:
    if settings.protocol == "thrift-udp":
        host, _, port = settings.target.rpartition(":")
        return UdpTransport(host.strip("[]"), int(port))
    if settings.protocol == "grpc":
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(settings, _POST_SPANS)
    from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

    return HttpTransport(settings, "application/x-thrift")


DATAGRAM_BYTES = 65_000
"""The longest datagram that a Jaeger agent accepts, and that Jaeger's clients send."""

_PAUSE = 0.002
"""Seconds between datagrams. A receiver's buffer holds about three of the longest: without a pause, a receiver on the
same machine lost 297 of 300, and with 1 ms none."""


class UdpTransport:
    """Sends each body as one datagram, and refuses bodies that are too long for that.

    Datagrams are not acknowledged: losses in the network or at a full receiver go unnoticed.

    A missing listener is detected only if the receiver's machine reports it: at once for the local machine, so that
    nothing is lost, and for another machine with the next datagram.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address = f"udp://{f'[{host}]' if ':' in host else host}:{port}"
        self._place = (host, port)
        self._socket: socket.socket | None = None
        self._next = 0.0

    def send(self, body: bytes) -> bytes:
        if len(body) > DATAGRAM_BYTES:
            raise Refused(f"larger than a datagram, which has {DATAGRAM_BYTES:,} bytes at most", too_large=True)
        time.sleep(max(0.0, self._next - time.monotonic()))
        try:
            if self._socket is None:
                self._socket = self._connected()
            self._socket.send(body)
            if number := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(number, os.strerror(number))  # noqa: TRY301  handled as an error of the call before
        except OSError as error:
            self.close()
            if error.errno == errno.EMSGSIZE:
                raise Refused("larger than a datagram of this network", too_large=True) from error
            raise DeliveryError(f"cannot reach {self.address}: {_why(error)}") from error
        self._next = time.monotonic() + _PAUSE
        return b""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        # Only a connected socket gets the error that no process listens.
        family, kind, protocol, _, place = socket.getaddrinfo(*self._place, type=socket.SOCK_DGRAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.connect(place)
        except OSError:
            made.close()
            raise
        return made


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "no process listens there"
    return error.strerror or type(error).__name__
