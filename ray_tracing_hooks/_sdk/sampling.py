"""A sampler that only the SDK knows, for the recorder."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._record.sampling import Sampler


def from_sdk() -> Sampler:
    """The sampler that the SDK makes of ``OTEL_TRACES_SAMPLER``: an entry point, or the SDK's default for a wrong name.

    It is asked with the trace id alone: a sampler that looks at names or attributes decides on a root span without
    them.
    """
    from opentelemetry import trace  # noqa: PLC0415  all of this is needed only where such a sampler is named
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import Decision  # noqa: PLC0415

    sampler = TracerProvider(shutdown_on_exit=False).sampler

    def root(trace_id: bytes) -> bool:
        return ask(None, trace_id)

    def child(parent_sampled: bool, trace_id: bytes) -> bool:
        span = trace.NonRecordingSpan(
            trace.SpanContext(
                int.from_bytes(trace_id, "big"),
                1,
                is_remote=False,
                trace_flags=trace.TraceFlags(1 if parent_sampled else 0),
            )
        )
        return ask(trace.set_span_in_context(span), trace_id)

    def ask(context: Any, trace_id: bytes) -> bool:
        result = sampler.should_sample(context, int.from_bytes(trace_id, "big"), "ray", trace.SpanKind.PRODUCER)
        return result.decision is Decision.RECORD_AND_SAMPLE

    return Sampler(root, child)
