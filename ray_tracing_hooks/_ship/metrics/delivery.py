"""The figures of delivery as OTLP metrics: what the shipper says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ray_tracing_hooks._ship.metrics.message import add_scope, attribute
from ray_tracing_hooks._ship.status.figures import Figures
from ray_tracing_hooks._ship.status.series import Attributes, samples

Marks = Mapping[tuple[str, Attributes], float]
"""The values of counters, by the name of the metric and the attributes."""


class DeliveryMetrics:
    """Makes messages of the latest ``figures``. The counters begin with the shipper, and are not stored."""

    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures

    def marks(self) -> Marks:
        """The counters now, for computing deltas later."""
        return {
            (sample.metric.name, sample.attributes): sample.value
            for sample in samples(self._figures())
            if sample.metric.instrument == "counter"
        }

    def message(
        self, resource: bytes, now_ns: int, since: Marks | None = None, since_ns: int = 0
    ) -> pb.MetricsData | None:
        """All metrics, with this encoded resource; None before there are any figures.

        Counters are cumulative; with ``since``, the result of :meth:`marks` at ``since_ns``, they are deltas.
        """
        figures = self._figures()
        if not figures.destinations:
            return None
        temporality, start_ns = pb.AGGREGATION_TEMPORALITY_CUMULATIVE, figures.began_ns
        if since is not None:
            temporality, start_ns = pb.AGGREGATION_TEMPORALITY_DELTA, since_ns or figures.began_ns
        message = pb.MetricsData()
        scope = add_scope(message, resource)
        made: dict[str, pb.Metric] = {}
        for metric, attributes, value in samples(figures):
            found = made.get(metric.name)
            if found is None:
                found = made[metric.name] = scope.metrics.add(
                    name=metric.name, unit=metric.unit, description=metric.meaning.replace("`", "")
                )
            common: dict[str, Any] = {
                "attributes": [attribute(key, text) for key, text in attributes],
                "time_unix_nano": now_ns,
            }
            if metric.instrument == "counter":
                before = since.get((metric.name, attributes), 0) if since is not None else 0
                found.sum.aggregation_temporality = temporality
                found.sum.is_monotonic = True
                found.sum.data_points.add(as_int=int(value - before), start_time_unix_nano=start_ns, **common)
            elif metric.unit == "s":
                found.gauge.data_points.add(as_double=value, **common)
            else:
                found.gauge.data_points.add(as_int=int(value), **common)
        return message
