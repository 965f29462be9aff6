"""A collector for tests: takes spans and metrics by OTLP over HTTP, and keeps what it is sent."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Received:
    """What has come so far, and where to."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    """The status to answer with, by path, if it is not 200. What is answered so is not kept."""
    gate: threading.Event = field(default_factory=threading.Event)
    """Answers of 0 come when it is open."""
    counts_refusals: bool = False
    """Answers to metrics say that some were refused, each time in other words."""
    asked: Counter[str] = field(default_factory=Counter)
    """How many requests have come, by path."""
    resources: list[dict[str, str]] = field(default_factory=list)
    """The attributes that are text, of the resource of each span."""


@contextmanager
def collector() -> Iterator[Received]:
    """Listens on a port of this machine."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.asked[self.path] += 1
            status = received.answers.get(self.path, 200)
            if not status:
                received.gate.wait(60)
            elif status == 200:
                self.keep(body)
            answer = b""
            if received.counts_refusals and self.path == "/v1/metrics":
                refused = ExportMetricsPartialSuccess(
                    rejected_data_points=1, error_message=f"refusal {received.asked[self.path]}"
                )
                answer = ExportMetricsServiceResponse(partial_success=refused).SerializeToString()
            self.send_response(status or 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def keep(self, body: bytes) -> None:
            if self.path == "/v1/metrics":
                metrics = ExportMetricsServiceRequest()
                if self.headers["Content-Type"] == "application/json":
                    json_format.Parse(body, metrics)
                else:
                    metrics.ParseFromString(body)
                received.metrics.append(metrics)
                return
            request = ExportTraceServiceRequest.FromString(body)
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            for resource in request.resource_spans:
                attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
                spans = [span for scope in resource.scope_spans for span in scope.spans]
                received.resources.extend([attributes] * len(spans))
                received.spans.extend(spans)

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
        received.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
