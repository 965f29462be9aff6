"""The limits, sampler and id generator that make a TracerProvider of the SDK consistent with the recorder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import SpanLimits as SdkLimits
from opentelemetry.sdk.trace import sampling
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.limits import SpanLimits
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

    def ignore(_problem: str) -> None:
        """Setting up tracing has reported it."""

    name: str = otel.read("OTEL_TRACES_SAMPLER", environ, ignore)
    base: Any = {"always_on": sampling.ALWAYS_ON, "always_off": sampling.ALWAYS_OFF}.get(
        name.removeprefix("parentbased_")
    )
    if name.endswith("traceidratio"):
        ratio = otel.read("OTEL_TRACES_SAMPLER_ARG", environ, ignore)
        base = sampling.TraceIdRatioBased(1.0 if ratio is None else ratio)
    if base is None:
        return None
    return sampling.ParentBased(base) if name.startswith("parentbased_") else base


class RecordAll(sampling.Sampler):
    """Decides like another sampler, but records the spans that it drops, without sampling them.

    The trace flags still say not sampled, so callees do not treat it as sampled, and no span processor that follows the
    specification exports it.

    Attributes:
        decides: The other sampler.
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
