"""A sampler for the SDK that has spans recorded which are not sampled."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult


class RecordAll(Sampler):
    """Decides as another sampler does, but what that drops is recorded without being sampled.

    The trace flags stay those of a span that is not sampled, so nobody who is called takes it for sampled, and no span
    processor that follows the specification exports it.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

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
        result = self._sampler.should_sample(parent_context, trace_id, name, kind, attributes, links)
        if result.decision is not Decision.DROP:
            return result
        return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        return self._sampler.get_description()
