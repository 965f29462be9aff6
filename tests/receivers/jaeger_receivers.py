"""Receivers for Jaeger's protocols, on this machine, and what they received in no protocol's words."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from concurrent import futures
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any, NamedTuple

import grpc
import jaeger_idl
import trustme
from http_server import Answer, Request, http_server

POST_SPANS = "/jaeger.api_v2.CollectorService/PostSpans"
OTLP_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GRPC_OPTIONS = [("grpc.max_receive_message_length", 1 << 20)]
OK = "ok"


class Received(NamedTuple):
    """A batch in no protocol's words. A time is in nanoseconds; a tag is a key, its type and its value."""

    service: str
    tags: list[tuple[str, str, Any]]
    spans: list[dict[str, Any]]


def from_thrift(batch: Any) -> Received:
    def tags(found: Any) -> list[tuple[str, str, Any]]:
        types = ("STRING", "DOUBLE", "BOOL", "LONG", "BINARY")
        values = ("vStr", "vDouble", "vBool", "vLong", "vBinary")
        for tag in found:
            assert [name for name in values if getattr(tag, name) is not None] == [values[tag.vType]]
        return [(tag.key, types[tag.vType], getattr(tag, values[tag.vType])) for tag in found]

    def number(*parts: int) -> str:
        return "".join(part.to_bytes(8, "big", signed=True).hex() for part in parts)

    def plain(span: Any) -> dict[str, Any]:
        assert span.flags == 1
        return {
            "trace": number(span.traceIdHigh, span.traceIdLow),
            "span": number(span.spanId),
            "parent": number(span.parentSpanId),
            "name": span.operationName,
            "links": [
                (r.refType, number(r.traceIdHigh, r.traceIdLow), number(r.spanId)) for r in span.references or ()
            ],
            "start": span.startTime * 1000,
            "duration": span.duration * 1000,
            "tags": tags(span.tags),
            "logs": [(log.timestamp * 1000, tags(log.fields)) for log in span.logs or ()],
        }

    return Received(batch.process.serviceName, tags(batch.process.tags), [plain(span) for span in batch.spans])


def from_proto(body: bytes) -> Received:
    request = jaeger_idl.post_spans_request().FromString(body)

    def tags(found: Any) -> list[tuple[str, str, Any]]:
        types = ("STRING", "BOOL", "LONG", "DOUBLE", "BINARY")
        values = ("v_str", "v_bool", "v_int64", "v_float64", "v_binary")
        for tag in found:
            assert {field.name for field, _ in tag.ListFields()} <= {"key", "v_type", values[tag.v_type]}
        return [(tag.key, types[tag.v_type], getattr(tag, values[tag.v_type])) for tag in found]

    def plain(span: Any) -> dict[str, Any]:
        assert span.flags == 1
        references = [(r.ref_type, r.trace_id.hex(), r.span_id.hex()) for r in span.references]
        parent = "00" * 8
        if references and references[0][0] == 0:
            _, trace, parent = references.pop(0)
            assert trace == span.trace_id.hex()
        return {
            "trace": span.trace_id.hex(),
            "span": span.span_id.hex(),
            "parent": parent,
            "name": span.operation_name,
            "links": references,
            "start": span.start_time.ToNanoseconds(),
            "duration": span.duration.ToNanoseconds(),
            "tags": tags(span.tags),
            "logs": [(log.timestamp.ToNanoseconds(), tags(log.fields)) for log in span.logs],
        }

    batch = request.batch
    return Received(batch.process.service_name, tags(batch.process.tags), [plain(span) for span in batch.spans])


class Jaeger:
    """A server on this machine that keeps what it takes, and answers with what ``answers`` holds, then always ok."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[Any] = []
        self.endpoint = ""
        self._batches: list[Received] = []
        self._arrived = threading.Condition()

    def take(self, body: bytes, path: str, headers: Mapping[str, str]) -> Any:
        with self._arrived:
            self.headers.append({key.lower(): value for key, value in headers.items()})
            self.paths.append(path)
            answer = self.answers.pop(0) if self.answers else OK
            if answer == OK:
                self.bodies.append(body)
                self._arrived.notify_all()
        return answer

    def decode(self, body: bytes) -> Received:
        raise NotImplementedError

    def batches(self, count: int = 0) -> list[Received]:
        """What has arrived, once this many spans have."""
        with self._arrived:
            self._arrived.wait_for(lambda: sum(len(batch.spans) for batch in self._decoded()) >= count, 10)
            return self._decoded()

    def _decoded(self) -> list[Received]:
        self._batches += [self.decode(body) for body in self.bodies[len(self._batches) :]]
        return self._batches

    def spans(self, count: int) -> list[dict[str, Any]]:
        return [span for batch in self.batches(count) for span in batch.spans]

    def names(self, count: int) -> list[str]:
        return [span["name"] for span in self.spans(count)]

    def close(self) -> None:
        raise NotImplementedError


class UdpAgent(Jaeger):
    def __init__(self, port: int = 0) -> None:
        super().__init__()
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        # So much may come before the thread below is woken.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while datagram := self._socket.recv(1 << 16):
            self.take(datagram, "", {})

    def decode(self, body: bytes) -> Received:
        return from_thrift(jaeger_idl.decode_datagram(body))

    def close(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as end:
            end.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()


class HttpCollector(Jaeger):
    def __init__(self, tls: trustme.LeafCert | None = None) -> None:
        super().__init__()
        context = None
        if tls is not None:
            context = SSLContext(PROTOCOL_TLS_SERVER)
            tls.configure_cert(context)
        self._server = http_server(self._answer, tls=context)
        self.endpoint = self._server.__enter__()

    def _answer(self, request: Request) -> Answer:
        answer = self.take(request.body, request.path, request.headers)
        status, text = (202, b"") if answer == OK else answer
        return Answer(status, text, {"Content-Type": "text/plain; charset=utf-8"})

    def decode(self, body: bytes) -> Received:
        return from_thrift(jaeger_idl.decode_batch(body))

    def close(self) -> None:
        self._server.__exit__(None, None, None)


class GrpcCollector(Jaeger):
    def __init__(self, tls: trustme.LeafCert | None = None) -> None:
        super().__init__()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(2), [self._handler(POST_SPANS), self._handler(OTLP_EXPORT)], options=GRPC_OPTIONS
        )
        if tls is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            pair = (tls.private_key_pem.bytes(), b"".join(blob.bytes() for blob in tls.cert_chain_pems))
            port = self._server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        self.endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        self._server.start()

    def _handler(self, path: str) -> Any:
        def call(body: bytes, context: grpc.ServicerContext) -> bytes:
            answer = self.take(body, path, {key: str(value) for key, value in context.invocation_metadata()})
            if answer != OK:
                context.abort(*answer)
            return b""

        _, service, method = path.split("/")
        return grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(call)})

    def decode(self, body: bytes) -> Received:
        return from_proto(body)

    def close(self) -> None:
        self._server.stop(None).wait()


KINDS: dict[str, type[Jaeger]] = {"thrift-udp": UdpAgent, "thrift-http": HttpCollector, "grpc": GrpcCollector}
