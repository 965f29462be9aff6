"""Our reading of the span limits, for the SDK."""

from __future__ import annotations

from opentelemetry.sdk.trace import SpanLimits as SdkLimits

from ray_tracing_hooks._record.limits import SpanLimits


def limits_for_sdk(limits: SpanLimits) -> SdkLimits:
    """The same limits as the SDK has them, without a look at the environment: it raises where that is wrong."""

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
