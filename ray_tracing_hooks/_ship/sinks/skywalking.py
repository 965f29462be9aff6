"""SkyWalking: each span as a segment, by protocol 3 over gRPC or HTTP, or by protocol 2.

The settings are ``RAY_TRACING_SKYWALKING_*`` and the variables of SkyWalking's agents. A driver reads them to log where
its spans go, so nothing heavy is imported here.
"""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._formats.otlp import TRACES, Group
from ray_tracing_hooks._formats.protobuf import FormatError, fields
from ray_tracing_hooks._formats.skywalking import headers, messages, segments
from ray_tracing_hooks._formats.skywalking.headers import REGISTERED, Identity, registered_in
from ray_tracing_hooks._formats.skywalking.segments import Generation, Pair, Segment
from ray_tracing_hooks._settings.table import from_variables
from ray_tracing_hooks._settings.values import hint
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Destination, RefusesAllError, SinkContext, Tls
from ray_tracing_hooks._ship.sinks import otlp as otlp_sink
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink, resource_of, scope_of
from ray_tracing_hooks._ship.sinks.skywalking_settings import Settings
from ray_tracing_hooks._ship.transport.contract import Refused, ServerSettings, Transport

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
        servers: The addresses of the back end; one of them is in use at a time.
        timeout: Seconds for one request.
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
        return headers.identity(resource, *self.names)

    def of_cluster(self, resource: Mapping[str, Any]) -> Identity:
        """The same, but for replicas of a deployment what it calls the other processes of their cluster."""
        return headers.identity(resource, *self.names[:3])


def destination(_plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
    """The back end."""
    found = read(environ, problem)
    addresses = [server.address for server in found.servers]
    return Destination(
        f"SkyWalking {', '.join(addresses)}",
        (found.protocol, *addresses),
    )


def read(environ: Mapping[str, str], problem: Callable[[str], None]) -> SkyWalkingSettings:
    """The settings from ``environ``. Invalid values are reported, and a default is used instead."""
    given = from_variables(Settings, environ, problem)
    transport = "http" if given.transport == "http" else "grpc"
    if transport == "http" and given.protocol == "sw6":
        problem(
            "RAY_TRACING_SKYWALKING_TRANSPORT=http is ignored: SkyWalking 6.x and 7.x (sw6) accept segments only by "
            "gRPC; using grpc."
        )
        transport = "grpc"
    servers = tuple(_server(each, transport, given.tls) for each in given.endpoint or ("localhost",))
    tls = Tls(given.certificate, given.client_certificate, given.client_key)
    if any(tls) and not any(server.is_secure for server in servers):
        hint(
            problem,
            "the certificates for SkyWalking are not used, since no address uses TLS: set RAY_TRACING_SKYWALKING_TLS=1 "
            "(SW_AGENT_FORCE_TLS), or begin the address with https://.",
        )
    token = given.token
    if token is not None and not token.isascii():
        problem("RAY_TRACING_SKYWALKING_TOKEN (not shown) is ignored: expected printable ASCII; using no token.")
        token = None
    of_deployment = given.deployment_service
    if of_deployment and given.protocol == "sw6":
        problem(
            "RAY_TRACING_SKYWALKING_DEPLOYMENT_SERVICE is ignored: with SkyWalking 6.x and 7.x (sw6), no process knows "
            "the ids of the services of others; the cluster is one service."
        )
        of_deployment = None
    timeout, max_spans, delay = otlp_sink.limits(environ, problem, _TIMEOUT)
    return SkyWalkingSettings(
        given.protocol,
        transport,
        servers,
        {_TOKEN_HEADER: token} if token else {},
        timeout,
        tls,
        max_spans,
        delay,
        (given.service, given.instance, given.namespace, of_deployment),
        given.service_id,
        given.instance_id,
    )


def _server(endpoint: str, transport: str, tls: bool) -> Server:
    if endpoint.startswith("unix:"):
        return Server(endpoint, endpoint, False)
    parts = otlp_sink.split(endpoint)
    is_secure = parts.scheme == "https" or (tls and not parts.scheme)
    place = f"{otlp_sink.host_of(parts)}:{parts.port or _PORTS[transport]}"
    address = f"{'https' if is_secure else 'http'}://{place}"
    if transport == "http":
        return Server(address + parts.path.rstrip("/"), address + parts.path.rstrip("/"), is_secure)
    return Server(place, address, is_secure)


HEARTBEAT_SECONDS = 30.0
"""How often an instance says that it is there. SkyWalking's Python agent does so as often."""

_PROPERTIES_EACH = 10
"""It says what it is with the first heartbeat and with each tenth one."""


SIGNALS = frozenset({TRACES})


def make(context: SinkContext) -> SkyWalkingSink:
    """The sink for the settings."""
    settings = read(context.environ, context.problem)
    if settings.protocol == "sw6":
        return SkyWalkingSink(settings, context, Version2)
    return SkyWalkingSink(settings, context, Version3Http if settings.transport == "http" else Version3)


class SkyWalkingSink(SendingSink):
    """Sends segments to one of the servers, and to the next one if it cannot be reached."""

    def __init__(
        self,
        settings: SkyWalkingSettings,
        context: SinkContext,
        version: type[Version3],
    ) -> None:
        self._version = version(settings, self._properties_of, context.state)
        self._servers = _Servers(settings, self._version)
        super().__init__(context, self._servers, settings.delay)
        self._settings = settings
        self._max_spans = settings.max_spans
        self._resources: dict[Identity, Mapping[str, Any]] = {}
        self._generations: dict[Identity, Generation] = {}
        self._heartbeat = _Heartbeat(_Servers(settings, self._version), self._version)

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

    def _properties_of(self, identity: Identity) -> list[Pair]:
        return segments.properties(self._resources.get(identity, {}))


class _Heartbeat:
    """Tells the back end now and then that the instances are there. It does not matter if some do not arrive."""

    def __init__(self, servers: _Servers, version: Version3) -> None:
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
    """The transports to the methods of the server in use. After a failure the next server is in use.

    It is itself a transport: of segments.
    """

    def __init__(self, settings: SkyWalkingSettings, version: Version3) -> None:
        self._settings = settings
        self._version = version
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

    def send(self, body: bytes) -> bytes:
        return self.call(self._version.collect, body)

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
                message = f"{self.address} does not accept segments: {reason}; {self._version.hint}"
                raise RefusesAllError(message, f"{reason}; {self._version.hint}") from None
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
        tls = settings.tls if server.is_secure else None
        reached = ServerSettings(
            settings.transport, server.target, server.address, settings.headers, settings.timeout, tls
        )
        if settings.transport == "http":
            from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

            return HttpTransport(
                reached._replace(target=server.target + method), "application/json", over_grpc="TRANSPORT=grpc"
            )
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        parts = _parts if method in (COLLECT_3, COLLECT_2) else None
        return GrpcTransport(reached, method, parts, over_http="TRANSPORT=http")


def _parts(collection: bytes) -> list[bytes]:
    """The segments of a collection: each agent sends them as a stream, and every back end takes that."""
    return [segment for _, segment in fields(collection)]


SEGMENTS_PATH = "/v3/segments"

COLLECT_3 = "/skywalking.v3.TraceSegmentReportService/collect"
_PROPERTIES_3 = "/skywalking.v3.ManagementService/reportInstanceProperties"
_PING_3 = "/skywalking.v3.ManagementService/keepAlive"
_PROPERTIES_PATH, _PING_PATH = "/v3/management/reportProperties", "/v3/management/keepAlive"
COLLECT_2 = "/TraceSegmentReportService/collect"
_SERVICE_2, _INSTANCE_2 = "/Register/doServiceRegister", "/Register/doServiceInstanceRegister"
_PING_2 = "/ServiceInstancePing/doPing"

_INSTANCES = uuid.UUID("9f0c4b4e-54f5-4f8b-9a7e-0b6d1f7c2f4b")
"""The namespace of the ids of instances: each node of a cluster registers the same one."""

Call = Callable[[str, bytes], bytes]
"""Sends one request to a method or path of the server in use, and returns its answer."""

Properties = Callable[[Identity], "list[Pair]"]
"""What SkyWalking shows of an instance."""


class Version3:
    """Protocol 3 over gRPC. The sink and its heartbeat share one object.

    Attributes:
        collect: The method or path that takes segments.
        hint: What may be wrong with a back end that does not know it.
    """

    collect = COLLECT_3
    _reports, _keeps_alive = _PROPERTIES_3, _PING_3
    _write = staticmethod(messages.encoded)
    hint = "is it SkyWalking 6.x or 7.x, which is RAY_TRACING_SKYWALKING_PROTOCOL=sw6?"

    def __init__(self, settings: SkyWalkingSettings, properties: Properties, state: Mapping[str, Any]) -> None:
        self._properties = properties

    def know(self, call: Call, identity: Identity) -> Generation:
        """Ensure that the back end knows this instance; returns how its spans become segments.

        Raises DeliveryError, Refused.
        """
        return segments.OF_8  # segments of unknown instances are accepted

    def encode(self, segment: Segment, generation: Generation) -> bytes:
        return self._write(messages.segment(segment))

    def join(self, encoded: Iterable[bytes]) -> bytes:
        """The body of a request, which is cut into its parts again: a stream of them."""
        return messages.collection(encoded)

    def beat(self, call: Call, identity: Identity, *, whole: bool) -> None:
        """Tell the back end that this instance is there, and what it is if ``whole``. Raises as above."""
        if whole:
            call(self._reports, self._write(messages.instance_properties(identity, self._properties(identity))))
        call(self._keeps_alive, self._write(messages.ping(identity)))

    def state(self) -> Mapping[str, Any]:
        """What a later shipper, and the processes whose spans are sent, want to know of it."""
        return {}


class Version3Http(Version3):
    """The same over HTTP, in JSON."""

    collect = SEGMENTS_PATH
    _reports, _keeps_alive = _PROPERTIES_PATH, _PING_PATH
    _write = staticmethod(messages.as_json)
    hint = "is this the port and path of its HTTP API, and is it SkyWalking 8.0 or newer?"

    def join(self, encoded: Iterable[bytes]) -> bytes:
        return messages.collection_json(encoded)


class Version2(Version3):
    """Protocol 2 over gRPC. The back end gives out ids some time after it was asked to."""

    collect = COLLECT_2
    hint = "is it SkyWalking 8.0 or newer, which is RAY_TRACING_SKYWALKING_PROTOCOL=sw8?"

    def __init__(self, settings: SkyWalkingSettings, properties: Properties, state: Mapping[str, Any]) -> None:
        super().__init__(settings, properties, state)
        self._service_id, self._instance_id = settings.service_id or 0, settings.instance_id or 0
        self._known = registered_in(state)

    def know(self, call: Call, identity: Identity) -> Generation:
        known = self._known.get(identity)
        if known is None:
            service_id, instance_id = self._service_id, self._instance_id
            if not service_id:
                service_id = _registered(call, _SERVICE_2, messages.services(identity.service), identity.service)
            if not instance_id:
                # Of these two it makes the name that it shows.
                properties = [*self._properties(identity), ("host_name", identity.instance), ("process_no", "1")]
                body = messages.instances(service_id, _uuid(identity), _now_ms(), properties)
                instance_id = _registered(call, _INSTANCE_2, body, _uuid(identity))
            known = self._known[identity] = service_id, instance_id
        return Generation(True, *known)

    def encode(self, segment: Segment, generation: Generation) -> bytes:
        return messages.upstream_segment(segment, generation.service_id, generation.instance_id)

    def beat(self, call: Call, identity: Identity, *, whole: bool) -> None:
        known = self.know(call, identity)
        answer = call(_PING_2, messages.ping_of_6(known.instance_id, _now_ms(), _uuid(identity)))
        if messages.RESET in messages.commands(answer) and not self._instance_id:
            # The storage of the back end is a new one.
            self._known.pop(identity, None)

    def state(self) -> Mapping[str, Any]:
        known = list(self._known.items())  # at once, since the heartbeat may remove one
        return {REGISTERED: [[*identity, *ids] for identity, ids in known]}


def _registered(call: Call, method: str, body: bytes, key: str) -> int:
    try:
        found = messages.given_id(call(method, body), key)
    except FormatError as error:
        raise DeliveryError(f"the answer of SkyWalking to a registration cannot be read: {error}") from None
    if not found:
        raise DeliveryError("SkyWalking has not registered this service yet")
    return found


def _uuid(identity: Identity) -> str:
    return uuid.uuid5(_INSTANCES, "\0".join(identity)).hex


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
