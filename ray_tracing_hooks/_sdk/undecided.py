"""A sampler for the SDK that also records spans that are not sampled."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult


class RecordAll(Sampler):
    """Decides like another sampler, but records the spans that it drops, without sampling them.

    The trace flags still say not sampled, so callees do not treat it as sampled, and no span processor that follows the
    specification exports it.

    Attributes:
        decides: The other sampler.
    """

    def __init__(self, sampler: Sampler) -> None:
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
    ) -> SamplingResult:
        result = self.decides.should_sample(parent_context, trace_id, name, kind, attributes, links)
        if result.decision is not Decision.DROP:
            return result
        return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        return self.decides.get_description()
