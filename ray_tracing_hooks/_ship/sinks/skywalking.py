"""SkyWalking: each span as a segment, by protocol 3 over gRPC or HTTP, or by protocol 2."""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.encoded_span.decode import Scope, decode_resource, decode_scope, decode_span
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._formats.protobuf import FormatError, fields
from ray_tracing_hooks._formats.skywalking import segments, v2, v3
from ray_tracing_hooks._formats.skywalking.peers import REGISTERED, Identity, registered_in
from ray_tracing_hooks._formats.skywalking.segments import Generation, Pair, Segment
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Surroundings
from ray_tracing_hooks._ship.sinks import skywalking_settings
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink
from ray_tracing_hooks._ship.sinks.skywalking_settings import SEGMENTS_PATH, Server, SkyWalkingSettings
from ray_tracing_hooks._ship.transport.contract import Refused, Tls, Transport

HEARTBEAT_SECONDS = 30.0
"""How often an instance says that it is there. SkyWalking's Python agent does so as often."""

_PROPERTIES_EACH = 10
"""It says what it is with the first heartbeat and with each tenth one."""

_COLLECT_3 = "/skywalking.v3.TraceSegmentReportService/collect"
_PROPERTIES_3 = "/skywalking.v3.ManagementService/reportInstanceProperties"
_PING_3 = "/skywalking.v3.ManagementService/keepAlive"
_PROPERTIES_PATH, _PING_PATH = "/v3/management/reportProperties", "/v3/management/keepAlive"
_COLLECT_2 = "/TraceSegmentReportService/collect"
_SERVICE_2, _INSTANCE_2 = "/Register/doServiceRegister", "/Register/doServiceInstanceRegister"
_PING_2 = "/ServiceInstancePing/doPing"

_BUSY = ("HTTP 500", "RESOURCE_EXHAUSTED", "UNKNOWN")
"""The responses of a back end with a problem of its own: it accepts segments that it cannot read, and drops them."""

_WRONG_TOKEN = ("PERMISSION_DENIED", "UNAUTHENTICATED", "HTTP 401", "HTTP 403")

_INSTANCES = uuid.UUID("9f0c4b4e-54f5-4f8b-9a7e-0b6d1f7c2f4b")
"""The namespace of the ids of instances: each node of a cluster registers the same one."""

Call = Callable[[str, bytes], bytes]
"""Sends one request to a method or path of the server in use, and returns its answer."""

Properties = Callable[[Identity], "list[Pair]"]
"""What SkyWalking shows of an instance."""


def make(surroundings: Surroundings) -> SkyWalkingSink:
    """The sink for the settings."""
    settings = skywalking_settings.read(surroundings.environ, surroundings.problem)
    if settings.protocol == "sw6":
        return SkyWalkingSink(settings, surroundings, Version2)
    return SkyWalkingSink(settings, surroundings, Version3Http if settings.transport == "http" else Version3)


class Version(Protocol):
    """A protocol of SkyWalking. The sink and its heartbeat share one object.

    Attributes:
        collect: The method or path that takes segments.
    """

    collect: str

    def know(self, call: Call, identity: Identity) -> Generation:
        """Ensure that the back end knows this instance; returns how its spans become segments.

        Raises DeliveryError, Refused.
        """

    def encode(self, segment: Segment, generation: Generation) -> bytes: ...

    def join(self, encoded: Iterable[bytes]) -> bytes:
        """The body of a request."""

    def beat(self, call: Call, identity: Identity, *, whole: bool) -> None:
        """Tell the back end that this instance is there, and what it is if ``whole``. Raises as above."""

    def state(self) -> Mapping[str, Any]:
        """What a later shipper, and the processes whose spans are sent, want to know of it."""


class Version3:
    """Protocol 3 over gRPC."""

    collect = _COLLECT_3

    def __init__(self, settings: SkyWalkingSettings, properties: Properties, state: Mapping[str, Any]) -> None:
        self._properties = properties

    def know(self, call: Call, identity: Identity) -> Generation:
        return segments.OF_8  # segments of unknown instances are accepted

    def encode(self, segment: Segment, generation: Generation) -> bytes:
        return v3.segment(segment)

    def join(self, encoded: Iterable[bytes]) -> bytes:
        return v3.collection(encoded)

    def beat(self, call: Call, identity: Identity, *, whole: bool) -> None:
        if whole:
            call(_PROPERTIES_3, v3.instance_properties(identity, self._properties(identity)))
        call(_PING_3, v3.ping(identity))

    def state(self) -> Mapping[str, Any]:
        return {}


class Version3Http(Version3):
    """The same over HTTP, in JSON."""

    collect = SEGMENTS_PATH

    def encode(self, segment: Segment, generation: Generation) -> bytes:
        return v3.segment_json(segment)

    def join(self, encoded: Iterable[bytes]) -> bytes:
        return v3.collection_json(encoded)

    def beat(self, call: Call, identity: Identity, *, whole: bool) -> None:
        if whole:
            call(_PROPERTIES_PATH, v3.instance_properties_json(identity, self._properties(identity)))
        call(_PING_PATH, v3.ping_json(identity))


class Version2:
    """Protocol 2 over gRPC. The back end gives out ids some time after it was asked to."""

    collect = _COLLECT_2

    def __init__(self, settings: SkyWalkingSettings, properties: Properties, state: Mapping[str, Any]) -> None:
        self._properties = properties
        self._service_id, self._instance_id = settings.service_id or 0, settings.instance_id or 0
        self._known = registered_in(state)

    def know(self, call: Call, identity: Identity) -> Generation:
        known = self._known.get(identity)
        if known is None:
            service_id, instance_id = self._service_id, self._instance_id
            if not service_id:
                service_id = _registered(call, _SERVICE_2, v2.services(identity.service), identity.service)
            if not instance_id:
                # Of these two it makes the name that it shows.
                told = [*self._properties(identity), ("host_name", identity.instance), ("process_no", "1")]
                body = v2.instances(service_id, _uuid(identity), _now_ms(), told)
                instance_id = _registered(call, _INSTANCE_2, body, _uuid(identity))
            known = self._known[identity] = service_id, instance_id
        return Generation(True, *known)

    def encode(self, segment: Segment, generation: Generation) -> bytes:
        return v2.upstream_segment(segment, generation.service_id, generation.instance_id)

    def join(self, encoded: Iterable[bytes]) -> bytes:
        return v3.collection(encoded)  # cut into its parts again, as a stream

    def beat(self, call: Call, identity: Identity, *, whole: bool) -> None:
        known = self.know(call, identity)
        answer = call(_PING_2, v2.ping(known.instance_id, _now_ms(), _uuid(identity)))
        if v2.RESET in v2.commands(answer) and not self._instance_id:
            # The storage of the back end is a new one.
            self._known.pop(identity, None)

    def state(self) -> Mapping[str, Any]:
        return {REGISTERED: [[*identity, *ids] for identity, ids in self._known.items()]}


def _registered(call: Call, method: str, body: bytes, key: str) -> int:
    try:
        found = v2.given_id(call(method, body), key)
    except FormatError as error:
        raise DeliveryError(f"the answer of SkyWalking to a registration cannot be read: {error}") from None
    if not found:
        raise DeliveryError("SkyWalking has not registered this service yet")
    return found


class SkyWalkingSink(SendingSink):
    """Sends segments to one of the servers, and to the next one if it cannot be reached."""

    def __init__(
        self,
        settings: SkyWalkingSettings,
        surroundings: Surroundings,
        version: Callable[[SkyWalkingSettings, Properties, Mapping[str, Any]], Version],
    ) -> None:
        self._servers = _Servers(settings)
        self._version = version(settings, self._told, surroundings.state)
        super().__init__(surroundings, _Collecting(self._servers, self._version.collect), settings.delay)
        self._settings = settings
        self._max_spans = settings.max_spans
        self._resources: dict[Identity, dict[str, Any]] = {}
        self._generations: dict[Identity, Generation] = {}
        self._heartbeat = _Heartbeat(_Servers(settings), self._version)

    def deliver(self, batches: Sequence[Batch]) -> None:
        for resource in {batch.resource for batch in batches}:
            identity = self._identity(resource)
            try:
                self._generations[identity] = self._version.know(self._servers.call, identity)
            except Refused as refusal:
                raise DeliveryError(f"{self._transport.address} refuses to register: {refusal.reason}") from None
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
            identity, scope = self._identity(group.resource), _scope(group.scope)
            generation = self._generations[identity]
            for span in group.spans:
                try:
                    made = segments.segment(decode_span(span), scope, identity, generation)
                    encoded.append(self._version.encode(made, generation))
                except (ValueError, OverflowError, RecursionError, struct.error):  # malformed, or numbers out of range
                    bad += 1
        self._lose("{count} spans could not be decoded and were skipped", bad)
        return encoded

    def _identity(self, resource: bytes) -> Identity:
        attributes = _resource(resource)
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

    def __init__(self, settings: SkyWalkingSettings) -> None:
        self._settings = settings
        self._index = 0
        self._transports: dict[str, Transport] = {}

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def _server(self) -> Server:
        return self._settings.servers[self._index]

    def call(self, method: str, body: bytes) -> bytes:
        """Send a request. Raises Refused, DeliveryError."""
        transport = self._transports.get(method)
        if transport is None:
            transport = self._transports[method] = self._connect(method)
        try:
            return transport.send(body)
        except DeliveryError:
            if len(self._settings.servers) > 1:
                self.close()
                self._index = (self._index + 1) % len(self._settings.servers)
            raise

    def close(self) -> None:
        for transport in self._transports.values():
            transport.close()
        self._transports = {}

    def _connect(self, method: str) -> Transport:
        settings, server = self._settings, self._server
        # Only the library that is needed is imported.
        if settings.transport == "http":
            from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

            return HttpTransport(
                server.target + method,
                address=server.address,
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
            headers=settings.headers,
            timeout=settings.timeout,
            gzip=False,
            tls=settings.tls if server.is_secure else None,
            parts=_parts if method in (_COLLECT_3, _COLLECT_2) else None,
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
        except Refused as refusal:
            if refusal.reason.startswith(_WRONG_TOKEN):
                # It refuses everything, and nothing is at fault that would be lost.
                raise DeliveryError(f"{self.address} refuses the token: {refusal.reason}") from None
            if refusal.too_large or not refusal.reason.startswith(_BUSY):
                raise
            raise DeliveryError(f"{self.address} does not accept spans at present: {refusal.reason}") from None
        finally:
            self.address = self._servers.address  # it may be another one now


def _parts(collection: bytes) -> list[bytes]:
    """The segments of a collection: each agent sends them as a stream, and every back end takes that."""
    return [segment for _, segment in fields(collection)]


def _uuid(identity: Identity) -> str:
    return uuid.uuid5(_INSTANCES, "\0".join(identity)).hex


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=1024)
def _resource(resource: bytes) -> dict[str, Any]:
    try:
        return decode_resource(resource)
    except FormatError:
        return {}


@lru_cache(maxsize=1024)
def _scope(scope: bytes) -> Scope:
    try:
        return decode_scope(scope)
    except FormatError:
        return Scope("", "", {})
