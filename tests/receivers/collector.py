"""A collector for tests: takes OTLP by HTTP, and keeps what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Received:
    """What has come so far, and where to."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def collector() -> Iterator[Received]:
    """Listens on a port of this machine."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            received.spans.extend(
                span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
            )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True  # connections are kept open by those who send
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        received.endpoint = f"http://127.0.0.1:{server.server_port}"
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
