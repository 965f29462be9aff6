"""Adapts samplers of the SDK to the recorder: installed ones, and that of the program's own provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_tracing_hooks._record.sampling import Sampler
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.sdk_import import import_sdk


def from_sdk() -> Sampler:
    """The SDK's sampler for ``OTEL_TRACES_SAMPLER``: an entry point, or the SDK's default for an invalid name.

    It is called with the trace id alone: a sampler that uses names or attributes decides on a root span without them.
    """
    import_sdk()  # only where such a sampler is named
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    from ray_tracing_hooks._record.limits import SpanLimits as Limits  # noqa: PLC0415
    from ray_tracing_hooks._sdk.provider_parts import limits_for_sdk  # noqa: PLC0415

    # With explicit limits, since the SDK raises if those of the environment are invalid.
    return of_sdk(TracerProvider(shutdown_on_exit=False, span_limits=limits_for_sdk(Limits())).sampler)


def of_program(sampler: Any, environ: Mapping[str, str]) -> Sampler | None:
    """The sampler of the program's own TracerProvider, or None if it is the one that ``environ`` names."""
    import_sdk()
    from ray_tracing_hooks._sdk.provider_parts import sampler_for_sdk  # noqa: PLC0415  imports the SDK

    usual = sampler_for_sdk(environ)
    if usual is not None and usual.get_description() == sampler.get_description():
        return None
    return of_sdk(sampler)


def of_sdk(sampler: Any) -> Sampler:
    """Adapts a sampler of the SDK. It is called each time, since it may limit a rate. One that raises answers yes."""
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import Decision  # noqa: PLC0415

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
        try:
            result = sampler.should_sample(context, int.from_bytes(trace_id, "big"), "ray", trace.SpanKind.PRODUCER)
        except Exception as error:  # noqa: BLE001  code of the program, which must not fail the traced call
            failed("calling the sampler", error)
            return True
        return bool(result.decision is Decision.RECORD_AND_SAMPLE)

    return Sampler(root, child, is_constant=False)
