"""The settings of metrics, from the standard variables. Nothing heavy is imported: a driver reads them too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from ray_tracing_hooks._formats.signals import METRICS
from ray_tracing_hooks._settings.otel import OTLP_METRICS
from ray_tracing_hooks._settings.otel import read as read_variable
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sinks import otlp as otlp_sink
from ray_tracing_hooks._ship.transport.contract import ServerSettings

_PROMETHEUS_MODULE = "opentelemetry.exporter.prometheus"
PROMETHEUS_EXTRA = (
    "RAY_TRACING_PROMETHEUS needs the package opentelemetry-exporter-prometheus on each node; install it with "
    "pip install 'ray-tracing-hooks[prometheus]'"
)


class MetricsSettings(NamedTuple):
    """The settings of metrics.

    Attributes:
        interval: Seconds between two exports.
        otlp: The settings for sending, or None if they are not sent.
        local: Whether they are written to files.
    """

    interval: float
    otlp: ServerSettings | None
    local: bool


def read(plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> MetricsSettings:
    """The settings from ``environ`` for this plan. Invalid values are reported, and a default is used instead."""
    local, otlp = "local" in plan.exporters, None
    # What the SDK reads by itself.
    for name in (
        "OTEL_METRICS_EXEMPLAR_FILTER",
        f"{OTLP_METRICS}TEMPORALITY_PREFERENCE",
        f"{OTLP_METRICS}DEFAULT_HISTOGRAM_AGGREGATION",
    ):
        read_variable(name, environ, problem)
    if "otlp" in plan.exporters:
        otlp = otlp_sink.read(environ, problem, METRICS)
        limit = read_variable("OTEL_METRIC_EXPORT_TIMEOUT", environ, problem)
        otlp = otlp._replace(timeout=min(otlp.timeout, limit))
    elif not local and plan.settings.prometheus is None:
        ignored = "RAY_TRACING_METRICS=1" if plan.settings.metrics else "RAY_TRACING_UTILIZATION"
        problem(
            f"{ignored} is ignored: expected otlp or local among the exporters, or RAY_TRACING_PROMETHEUS, since no "
            "other exporter accepts metrics; using no metrics."
        )
    return MetricsSettings(read_variable("OTEL_METRIC_EXPORT_INTERVAL", environ, problem), otlp, local)


def is_prometheus_installed() -> bool:
    """Whether OpenTelemetry's exporter for Prometheus is installed."""
    try:
        return find_spec(_PROMETHEUS_MODULE) is not None
    except ImportError:
        return False
