"""Finds the program's span processors that send to an endpoint that we deliver to: spans would arrive twice."""

from __future__ import annotations

from typing import Any


def otlp_target(processor: Any) -> str | None:
    """The endpoint of this span processor, if all that it does is to send by OTLP; None for any other.

    ``host:port`` for gRPC, a URL for HTTP, as in our own settings. OpenTelemetry has no public API for it.
    """
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor  # noqa: PLC0415  heavy

    # A subclass of these may filter or change spans.
    if type(processor) not in {BatchSpanProcessor, SimpleSpanProcessor}:
        return None
    exporter = getattr(processor, "span_exporter", None)
    kind = type(exporter)
    if not kind.__module__.startswith("opentelemetry.exporter.otlp.proto.") or kind.__name__ != "OTLPSpanExporter":
        return None
    target = getattr(exporter, "_endpoint", None)
    return target if isinstance(target, str) else None
