"""OTLP to a collector over gRPC or HTTP: spans and log records, each with its own settings; and those of metrics.

The settings are the standard variables: https://opentelemetry.io/docs/specs/otel/protocol/exporter/. A driver reads
them to log where its spans go, so nothing heavy is imported here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.otlp import LOGS, METRICS, TRACES, Group, Signal
from ray_tracing_hooks._settings.otel import OTLP, OTLP_METRICS, read_with_source
from ray_tracing_hooks._settings.otel import read as read_variable
from ray_tracing_hooks._settings.values import hint
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination, SinkContext, Tls
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink
from ray_tracing_hooks._ship.transport.contract import Refused, ServerSettings, Transport, one_line

_DEFAULT_DELAY = 1.0
"""Seconds that spans wait to be sent in one batch, if OTEL_BSP_SCHEDULE_DELAY is unset."""

_HTTP_DEFAULT = "http://localhost:4318"
_LOOPBACK = ("localhost", "::1")
_METADATA_NAME = re.compile(r"[0-9a-z_.-]+(?<!-bin)")
"""What gRPC sends as text: https://grpc.io/docs/guides/metadata/. Any other name would make every call fail."""


def destination(_plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
    """The server. The identity includes headers that may name an account or a tenant, but no token."""
    found = read(environ, problem)
    headers = sorted(item for item in found.headers.items() if item[0] != "authorization")
    return Destination(f"OTLP {found.address}", (found.address, headers), found.target)


def read(environ: Mapping[str, str], problem: Callable[[str], None], signal: Signal = TRACES) -> ServerSettings:
    """The settings from ``environ``. Invalid values are reported, and a default is used instead.

    If ``PROTOCOL`` is unset, the endpoint decides: port 4318 or a path that ends in ``/v1/<signal>`` means
    ``http/protobuf``, everything else ``grpc``, the default of OpenTelemetry Python.
    """

    def variable(name: str) -> tuple[object, str | None]:
        return read_with_source(OTLP + name, environ, problem, signal.name)

    def value(name: str) -> Any:
        return variable(name)[0]

    signal_path = f"/v1/{signal.name}"
    endpoint, source = variable("ENDPOINT")
    protocol = value("PROTOCOL") or protocol_of(str(endpoint or ""), signal_path)
    headers = {name: value.strip() for name, value in (value("HEADERS") or {}).items()}
    if protocol == "grpc":
        headers = _metadata(headers, problem)
    insecure = value("INSECURE")
    tls = Tls(
        value("CERTIFICATE"),
        value("CLIENT_CERTIFICATE"),
        value("CLIENT_KEY"),
    )
    if tls.client_key and not tls.client_certificate:
        problem(f"{OTLP}CLIENT_KEY is ignored: expected {OTLP}CLIENT_CERTIFICATE with it; using no client certificate.")
        tls = tls._replace(client_key=None)
    timeout, max_spans, delay = value("TIMEOUT"), None, 0.0
    if signal is not METRICS:
        timeout, max_spans, delay = limits(environ, problem, timeout)
    gzip = value("COMPRESSION") == "gzip"
    given = str(endpoint) if endpoint is not None else "http://localhost:4317"
    if protocol != "grpc" and given.startswith("unix:"):
        problem(
            f"{source}={given} is ignored: expected a URL, since only gRPC supports sockets; using {_HTTP_DEFAULT}."
        )
        endpoint = source = None
    if protocol == "grpc":
        target, address, secure = grpc_target(given, insecure, source or "", problem)
    else:
        if endpoint is None:
            given = _HTTP_DEFAULT
        is_exact = source is not None and f"_{signal.name.upper()}_" in source
        target, address = http_url(given, "" if is_exact else signal_path, source or "", problem)
        secure = True
        if is_exact and not urlsplit(target).path:
            hint(
                problem,
                f"{source} has no path, so {signal.items} are posted to '/', as the specification requires; most "
                f"collectors expect {signal_path}, which is appended only to {OTLP}ENDPOINT.",
            )
    authorization = credentials(given)
    if authorization:
        headers.setdefault("authorization", authorization)
    return ServerSettings(protocol, target, address, headers, timeout, tls if secure else None, max_spans, delay, gzip)


def limits(
    environ: Mapping[str, str], problem: Callable[[str], None], timeout: float
) -> tuple[float, int | None, float]:
    """The request time-out, the most spans per request, and the batch delay, from ``OTEL_BSP_*``."""
    export_timeout = read_variable("OTEL_BSP_EXPORT_TIMEOUT", environ, problem)
    delay = read_variable("OTEL_BSP_SCHEDULE_DELAY", environ, problem)
    return (
        min(timeout, export_timeout or timeout),
        read_variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", environ, problem),
        _DEFAULT_DELAY if delay is None else delay,
    )


def protocol_of(endpoint: str, path: str = "/v1/traces") -> str:
    """The protocol that an endpoint implies."""
    if endpoint.startswith("unix:"):
        return "grpc"
    parts = split(endpoint)
    return "http/protobuf" if parts.port == 4318 or parts.path.rstrip("/").endswith(path) else "grpc"


def split(endpoint: str) -> SplitResult:
    """The parts of a URL, or of ``host:port``."""
    return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")


def grpc_target(
    endpoint: str, insecure: bool | None, source: str, problem: Callable[[str], None]
) -> tuple[str, str, bool]:
    """The gRPC target, the address for messages, and whether it uses TLS. A path has no meaning and is left out."""
    if endpoint.startswith("unix:"):
        return endpoint, endpoint, False
    parts = split(endpoint)
    host = host_of(parts)
    if parts.scheme:
        secure = parts.scheme == "https"
    elif insecure is not None:
        secure = not insecure
    else:
        secure = not (parts.hostname in _LOOPBACK or (parts.hostname or "").startswith("127."))
        if secure:
            hint(
                problem,
                f"{source}={host}{_port(parts)} has no scheme, so TLS is used, as the specification requires; start it "
                "with http:// for plaintext, or with https:// for TLS.",
            )
    port = parts.port or (443 if parts.scheme == "https" else 4317)
    return f"{host}:{port}", f"{'https' if secure else 'http'}://{host}:{port}", secure


def http_url(endpoint: str, append: str, source: str, problem: Callable[[str], None]) -> tuple[str, str]:
    """The URL to post to, and the address for messages. ``append`` is the path to append to a base URL."""
    parts = split(endpoint)
    scheme = parts.scheme
    if not scheme:
        scheme = "https" if parts.port == 443 else "http"
        hint(problem, f"{source}={host_of(parts)}{_port(parts)} has no scheme; using {scheme}://.")
    path = parts.path.rstrip("/") + append if append else parts.path
    place = f"{scheme}://{host_of(parts)}{_port(parts)}{path}"
    return place + (f"?{parts.query}" if parts.query else ""), place


def credentials(endpoint: str) -> str | None:
    """The Authorization header for the credentials in a URL, if any."""
    parts = split(endpoint)
    if parts.username is None:
        return None
    return basic(unquote(parts.username), unquote(parts.password or ""))


def basic(user: str, password: str) -> str:
    """The Authorization header of basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape")).decode()


def _metadata(headers: Mapping[str, str], problem: Callable[[str], None]) -> dict[str, str]:
    """The headers that gRPC can send."""
    for name in headers:
        if not _METADATA_NAME.fullmatch(name):
            problem(
                f"{OTLP}HEADERS: {name!r} is left out: gRPC requires a name of letters, digits and _.- that does not "
                "end in -bin; the rest is used."
            )
    return {name: value for name, value in headers.items() if _METADATA_NAME.fullmatch(name)}


def host_of(parts: SplitResult) -> str:
    """The host of an endpoint as in a URL, which has an IPv6 address in brackets."""
    host = parts.hostname or "localhost"
    return f"[{host}]" if ":" in host else host


def _port(parts: SplitResult) -> str:
    return f":{parts.port}" if parts.port else ""


_METHODS = {
    TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}

_MOST_WARNINGS = 5
"""Bounds the reports: a server may put a time or a number into each of its warnings."""


SIGNALS = frozenset({TRACES, LOGS})


def make(context: SinkContext) -> OtlpSink:
    """The sink that the standard variables configure."""
    settings = read(context.environ, context.problem, context.signal)
    return OtlpSink(settings, context)


class OtlpSink(SendingSink):
    """Sends ``ExportTraceServiceRequest`` messages, or those of another signal, by the OTLP specification."""

    def __init__(self, settings: ServerSettings, context: SinkContext) -> None:
        super().__init__(context, connect(settings, context.signal), settings.delay)
        self._signal = context.signal
        self._max_spans = settings.max_spans
        self._json = settings.protocol == "http/json"
        self._undecodable = 0
        self._warnings: set[str] = set()

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        # In JSON a span takes about twice as much.
        return otlp.cut(groups, REQUEST_BYTES // 2 if self._json else REQUEST_BYTES, self._max_spans)

    def encode(self, groups: Sequence[Group]) -> bytes:
        if not self._json:
            return otlp.encode(groups)
        # Counted when the request is accepted, since it may be encoded more than once.
        body, self._undecodable = otlp.encode_json(groups, self._signal)
        return body

    def parts(self, groups: Sequence[Group], refusal: Refused) -> Sequence[list[Group]]:
        return otlp.halves_by_trace(groups) if refusal.too_large_trace else super().parts(groups, refusal)

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        self._lose(f"{{count}} {self._items} could not be decoded and were skipped", self._undecodable)
        rejected, message = otlp.decode_json_answer(answer, self._signal) if self._json else otlp.decode_answer(answer)
        message = one_line(message)
        if rejected:
            self.refuse(min(rejected, otlp.count(groups)), message or "it gives no reason")
        elif message and message not in self._warnings and len(self._warnings) < _MOST_WARNINGS:
            self._warnings.add(message)
            self._problem(f"{self._transport.address} accepted the {self._items} with a warning: {message}")


def connect(settings: ServerSettings, signal: Signal) -> Transport:
    """The transport for requests with ``signal``, by ``settings``. Only the library that is needed is imported."""
    if settings.protocol == "grpc":
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(settings, _METHODS[signal])
    from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

    return HttpTransport(settings, "application/json" if settings.protocol == "http/json" else "application/x-protobuf")


_PROMETHEUS_MODULE = "opentelemetry.exporter.prometheus"
PROMETHEUS_EXTRA = (
    "RAY_TRACING_PROMETHEUS needs the package opentelemetry-exporter-prometheus on each node; install it with "
    "pip install 'ray-tracing-hooks[prometheus]'"
)


class MetricsSettings(NamedTuple):
    """Seconds between two exports, where metrics are sent if they are, and whether they are written to files."""

    interval: float
    otlp: ServerSettings | None
    local: bool


def read_metrics(plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> MetricsSettings:
    """The settings from ``environ`` for this plan. Invalid values are reported, and a default is used instead."""
    local, sent = "local" in plan.exporters, None
    # What the SDK reads by itself.
    for name in (
        "OTEL_METRICS_EXEMPLAR_FILTER",
        f"{OTLP_METRICS}TEMPORALITY_PREFERENCE",
        f"{OTLP_METRICS}DEFAULT_HISTOGRAM_AGGREGATION",
    ):
        read_variable(name, environ, problem)
    if "otlp" in plan.exporters:
        sent = read(environ, problem, METRICS)
        limit = read_variable("OTEL_METRIC_EXPORT_TIMEOUT", environ, problem)
        sent = sent._replace(timeout=min(sent.timeout, limit))
    elif not local and plan.settings.prometheus is None:
        ignored = "RAY_TRACING_METRICS=1" if plan.settings.metrics else "RAY_TRACING_UTILIZATION"
        problem(
            f"{ignored} is ignored: expected otlp or local among the exporters, or RAY_TRACING_PROMETHEUS, since no "
            "other exporter accepts metrics; using no metrics."
        )
    return MetricsSettings(read_variable("OTEL_METRIC_EXPORT_INTERVAL", environ, problem), sent, local)


def is_prometheus_installed() -> bool:
    """Whether OpenTelemetry's exporter for Prometheus is installed."""
    try:
        return find_spec(_PROMETHEUS_MODULE) is not None
    except ImportError:
        return False
