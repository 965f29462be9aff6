"""The figures of delivery as metrics: what OTLP and Prometheus get from them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._reference import DELIVERY_METRICS, Metric
from ray_tracing_hooks._ship.status.figures import Destination, Figures

Attributes = tuple[tuple[str, str], ...]

METRICS = {metric.name: metric for metric in DELIVERY_METRICS}


class Sample(NamedTuple):
    """The value of one series."""

    metric: Metric
    attributes: Attributes
    value: float


def samples(figures: Figures) -> Iterator[Sample]:
    """The value of every series."""
    for each in figures.destinations:
        attributes = (
            (names.TRACING_EXPORTER, each.exporter),
            (names.TRACING_SIGNAL, each.signal),
            (names.TRACING_ADDRESS, each.address),
        )
        for name, value in (
            (names.DELIVERY_RECEIVED, each.received),
            (names.DELIVERY_DELIVERED, each.delivered),
            (names.DELIVERY_BYTES, each.delivered_bytes),
            (names.DELIVERY_REFUSED, each.refused),
            (names.DELIVERY_DROPPED, each.dropped),
            (names.DELIVERY_RETRIES, each.retries),
            (names.DELIVERY_WAITING, each.waiting),
            (names.DELIVERY_WAITING_BYTES, each.waiting_bytes),
            (names.DELIVERY_WAITING_AGE, age(each, time.time_ns())),
        ):
            yield Sample(METRICS[name], attributes, value)
    for name, value in (
        (names.DELIVERY_UNWRITTEN, figures.unwritten),
        (names.SPOOL_BYTES, figures.bytes),
        (names.SPOOL_LIMIT, figures.limit_bytes),
        (names.SPOOL_WRITERS, figures.writers),
    ):
        yield Sample(METRICS[name], (), value)


def age(destination: Destination, now_ns: int) -> float:
    """How long ago the oldest span that waits has ended, in seconds; 0 if none waits."""
    return max(0.0, (now_ns - destination.oldest_ns) / 1e9) if destination.oldest_ns else 0.0
