"""The settings for SkyWalking, from ``RAY_TRACING_SKYWALKING_*`` and the variables of SkyWalking's agents.

Nothing heavy is imported here: a driver reads the settings to log where its spans go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ray_tracing_hooks._formats.skywalking import peers
from ray_tracing_hooks._formats.skywalking.peers import Identity
from ray_tracing_hooks._settings import some
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination
from ray_tracing_hooks._ship.sinks import otlp_settings
from ray_tracing_hooks._ship.transport.contract import Tls
from ray_tracing_hooks._values import hint

PREFIX = "skywalking_"

SEGMENTS_PATH = "/v3/segments"

_PORTS = {"grpc": 11800, "http": 12800}
_TIMEOUT = 10.0
_TOKEN_HEADER = "authentication"  # noqa: S105  the name of a header


class Server(NamedTuple):
    """One address of the back end: the target of a transport, the same for messages, and whether it uses TLS."""

    target: str
    address: str
    is_secure: bool


class SkyWalkingSettings(NamedTuple):
    """The settings of a SkyWalking sink.

    Attributes:
        protocol: ``sw8`` or ``sw6``.
        transport: ``grpc`` or ``http``.
        servers: The addresses of the back end; one of them is in use at a time.
        headers: Headers or metadata of each request.
        timeout: Seconds for one request.
        tls: The files for TLS.
        max_spans: The most spans per request, or None for as many as its size allows.
        delay: Seconds that spans may wait to be sent in one batch.
        names: The service, the instance, the namespace and the service of a deployment where they are set.
        service_id: The id that the service is registered with, with ``sw6``; None to register it.
        instance_id: The same for the instance.
    """

    protocol: str
    transport: str
    servers: tuple[Server, ...]
    headers: Mapping[str, str]
    timeout: float
    tls: Tls
    max_spans: int | None
    delay: float
    names: tuple[str | None, str | None, str | None, str | None]
    service_id: int | None
    instance_id: int | None

    def __repr__(self) -> str:
        """Without headers, which may contain the token."""
        return f"SkyWalkingSettings({self.protocol}, {', '.join(server.address for server in self.servers)})"

    def identity(self, resource: Mapping[str, Any]) -> Identity:
        """What SkyWalking calls the processes with this resource."""
        return peers.identity(resource, *self.names)

    def of_cluster(self, resource: Mapping[str, Any]) -> Identity:
        """The same, but for replicas of a deployment what it calls the other processes of their cluster."""
        return peers.identity(resource, *self.names[:3])


def destination(_plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
    """The back end."""
    found = read(environ, problem)
    addresses = [server.address for server in found.servers]
    return Destination(
        f"SkyWalking {', '.join(addresses)}",
        (found.protocol, *addresses),
        addresses=tuple(addresses),
        tls=found.tls,
    )


def read(environ: Mapping[str, str], problem: Callable[[str], None]) -> SkyWalkingSettings:
    """The settings from ``environ``. Invalid values are reported, and a default is used instead."""
    given = some(environ, problem, PREFIX)
    transport = "http" if given["transport"] == "http" else "grpc"
    if transport == "http" and given["protocol"] == "sw6":
        problem(
            "RAY_TRACING_SKYWALKING_TRANSPORT=http is ignored: SkyWalking 6.x and 7.x (sw6) accept segments only by "
            "gRPC; using grpc."
        )
        transport = "grpc"
    servers = tuple(_server(each, transport, given["tls"]) for each in given["endpoint"] or ("localhost",))
    tls = Tls(given["certificate"], given["client_certificate"], given["client_key"])
    if any(tls) and not any(server.is_secure for server in servers):
        hint(
            problem,
            "the certificates for SkyWalking are not used, since no address uses TLS: set RAY_TRACING_SKYWALKING_TLS=1 "
            "(SW_AGENT_FORCE_TLS), or begin the address with https://.",
        )
    token = given["token"]
    if token is not None and not token.isascii():
        problem("RAY_TRACING_SKYWALKING_TOKEN (not shown) is ignored: expected printable ASCII; using no token.")
        token = None
    of_deployment = given["deployment_service"]
    if of_deployment and given["protocol"] == "sw6":
        problem(
            "RAY_TRACING_SKYWALKING_DEPLOYMENT_SERVICE is ignored: with SkyWalking 6.x and 7.x (sw6), no process knows "
            "the ids of the services of others; the cluster is one service."
        )
        of_deployment = None
    timeout, max_spans, delay = otlp_settings.limits(environ, problem, _TIMEOUT)
    return SkyWalkingSettings(
        given["protocol"],
        transport,
        servers,
        {_TOKEN_HEADER: token} if token else {},
        timeout,
        tls,
        max_spans,
        delay,
        (given["service"], given["instance"], given["namespace"], of_deployment),
        given["service_id"],
        given["instance_id"],
    )


def _server(endpoint: str, transport: str, tls: bool) -> Server:
    if endpoint.startswith("unix:"):
        return Server(endpoint, endpoint, False)
    parts = otlp_settings.split(endpoint)
    is_secure = parts.scheme == "https" or (tls and not parts.scheme)
    host = parts.hostname or "localhost"
    place = f"{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[transport]}"
    address = f"{'https' if is_secure else 'http'}://{place}"
    if transport == "http":
        return Server(address + parts.path.rstrip("/"), address + parts.path.rstrip("/"), is_secure)
    return Server(place, address, is_secure)
