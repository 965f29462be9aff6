"""SkyWalking's protocols, as far as the exporter uses them: how it registers, sends segments, and says it is there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._formats.skywalking import segments, v2, v3
from ray_tracing_hooks._formats.skywalking.peers import REGISTERED, Identity, registered_in
from ray_tracing_hooks._formats.skywalking.segments import Generation, Pair, Segment
from ray_tracing_hooks._ship.sink import DeliveryError

if TYPE_CHECKING:
    from ray_tracing_hooks._ship.sinks.skywalking import SkyWalkingSettings

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


class Version(Protocol):
    """A protocol of SkyWalking. The sink and its heartbeat share one object.

    Attributes:
        collect: The method or path that takes segments.
        hint: What may be wrong with a back end that does not know it.
    """

    collect: str
    hint: str

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

    collect = COLLECT_3
    hint = "is it SkyWalking 6.x or 7.x, which is RAY_TRACING_SKYWALKING_PROTOCOL=sw6?"

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
    hint = "is this the port and path of its HTTP API, and is it SkyWalking 8.0 or newer?"

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

    collect = COLLECT_2
    hint = "is it SkyWalking 8.0 or newer, which is RAY_TRACING_SKYWALKING_PROTOCOL=sw8?"

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
        known = list(self._known.items())  # at once, since the heartbeat may remove one
        return {REGISTERED: [[*identity, *ids] for identity, ids in known]}


def _registered(call: Call, method: str, body: bytes, key: str) -> int:
    try:
        found = v2.given_id(call(method, body), key)
    except FormatError as error:
        raise DeliveryError(f"the answer of SkyWalking to a registration cannot be read: {error}") from None
    if not found:
        raise DeliveryError("SkyWalking has not registered this service yet")
    return found


def _uuid(identity: Identity) -> str:
    return uuid.uuid5(_INSTANCES, "\0".join(identity)).hex


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
