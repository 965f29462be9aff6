"""SkyWalking: each span as a segment, by protocol 3 over gRPC or HTTP, or by protocol 2.

The settings are ``RAY_TRACING_SKYWALKING_*`` and the variables of SkyWalking's agents. A driver reads them to log where
its spans go, so nothing heavy is imported here.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._formats.protobuf import FormatError, fields
from ray_tracing_hooks._formats.signals import TRACES
from ray_tracing_hooks._formats.skywalking import peers, segments
from ray_tracing_hooks._formats.skywalking.peers import Identity
from ray_tracing_hooks._formats.skywalking.segments import Generation, Pair
from ray_tracing_hooks._settings import some
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Destination, RefusesAllError, Surroundings
from ray_tracing_hooks._ship.sinks import otlp as otlp_sink
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink, resource_of, scope_of
from ray_tracing_hooks._ship.sinks.skywalking_versions import (
    COLLECT_2,
    COLLECT_3,
    Properties,
    Version,
    Version2,
    Version3,
    Version3Http,
)
from ray_tracing_hooks._ship.transport.contract import Refused, Tls, Transport
from ray_tracing_hooks._values import hint

PREFIX = "skywalking_"

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
    timeout, max_spans, delay = otlp_sink.limits(environ, problem, _TIMEOUT)
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
    parts = otlp_sink.split(endpoint)
    is_secure = parts.scheme == "https" or (tls and not parts.scheme)
    host = parts.hostname or "localhost"
    place = f"{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[transport]}"
    address = f"{'https' if is_secure else 'http'}://{place}"
    if transport == "http":
        return Server(address + parts.path.rstrip("/"), address + parts.path.rstrip("/"), is_secure)
    return Server(place, address, is_secure)


HEARTBEAT_SECONDS = 30.0
"""How often an instance says that it is there. SkyWalking's Python agent does so as often."""

_PROPERTIES_EACH = 10
"""It says what it is with the first heartbeat and with each tenth one."""


SIGNALS = frozenset({TRACES})


def make(surroundings: Surroundings) -> SkyWalkingSink:
    """The sink for the settings."""
    settings = read(surroundings.environ, surroundings.problem)
    if settings.protocol == "sw6":
        return SkyWalkingSink(settings, surroundings, Version2)
    return SkyWalkingSink(settings, surroundings, Version3Http if settings.transport == "http" else Version3)


class SkyWalkingSink(SendingSink):
    """Sends segments to one of the servers, and to the next one if it cannot be reached."""

    def __init__(
        self,
        settings: SkyWalkingSettings,
        surroundings: Surroundings,
        version: Callable[[SkyWalkingSettings, Properties, Mapping[str, Any]], Version],
    ) -> None:
        self._version = version(settings, self._told, surroundings.state)
        self._servers = _Servers(settings, self._version.hint)
        super().__init__(surroundings, _Collecting(self._servers, self._version.collect), settings.delay)
        self._settings = settings
        self._max_spans = settings.max_spans
        self._resources: dict[Identity, Mapping[str, Any]] = {}
        self._generations: dict[Identity, Generation] = {}
        self._heartbeat = _Heartbeat(_Servers(settings, self._version.hint), self._version)

    def deliver(self, batches: Sequence[Batch]) -> None:
        for resource in {batch.resource for batch in batches}:
            identity = self._identity(resource)
            try:
                self._generations[identity] = self._version.know(self._servers.call, identity)
            except Refused as refusal:
                raise DeliveryError(f"{self._servers.address} refuses to register: {refusal.reason}") from None
            self._heartbeat.add(identity)
        super().deliver(batches)

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        # Encode here, so that sizes are exact, and only once however often a request is retried.
        return otlp.cut([Group(b"", b"", self._encoded(groups))], REQUEST_BYTES, self._max_spans)

    def encode(self, groups: Sequence[Group]) -> bytes:
        return self._version.join(span for group in groups for span in group.spans)

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        """An answer may have commands, which are for agents that run inside of the program."""

    def checkpoint(self) -> Mapping[str, Any]:
        return self._version.state()

    def close(self) -> None:
        self._heartbeat.close()
        super().close()

    def _encoded(self, groups: Sequence[Group]) -> list[bytes]:
        encoded: list[bytes] = []
        bad = 0
        for group in groups:
            identity, scope = self._identity(group.resource), scope_of(group.scope)
            of_cluster = self._settings.of_cluster(self._resources[identity])
            cluster = of_cluster if of_cluster != identity else None
            generation = self._generations[identity]
            for span in group.spans:
                try:
                    made = segments.segment(decode_span(span), scope, identity, generation, cluster)
                    encoded.append(self._version.encode(made, generation))
                except (ValueError, OverflowError, RecursionError, struct.error):  # malformed, or numbers out of range
                    bad += 1
        self._lose("{count} spans could not be decoded and were skipped", bad)
        return encoded

    def _identity(self, resource: bytes) -> Identity:
        attributes = resource_of(resource)
        identity = self._settings.identity(attributes)
        self._resources.setdefault(identity, attributes)
        return identity

    def _told(self, identity: Identity) -> list[Pair]:
        return segments.properties(self._resources.get(identity, {}))


class _Heartbeat:
    """Tells the back end now and then that the instances are there. It does not matter if some do not arrive."""

    def __init__(self, servers: _Servers, version: Version) -> None:
        self._servers, self._version = servers, version
        self._identities: tuple[Identity, ...] = ()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, identity: Identity) -> None:
        if identity in self._identities:
            return
        self._identities += (identity,)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="skywalking-heartbeat", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._servers.close()
        if self._thread is not None:
            self._thread.join(timeout=1)

    def _run(self) -> None:
        try:
            self._beat()
        finally:
            self._servers.close()  # it may have connected since `close`

    def _beat(self) -> None:
        beats = 0
        while not self._closing.is_set():
            for identity in self._identities:
                try:
                    self._version.beat(self._servers.call, identity, whole=beats % _PROPERTIES_EACH == 0)
                except (DeliveryError, Refused, FormatError, ValueError):  # a closed channel raises the last
                    continue
            beats += 1
            self._closing.wait(HEARTBEAT_SECONDS)


class _Servers:
    """The transports to the methods of the server in use. After a failure the next server is in use."""

    def __init__(self, settings: SkyWalkingSettings, hint: str) -> None:
        self._settings = settings
        self._hint = hint
        self._index = 0
        # Another thread than the one that calls may close.
        self._lock = threading.Lock()
        self._transports: dict[str, Transport] = {}

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def _server(self) -> Server:
        return self._settings.servers[self._index]

    def call(self, method: str, body: bytes) -> bytes:
        """Send a request. Raises Refused if this request is at fault, DeliveryError if none would be accepted."""
        with self._lock:
            transport = self._transports.get(method)
            if transport is None:
                transport = self._transports[method] = self._connect(method)
        try:
            return self._send(transport, body)
        except DeliveryError:
            if len(self._settings.servers) > 1:
                self.close()
                self._index = (self._index + 1) % len(self._settings.servers)
            raise

    def _send(self, transport: Transport, body: bytes) -> bytes:
        try:
            return transport.send(body)
        except Refused as refusal:
            # A server that refuses everything for one of these reasons must not cost the spans.
            reason = refusal.reason
            if refusal.credentials:
                raise RefusesAllError(f"{self.address} refuses the token: {reason}", reason) from None
            if refusal.method:
                message = f"{self.address} does not accept segments: {reason}; {self._hint}"
                raise RefusesAllError(message, f"{reason}; {self._hint}") from None
            # Segments that a back end cannot read it accepts, and drops.
            if refusal.transient:
                raise DeliveryError(f"{self.address} does not accept spans at present: {reason}") from None
            raise

    def close(self) -> None:
        with self._lock:
            transports, self._transports = self._transports, {}
        for transport in transports.values():
            transport.close()

    def _connect(self, method: str) -> Transport:
        settings, server = self._settings, self._server
        # Only the library that is needed is imported.
        if settings.transport == "http":
            from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

            return HttpTransport(
                server.target + method,
                address=server.address,
                over_grpc="TRANSPORT=grpc",
                content_type="application/json",
                headers=settings.headers,
                timeout=settings.timeout,
                gzip=False,
                tls=settings.tls if server.is_secure else Tls(),
            )
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(
            server.target,
            method,
            address=server.address,
            over_http="TRANSPORT=http",
            headers=settings.headers,
            timeout=settings.timeout,
            gzip=False,
            tls=settings.tls if server.is_secure else None,
            parts=_parts if method in (COLLECT_3, COLLECT_2) else None,
        )


class _Collecting:
    """The transport of segments."""

    def __init__(self, servers: _Servers, method: str) -> None:
        self._servers, self._method = servers, method
        self.close = servers.close
        self.address = servers.address

    def send(self, body: bytes) -> bytes:
        try:
            return self._servers.call(self._method, body)
        finally:
            self.address = self._servers.address  # it may be another one now


def _parts(collection: bytes) -> list[bytes]:
    """The segments of a collection: each agent sends them as a stream, and every back end takes that."""
    return [segment for _, segment in fields(collection)]
