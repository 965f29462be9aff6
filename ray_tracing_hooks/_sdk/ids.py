"""Ids for spans of the SDK.

The SDK's own generator draws from :mod:`random`, which programs seed: workers that all call ``random.seed(0)`` would
give their spans the same ids.
"""

from __future__ import annotations

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from ray_tracing_hooks._record import ids


class IdGenerator(RandomIdGenerator):
    """Draws from a generator that no program seeds."""

    def generate_span_id(self) -> int:
        return int.from_bytes(ids.new_span_id(), "big")

    def generate_trace_id(self) -> int:
        return int.from_bytes(ids.new_trace_id(), "big")
