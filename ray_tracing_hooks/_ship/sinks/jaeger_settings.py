"""The settings for Jaeger, from ``RAY_TRACING_JAEGER_*`` and the standard ``OTEL_EXPORTER_JAEGER_*`` variables.

Nothing heavy is imported here: a driver reads the settings to log where its spans go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult

from ray_tracing_hooks._ship.environment import JAEGER_ENDPOINT
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination
from ray_tracing_hooks._ship.sinks import otlp_settings
from ray_tracing_hooks._ship.transport.contract import Tls
from ray_tracing_hooks._standard import JAEGER, read_with_source
from ray_tracing_hooks._standard import read as read_variable
from ray_tracing_hooks._values import URL, hint, shown, without_credentials

PORTS = {"otlp-grpc": 4317, "otlp-http": 4318, "thrift-http": 14268, "thrift-udp": 6831, "grpc": 14250}
"""Jaeger's default port for each protocol."""

_OTHER_PORTS = (5775, 6832)
"""Jaeger's ports for forms of Thrift over UDP that are not supported here."""

_PATHS = {"otlp-http": "/v1/traces", "thrift-http": "/api/traces"}
_STANDARD_PORTS = {"http": 80, "https": 443}

_Problem = Callable[[str], None]


class JaegerSettings(NamedTuple):
    """The settings of a Jaeger sink.

    Attributes:
        protocol: One of :data:`PORTS`.
        target: The URL for HTTP, ``host:port`` for gRPC and UDP.
        address: The same for messages, without credentials.
        headers: Headers or metadata of each request, with names in lower case.
        timeout: Seconds for one request.
        tls: The files for TLS. None is plaintext, which matters only for gRPC.
        max_spans: The most spans per request, or None for as many as its size allows.
        delay: Seconds that spans may wait to be sent in one batch.
    """

    protocol: str
    target: str
    address: str
    headers: Mapping[str, str]
    timeout: float
    tls: Tls | None
    max_spans: int | None
    delay: float

    def __repr__(self) -> str:
        """Without headers and target, which may contain credentials."""
        return f"JaegerSettings({self.protocol}, {self.address})"


def destination(plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
    """The server or agent."""
    found = read(plan, environ, problem)
    target = found.target if found.protocol.startswith("otlp") else None
    return Destination(f"Jaeger {found.address}", (found.address,), target, addresses=(found.address,), tls=found.tls)


def read(plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> JaegerSettings:
    """The settings from the plan and ``environ``. Invalid values are reported, and a default is used instead.

    The endpoint is ``RAY_TRACING_JAEGER_ENDPOINT``, which is valid here, else ``OTEL_EXPORTER_JAEGER_ENDPOINT``, else
    ``_AGENT_HOST``, else localhost. ``_AGENT_PORT`` applies to ``thrift-udp`` alone; there ``_ENDPOINT``, which names
    no agent, applies only if nothing else is set. A port or a path that is Jaeger's default for another protocol is
    replaced by that of the protocol in use. The ``OTEL_EXPORTER_OTLP_*`` variables do not apply: their headers may
    contain the key of another backend.
    """
    protocol = plan.jaeger_protocol
    endpoint, source = _endpoint(plan, environ, problem)
    parts = otlp_settings.split(endpoint)
    scheme = "https" if parts.scheme == "https" else "http"
    host = parts.hostname or "localhost"
    place = f"{f'[{host}]' if ':' in host else host}:{_port(protocol, parts, source, problem)}"
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
    timeout, max_spans, delay = otlp_settings.limits(
        environ, problem, read_variable(JAEGER + "TIMEOUT", environ, problem)
    )
    return JaegerSettings(protocol, target, address, headers, timeout, tls, max_spans, delay)


def _endpoint(plan: ShipPlan, environ: Mapping[str, str], problem: _Problem) -> tuple[str, str]:
    """The endpoint, and the variable that it comes from."""
    source = JAEGER_ENDPOINT
    endpoint = environ.get(source)
    given, variable = read_with_source(JAEGER + "ENDPOINT", environ, problem)
    if endpoint is None and given is not None and plan.jaeger_protocol != "thrift-udp":
        endpoint, source = given, str(variable)
    if endpoint is None:
        endpoint, source = _agent(plan.jaeger_protocol, environ, problem)
    if endpoint is None and given is not None:
        # A URL of the collector gives the host of the agent, but not its port.
        endpoint, source = _bracketed(otlp_settings.split(given).hostname or ""), str(variable)
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
            parts = otlp_settings.split(URL.read(host))
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
    authorization = otlp_settings.credentials(endpoint)
    if user is not None and password is not None:
        authorization = otlp_settings.basic(user, password)
    elif user is not None or password is not None:
        given, missing = ("USER", "PASSWORD") if password is None else ("PASSWORD", "USER")
        problem(
            f"{JAEGER}{given} is ignored: expected {JAEGER}{missing} with it; using "
            f"{'the credentials of the endpoint' if authorization else 'no authentication'}."
        )
    return {"authorization": authorization} if authorization else {}
