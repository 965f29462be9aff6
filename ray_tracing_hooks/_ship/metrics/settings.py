"""How metrics are made and sent, by the standard variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ray_tracing_hooks._formats.signals import METRICS
from ray_tracing_hooks._ship.sinks import otlp_settings
from ray_tracing_hooks._ship.sinks.otlp_settings import OtlpSettings
from ray_tracing_hooks._standard import OTLP_METRICS
from ray_tracing_hooks._standard import read as read_variable

_TAKERS = frozenset({"otlp", "local"})

NOT_TAKEN = (
    "RAY_TRACING_METRICS=1 is ignored: expected otlp or local among the exporters, since metrics go to no other; using "
    "no metrics."
)
"""What is said where :func:`are_taken` is false."""


class MetricsSettings(NamedTuple):
    """What metrics are made with.

    Attributes:
        interval: Seconds between two exports.
        exemplars: Whether they name spans as examples.
        delta: Whether what is sent by OTLP is what has come since the last time. Files always hold totals.
        exponential: Whether histograms are exponential.
        otlp: How they are sent, or None where they are not.
        local: Whether they are written to files.
    """

    interval: float
    exemplars: bool
    delta: bool
    exponential: bool
    otlp: OtlpSettings | None
    local: bool


def are_taken(exporters: Sequence[str]) -> bool:
    """Whether one of these exporters takes metrics."""
    return not _TAKERS.isdisjoint(exporters)


def read(exporters: Sequence[str], environ: Mapping[str, str], problem: Callable[[str], None]) -> MetricsSettings:
    """What ``environ`` asks for, where spans go to these exporters.

    What is wrong is reported, and something sensible used instead.
    """
    otlp = None
    if "otlp" in exporters:
        otlp = otlp_settings.read(environ, problem, METRICS)
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
