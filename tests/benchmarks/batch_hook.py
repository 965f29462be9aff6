"""The hook that most people write: Ray's own tracing, with the SDK's batch processor. The exporter writes to a file, so
that no collector has to be there.
"""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


def setup() -> None:
    folder = os.environ["RAY_TRACING_LOCAL_DIR"]
    os.makedirs(folder, exist_ok=True)
    exporter = ConsoleSpanExporter(out=open(os.path.join(folder, f"{os.getpid()}.txt"), "a"))  # noqa: SIM115
    provider = TracerProvider(resource=Resource.create({"service.name": "ray"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
