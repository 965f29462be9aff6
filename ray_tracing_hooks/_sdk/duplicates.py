"""Span processors of the program's own that only send to where we deliver too, so that spans would arrive twice."""

from __future__ import annotations

from typing import Any


def otlp_target(processor: Any) -> str | None:
    """What this span processor sends to, if all that it does is to send by OTLP; None for any other.

    ``host:port`` for gRPC, a URL for HTTP, as in our own settings. OpenTelemetry has no public way to ask.
    """
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor  # noqa: PLC0415  heavy

    # One of a class derived from these may leave spans out, or change them.
    if type(processor) not in {BatchSpanProcessor, SimpleSpanProcessor}:
        return None
    exporter = getattr(processor, "span_exporter", None)
    kind = type(exporter)
    if not kind.__module__.startswith("opentelemetry.exporter.otlp.proto.") or kind.__name__ != "OTLPSpanExporter":
        return None
    target = getattr(exporter, "_endpoint", None)
    return target if isinstance(target, str) else None
