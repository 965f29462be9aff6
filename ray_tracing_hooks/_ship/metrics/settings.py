"""The settings of metrics, from the standard variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ray_tracing_hooks._formats.signals import METRICS
from ray_tracing_hooks._ship.sinks import otlp as otlp_sink
from ray_tracing_hooks._ship.sinks.otlp import OtlpSettings
from ray_tracing_hooks._standard import OTLP_METRICS
from ray_tracing_hooks._standard import read as read_variable

_TAKERS = frozenset({"otlp", "local"})


class MetricsSettings(NamedTuple):
    """The settings of metrics.

    Attributes:
        interval: Seconds between two exports.
        exemplars: Whether metrics have exemplars.
        delta: Whether metrics sent over OTLP are deltas. Files always contain totals.
        exponential: Whether histograms are exponential.
        otlp: The settings for sending, or None if they are not sent.
        local: Whether they are written to files.
    """

    interval: float
    exemplars: bool
    delta: bool
    exponential: bool
    otlp: OtlpSettings | None
    local: bool


def are_taken(exporters: Sequence[str]) -> bool:
    """Whether one of these exporters accepts metrics."""
    return not _TAKERS.isdisjoint(exporters)


def not_taken(*, metrics: bool) -> str:
    """The message where that is not so, for ``RAY_TRACING_METRICS`` or else for ``RAY_TRACING_UTILIZATION``."""
    ignored, instead = ("RAY_TRACING_METRICS=1", "metrics") if metrics else ("RAY_TRACING_UTILIZATION", "samples")
    return (
        f"{ignored} is ignored: expected otlp or local among the exporters, since no other accepts metrics; using no "
        f"{instead}."
    )


def read(exporters: Sequence[str], environ: Mapping[str, str], problem: Callable[[str], None]) -> MetricsSettings:
    """The settings from ``environ`` for these exporters. Invalid values are reported, and a default is used instead."""
    otlp = None
    if "otlp" in exporters:
        otlp = otlp_sink.read(environ, problem, METRICS)
        limit = read_variable("OTEL_METRIC_EXPORT_TIMEOUT", environ, problem)
        otlp = otlp._replace(timeout=min(otlp.timeout, limit))
    histograms = read_variable(f"{OTLP_METRICS}DEFAULT_HISTOGRAM_AGGREGATION", environ, problem)
    return MetricsSettings(
        interval=read_variable("OTEL_METRIC_EXPORT_INTERVAL", environ, problem),
        exemplars=read_variable("OTEL_METRICS_EXEMPLAR_FILTER", environ, problem) != "always_off",
        delta=read_variable(f"{OTLP_METRICS}TEMPORALITY_PREFERENCE", environ, problem) != "cumulative",
        exponential=histograms == "base2_exponential_bucket_histogram",
        otlp=otlp,
        local="local" in exporters,
    )
