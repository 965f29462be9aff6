"""Samples how much of the node is in use, for metrics. This runs in the shipper, which there is one of on each node,
and only if it is asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._ship.metrics.message import add_scope, attribute, describe_metric
from ray_tracing_hooks._ship.metrics.node import Gpus, Processors, Sample

LEAST_INTERVAL = 0.1
"""Seconds between two samples, at least."""

_MOST_SAMPLES = 50_000
"""Most values that wait for an export; beyond that, the oldest are dropped."""

_MOST_POINTS = 1000
"""Most points of a message: one takes 0.1 to 0.4 KB."""

_WHOLE = {names.GPU_MEMORY_USAGE, names.GPU_MEMORY_LIMIT}
"""Metrics whose values are whole numbers."""


class Utilization:
    """Samples in its own thread until it is closed. ``problem`` is called with what prevents it."""

    def __init__(self, interval: float, problem: Callable[[str], None]) -> None:
        self._interval = max(LEAST_INTERVAL, interval)
        self._problem = problem
        self._samples: deque[tuple[int, Sample]] = deque(maxlen=_MOST_SAMPLES)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sample-utilization", daemon=True)
        self._thread.start()

    def take(self, resource: bytes) -> list[pb.MetricsData]:
        """The samples since the last call, as messages about the node with this encoded resource."""
        taken = [self._samples.popleft() for _ in range(len(self._samples))]
        return [_message(taken[at : at + _MOST_POINTS], resource) for at in range(0, len(taken), _MOST_POINTS)]

    def close(self) -> None:
        """Stop sampling."""
        self._closing.set()
        self._thread.join(1)

    def _run(self) -> None:
        try:
            processors, gpus = Processors(), Gpus()
            due = time.monotonic()
            while not self._closing.is_set():
                # At regular times, however long a sample takes.
                due = max(due + self._interval, time.monotonic())
                self._closing.wait(due - time.monotonic())
                now = time.time_ns()
                for source in (processors, gpus):
                    self._samples.extend((now, sample) for sample in source.samples())
            gpus.close()
        except Exception as error:  # noqa: BLE001  spans and other metrics are delivered without samples
            self._problem(f"the utilization of this node cannot be sampled: {describe(error)}")


def _message(samples: list[tuple[int, Sample]], resource: bytes) -> pb.MetricsData:
    message = pb.MetricsData()
    scope = add_scope(message, resource)
    metrics: dict[str, pb.Metric] = {}
    for moment, sample in samples:
        metric = metrics.get(sample.metric)
        if metric is None:
            metric = metrics[sample.metric] = describe_metric(scope, sample.metric)
        point = metric.gauge.data_points.add(
            attributes=[attribute(key, value) for key, value in sample.attributes], time_unix_nano=moment
        )
        if sample.metric in _WHOLE:
            point.as_int = int(sample.value)
        else:
            point.as_double = sample.value
    return message
