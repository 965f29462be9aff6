"""How spans are sent to Jaeger: by ``RAY_TRACING_JAEGER_*`` and the standard ``OTEL_EXPORTER_JAEGER_*`` variables.

Nothing heavy is imported here: a driver reads this to say where its spans go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sinks import otlp_settings
from ray_tracing_hooks._ship.transport import Tls
from ray_tracing_hooks._standard import JAEGER, read_with_source
from ray_tracing_hooks._standard import read as read_variable

PORTS = {"otlp-grpc": 4317, "otlp-http": 4318, "thrift-http": 14268, "thrift-udp": 6831, "grpc": 14250}
"""Jaeger's port for each protocol."""

_WELL_KNOWN = {*PORTS.values(), 5775, 6832}
_PATHS = {"otlp-http": "/v1/traces", "thrift-http": "/api/traces"}
_ENDPOINT = "RAY_TRACING_JAEGER_ENDPOINT"


class JaegerSettings(NamedTuple):
    """What a Jaeger sink is made with.

    Attributes:
        protocol: One of :data:`PORTS`.
        target: The URL for HTTP, ``host:port`` for gRPC and UDP.
        address: The same for messages, without credentials.
        headers: Headers or metadata of each request.
        timeout: Seconds for one request.
        tls: The files for TLS, or None for plaintext.
        max_spans: The most spans in one request, or None for as many as its size allows.
        delay: Seconds that spans may wait for others.
    """

    protocol: str
    target: str
    address: str
    headers: Mapping[str, str]
    timeout: float
    tls: Tls | None
    max_spans: int | None
    delay: float


def read(plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> JaegerSettings:
    """The settings that the plan and ``environ`` ask for. What is wrong is reported, and something sensible used.

    The endpoint is that of the plan, else ``OTEL_EXPORTER_JAEGER_ENDPOINT``, else ``_AGENT_HOST`` and, for
    ``thrift-udp``, ``_AGENT_PORT``, else localhost. The ``OTEL_EXPORTER_OTLP_*`` variables do not count: their headers
    may hold the key of somebody else's back end.
    """
    protocol = plan.jaeger_protocol
    endpoint, source = _endpoint(plan, environ, problem)
    parts = otlp_settings.split(endpoint)
    host = parts.hostname or "localhost"
    port = _port(protocol, parts.port, source, problem)
    scheme = parts.scheme if parts.scheme == "https" else "http"
    place = f"{f'[{host}]' if ':' in host else host}:{port}"
    tls = Tls(certificate=read_variable(JAEGER + "CERTIFICATE", environ, problem)) if scheme == "https" else None
    if protocol in _PATHS:
        # A path counts with the protocol that it was written for.
        path = parts.path if parts.path not in {"", "/"} and port == parts.port else _PATHS[protocol]
        address = f"{scheme}://{place}{path}"
        query = parts.query or ("format=jaeger.thrift" if protocol == "thrift-http" else "")
        target = address + (f"?{query}" if query else "")
        tls = tls or Tls()
    else:
        target, address = place, f"{'udp' if protocol == 'thrift-udp' else scheme}://{place}"
    timeout, max_spans, delay = otlp_settings.limits(
        environ, problem, read_variable(JAEGER + "TIMEOUT", environ, problem)
    )
    headers = _headers(protocol, endpoint, environ, problem)
    return JaegerSettings(protocol, target, address, headers, timeout, tls, max_spans, delay)


def _endpoint(plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> tuple[str, str]:
    """Where Jaeger is, and which variable says so."""
    if plan.jaeger_endpoint is not None:
        return plan.jaeger_endpoint, _ENDPOINT
    endpoint, source = read_with_source(JAEGER + "ENDPOINT", environ, problem)
    if endpoint is not None and plan.jaeger_protocol != "thrift-udp":
        return endpoint, source or ""
    host, source = read_with_source(JAEGER + "AGENT_HOST", environ, problem)
    host = host or (otlp_settings.split(endpoint).hostname if endpoint is not None else None) or "localhost"
    host = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
    if plan.jaeger_protocol == "thrift-udp":
        port = read_variable(JAEGER + "AGENT_PORT", environ, problem)
        return f"{host}:{port}" if port else host, source or ""
    return host, source or ""


def _port(protocol: str, given: int | None, source: str, problem: Callable[[str], None]) -> int:
    right = PORTS[protocol]
    if given is None or given == right:
        return right
    if given in _WELL_KNOWN and not (protocol == "thrift-udp" and given == 6832):
        problem(
            f"{source}: port {given} is Jaeger's for another protocol; spans are sent by {protocol} "
            f"(RAY_TRACING_JAEGER_PROTOCOL), so using port {right}."
        )
        return right
    return given


def _headers(
    protocol: str, endpoint: str, environ: Mapping[str, str], problem: Callable[[str], None]
) -> dict[str, str]:
    user = read_variable(JAEGER + "USER", environ, problem)
    password = read_variable(JAEGER + "PASSWORD", environ, problem)
    if (user is None) != (password is None):
        given, missing = ("USER", "PASSWORD") if password is None else ("PASSWORD", "USER")
        problem(f"{JAEGER}{given} is ignored: expected {JAEGER}{missing} with it; using no authentication.")
        user = password = None
    if protocol == "thrift-udp":
        return {}
    authorization = otlp_settings.credentials(endpoint)
    if user is not None and password is not None:
        authorization = otlp_settings.basic(user, password)
    return {"authorization": authorization} if authorization else {}
