"""What a TracerProvider of the SDK and the recorder have from each other: limits, samplers and ids.

Imports the SDK: call :func:`~ray_tracing_hooks._settings.otel.import_sdk` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits as SdkLimits
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.sampling import Sampler
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._settings import otel


def limits_for_sdk(limits: SpanLimits) -> SdkLimits:
    """The same limits for the SDK, which does not read them from the environment then: it raises for invalid values."""

    def given(limit: int | None) -> int:
        return SdkLimits.UNSET if limit is None else limit

    return SdkLimits(
        max_attributes=given(limits.attributes),
        max_events=given(limits.events),
        max_links=given(limits.links),
        max_span_attributes=given(limits.attributes),
        max_event_attributes=given(limits.event_attributes),
        max_link_attributes=given(limits.link_attributes),
        max_attribute_length=given(limits.other_value_length),
        max_span_attribute_length=given(limits.value_length),
    )


def sampler_for_sdk(environ: Mapping[str, str]) -> Any:
    """The built-in sampler that ``environ`` names, or None for one that the SDK has to find.

    The SDK would warn of an empty value, and of an invalid one that has already been reported.
    """
    name: str = otel.read("OTEL_TRACES_SAMPLER", environ, lambda _problem: None)
    base: Any = {"always_on": sampling.ALWAYS_ON, "always_off": sampling.ALWAYS_OFF}.get(
        name.removeprefix("parentbased_")
    )
    if name.endswith("traceidratio"):
        ratio = otel.read("OTEL_TRACES_SAMPLER_ARG", environ, lambda _problem: None)
        base = sampling.TraceIdRatioBased(1.0 if ratio is None else ratio)
    if base is None:
        return None
    return sampling.ParentBased(base) if name.startswith("parentbased_") else base


class RecordAll(sampling.Sampler):
    """Decides like another sampler, but records the spans that it drops, without sampling them.

    The trace flags still say not sampled, so callees do not treat it as sampled, and no span processor that follows the
    specification exports it.
    """

    def __init__(self, sampler: sampling.Sampler) -> None:
        self.decides = sampler

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> sampling.SamplingResult:
        result = self.decides.should_sample(parent_context, trace_id, name, kind, attributes, links)
        if result.decision is not sampling.Decision.DROP:
            return result
        return sampling.SamplingResult(sampling.Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        return self.decides.get_description()


class IdGenerator(RandomIdGenerator):
    """Uses a random generator that no program seeds.

    The SDK's uses :mod:`random`: workers that all call ``random.seed(0)`` would give their spans the same ids.
    """

    def generate_span_id(self) -> int:
        return int.from_bytes(ids.new_span_id(), "big")

    def generate_trace_id(self) -> int:
        return int.from_bytes(ids.new_trace_id(), "big")


def from_sdk() -> Sampler:
    """The SDK's sampler for ``OTEL_TRACES_SAMPLER``: an entry point, or the SDK's default for an invalid name.

    It is called with the trace id alone: a sampler that uses names or attributes decides on a root span without them.
    """
    # With explicit limits, since the SDK raises if those of the environment are invalid.
    return of_sdk(TracerProvider(shutdown_on_exit=False, span_limits=limits_for_sdk(SpanLimits())).sampler)


def of_program(sampler: Any, environ: Mapping[str, str]) -> Sampler | None:
    """The sampler of the program's own TracerProvider, or None if it is the one that ``environ`` names."""
    usual = sampler_for_sdk(environ)
    if usual is not None and usual.get_description() == sampler.get_description():
        return None
    return of_sdk(sampler)


def of_sdk(sampler: Any) -> Sampler:
    """Adapts a sampler of the SDK. It is called each time, since it may limit a rate. One that raises answers yes."""

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
        return bool(result.decision is sampling.Decision.RECORD_AND_SAMPLE)

    return Sampler(root, child, is_constant=False)
