"""SkyWalking's own message definitions, and a back end that reads with them what arrives. None of their text is here.

Those of protocol 3 are in the package of SkyWalking's Python agent, those of protocol 2 in ``python2sky``, an agent for
6.x whose code is too old to run with the protobuf of today. Both are in the folder ``skywalking`` of the tests'
environment, without what they depend on.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import trustme
from http_server import Answer, Request, http_server
from protobuf_json import generated

PACKAGES = Path(sys.prefix) / "skywalking"

COLLECT_3 = "/skywalking.v3.TraceSegmentReportService/collect"
PROPERTIES_3 = "/skywalking.v3.ManagementService/reportInstanceProperties"
PING_3 = "/skywalking.v3.ManagementService/keepAlive"
COLLECT_2 = "/TraceSegmentReportService/collect"
SERVICE_2, INSTANCE_2 = "/Register/doServiceRegister", "/Register/doServiceInstanceRegister"
PING_2 = "/ServiceInstancePing/doPing"


@cache
def _messages(package: str) -> Callable[[str], Any]:
    return generated(PACKAGES / package)


def of_3(name: str) -> Any:
    """The class of a message of protocol 3."""
    return _messages("skywalking/protocol")(f"skywalking.v3.{name}")


def of_2(name: str) -> Any:
    """The class of a message of protocol 2."""
    return _messages("python2sky/proto")(name)


def read(message: Any, encoded: bytes) -> Any:
    """The message, all of which its definition knows."""
    found = message.FromString(encoded)
    assert found.SerializeToString(deterministic=True) == encoded
    return found


def read_upstream(encoded: bytes) -> tuple[str, Any]:
    """The trace id in an ``UpstreamSegment``, and its segment."""
    upstream = read(of_2("UpstreamSegment"), encoded)
    return unique_id(upstream.globalTraceIds[0]), read(of_2("SegmentObject"), upstream.segment)


def unique_id(found: Any) -> str:
    return ".".join(map(str, found.idParts))


class Backend:
    """A back end for both protocols by gRPC.

    Attributes:
        segments: The encoded segments, in the order of their arrival.
        told: The methods and requests of heartbeats and registrations, as they arrive.
        ids: The ids of services by protocol 2; an instance has three times that of its service.
        reset: Whether it has lost its storage, and gives out other ids of instances from the next ping on.
        token: What the metadata has to have.
        codes: The codes of the next answers to segments.

    ``name`` is the name in its certificate. It may ask its clients for one of the same authority. With ``only``, it has
    no method but this one.
    """

    def __init__(
        self,
        port: int = 0,
        token: str = "",
        authority: trustme.CA | None = None,
        registers_after: int = 0,
        *,
        name: str = "localhost",
        asks_for_certificate: bool = False,
        only: str = "",
    ) -> None:
        self.segments: list[bytes] = []
        self.told: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.ids: dict[str, int] = {}
        self.token = token
        self.codes: list[grpc.StatusCode] = []
        self.only = only
        self.arrived = threading.Condition()
        self._not_yet = registers_after
        self.reset = False
        self.storages = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        address = f"localhost:{port}"
        if authority is None:
            self.port = self._server.add_insecure_port(address)
        else:
            issued = authority.issue_cert(name)
            pair = issued.private_key_pem.bytes(), b"".join(pem.bytes() for pem in issued.cert_chain_pems)
            trusted = authority.cert_pem.bytes() if asks_for_certificate else None
            credentials = grpc.ssl_server_credentials([pair], trusted, asks_for_certificate)
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    @property
    def endpoint(self) -> str:
        return f"localhost:{self.port}"

    def close(self) -> None:
        self._server.stop(None).wait()

    def wait_for(self, count: int, seconds: float = 60) -> list[bytes]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.segments) >= count, seconds), len(self.segments)
            return [*self.segments]

    def answer(self, method: str, requests: list[bytes]) -> bytes:
        if method in (COLLECT_3, COLLECT_2):
            with self.arrived:
                self.segments += requests
                self.arrived.notify_all()
            return b""
        (request,) = requests
        self.told.put((method, request))
        if method in (SERVICE_2, INSTANCE_2) and self._not_yet:
            self._not_yet -= 1
            return b""
        if method == SERVICE_2:
            name = read(of_2("Services"), request).services[0].serviceName
            id_ = self.ids.setdefault(name, 3 + len(self.ids))
            answer = of_2("ServiceRegisterMapping")(services=[{"key": name, "value": id_}])
            return bytes(answer.SerializeToString())
        if method == INSTANCE_2:
            instance = read(of_2("ServiceInstances"), request).instances[0]
            uuid, id_ = instance.instanceUUID, 3 * instance.serviceId + self.storages
            found = of_2("ServiceInstanceRegisterMapping")(serviceInstances=[{"key": uuid, "value": id_}])
            return bytes(found.SerializeToString())
        if method == PING_2 and self.reset:
            self.reset, self.storages = False, self.storages + 1
            return bytes(of_2("Commands")(commands=[{"command": "ServiceMetadataReset"}]).SerializeToString())
        return b""


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # without types
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def service(self, details: Any) -> Any:
        method, backend = details.method, self._backend
        known = {COLLECT_3, PROPERTIES_3, PING_3, COLLECT_2, SERVICE_2, INSTANCE_2, PING_2}
        if method not in known or backend.only not in ("", method):
            return None

        def stream(requests: Iterator[bytes], context: Any) -> bytes:
            found = [*requests]
            self._check(context)
            if backend.codes:
                context.abort(backend.codes.pop(0), "not now")
            return backend.answer(method, found)

        def unary(request: bytes, context: Any) -> bytes:
            self._check(context)
            return backend.answer(method, [request])

        if method in (COLLECT_3, COLLECT_2):
            return grpc.stream_unary_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)

    def _check(self, context: Any) -> None:
        given = dict(context.invocation_metadata()).get("authentication", "")
        if given != self._backend.token:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "wrong token")


class HttpBackend:
    """A back end for protocol 3 by HTTP, which answers with this status."""

    def __init__(self, status: int = 200) -> None:
        self.requests: queue.Queue[tuple[str, Mapping[str, str], Any]] = queue.Queue()
        self._status = status
        self._server = http_server(self._answer, host="localhost")
        self.endpoint = self._server.__enter__()

    def _answer(self, request: Request) -> Answer:
        self.requests.put((request.path, request.headers, json.loads(request.body)))
        return Answer(self._status)

    def close(self) -> None:
        self._server.__exit__(None, None, None)
