"""A collector for tests: takes spans and metrics by OTLP over HTTP, and keeps what it is sent."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from google.protobuf import json_format
from http_server import Answer, Request, http_server
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

    def answered(request: Request) -> Answer:
        received.asked[request.path] += 1
        status = received.answers.get(request.path, 200)
        if not status:
            received.gate.wait(60)
        elif status == 200:
            keep(request)
        answer = b""
        if received.counts_refusals and request.path == "/v1/metrics":
            refused = ExportMetricsPartialSuccess(
                rejected_data_points=1, error_message=f"refusal {received.asked[request.path]}"
            )
            answer = ExportMetricsServiceResponse(partial_success=refused).SerializeToString()
        return Answer(status or 200, answer)

    def keep(request: Request) -> None:
        if request.path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest()
            if request.headers["content-type"] == "application/json":
                json_format.Parse(request.body, metrics)
            else:
                metrics.ParseFromString(request.body)
            received.metrics.append(metrics)
            return
        received.headers.append(request.headers)
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
            spans = [span for scope in resource.scope_spans for span in scope.spans]
            received.resources.extend([attributes] * len(spans))
            received.spans.extend(spans)

    with http_server(answered, keeps_alive=True) as received.endpoint:
        try:
            yield received
        finally:
            received.gate.set()
