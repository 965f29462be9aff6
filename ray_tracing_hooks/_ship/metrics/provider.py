"""The meter providers of a shipper, with their instruments, readers and exporters; and the samples of the node.

The node's processors and memory are sampled from ``/proc``, and its GPUs from NVML, the library of the driver, if
``nvidia-ml-py`` is installed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import decode_resource
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._ship.figures import Figures
from ray_tracing_hooks._ship.metrics.exporters import FileExporter, otlp, prometheus
from ray_tracing_hooks._ship.sinks.otlp import read_metrics
from ray_tracing_hooks._ship.stage import StageContext
from ray_tracing_hooks._version import __version__
from ray_tracing_hooks.names import Metric

_NVML = "pynvml"
"""The module of ``nvidia-ml-py``."""

_VENDOR = "NVIDIA"

_LEAST_INTERVAL = 0.1
"""Seconds between two samples, at least."""

_STAT, _MEMORY = "/proc/stat", "/proc/meminfo"
_IDLE, _WAITING = 3, 4
"""The columns of ``/proc/stat`` with the time in which a processor did nothing."""


class Sample(NamedTuple):
    metric: str
    value: float
    attributes: tuple[tuple[str, str], ...] = ()


class NodeSampler:
    """Samples the node when it is asked to, but for all who ask within half an interval once.

    Attributes:
        interval: Seconds between two samples.
    """

    def __init__(self, interval: float) -> None:
        self.interval = max(_LEAST_INTERVAL, interval)
        self._lock = threading.Lock()
        self._sources = (Processors(), Gpus())
        self._until = 0.0
        self._last: Sequence[Sample] = ()

    def samples(self) -> Sequence[Sample]:
        """The values of this moment, or of less than half an interval ago. May be called in any thread."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._until = time.monotonic() + self.interval / 2
                self._last = [sample for source in self._sources for sample in source.samples()]
            return self._last

    def close(self) -> None:
        """Let go of the driver of the GPUs."""
        with self._lock:
            self._sources[1].close()


class Processors:
    """The processors of the node since the last sample, and its memory."""

    def __init__(self) -> None:
        self._before = _times()

    def samples(self) -> Iterator[Sample]:
        """Nothing where the kernel does not say."""
        now, before = _times(), self._before
        self._before = now
        if now is not None and before is not None and now[1] > before[1]:
            yield Sample(names.CPU_UTILIZATION, (now[0] - before[0]) / (now[1] - before[1]))
        used = _memory_used()
        if used is not None:
            yield Sample(names.MEMORY_UTILIZATION, used)


def _times() -> tuple[int, int] | None:
    """The busy time and all time of the processors so far, in the kernel's unit."""
    try:
        with open(_STAT, encoding="ascii") as file:
            # Those of guests are also part of others.
            columns = [int(column) for column in file.readline().split()[1:9]]
        return sum(columns) - columns[_IDLE] - columns[_WAITING], sum(columns)
    except (OSError, ValueError, IndexError):
        return None


def _memory_used() -> float | None:
    """The share of memory that is not available to programs."""
    try:
        with open(_MEMORY, encoding="ascii") as file:
            found = {line.partition(":")[0]: int(line.split()[1]) for line in file if " kB" in line}
        return 1 - found["MemAvailable"] / found["MemTotal"]
    except (OSError, ValueError, IndexError, KeyError, ZeroDivisionError):
        return None


class Gpus:
    """The GPUs of the node; none without the library or its driver."""

    def __init__(self) -> None:
        self._devices: list[tuple[Any, tuple[tuple[str, str], ...]]] = []
        self._nvml: Any = None
        try:
            nvml = import_module(_NVML)
            nvml.nvmlInit()
        except Exception:  # noqa: BLE001  most nodes have neither
            return
        self._nvml = nvml
        count = 0
        with contextlib.suppress(Exception):
            count = nvml.nvmlDeviceGetCount()
        for index in range(count):
            # The driver has no handle of one that has failed: the others are sampled.
            with contextlib.suppress(Exception):
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                identity = (
                    (names.HW_ID, _decoded(nvml.nvmlDeviceGetUUID(device))),
                    (names.HW_NAME, _decoded(nvml.nvmlDeviceGetName(device))),
                    (names.HW_VENDOR, _VENDOR),
                    (names.RAY_ACCELERATOR_ID, f"GPU:{index}"),
                )
                self._devices.append((device, identity))

    def samples(self) -> Iterator[Sample]:
        """What the driver says; a value that it cannot say, as for a part of a device, is left out."""
        for device, identity in self._devices:
            with contextlib.suppress(Exception):
                used = self._nvml.nvmlDeviceGetUtilizationRates(device).gpu
                yield Sample(names.GPU_UTILIZATION, used / 100, identity)
            with contextlib.suppress(Exception):
                memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
                yield Sample(names.GPU_MEMORY_USAGE, memory.used, identity)
                yield Sample(names.GPU_MEMORY_LIMIT, memory.total, identity)

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


BOUNDS = (
    *(0.0005, 0.001, 0.0025),
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0, 300.0, 1800.0, 3600.0),
)
"""The upper bounds of explicit buckets, in seconds. Those in the middle are the semantic conventions' advice for
durations (``http.server.request.duration``); tasks can be shorter, and much longer."""

_INSTANCE = "service.instance.id"
_OF_ONE_PROCESS = (
    _INSTANCE,
    names.RESOURCE_WORKER_ID,
    names.RESOURCE_WORKER_READY,
    names.RESOURCE_PROCESS_TYPE,
)
"""Attributes that are left out of the resource of a node, like all of ``process.*``."""

_MOST_PROVIDERS = 64
_MOST_CACHED = 10_000

_LAST_EXPORT = 4.0
"""Seconds that the exports may take when the shipper ends."""

_METRICS = [each for each in vars(names).values() if isinstance(each, Metric)]
_OF_DELIVERY = [each for each in _METRICS if each.startswith("ray.tracing.")]
_OF_NODE = [each for each in _METRICS if each.startswith(("hw.", "system."))]

Observe = Callable[[CallbackOptions], Iterable[Observation]]


def counter(meter: Meter, metric: Metric) -> Counter:
    return meter.create_counter(metric, metric.unit, _text(metric))


def histogram(meter: Meter, metric: Metric) -> Histogram:
    return meter.create_histogram(metric, metric.unit, _text(metric), explicit_bucket_boundaries_advisory=BOUNDS)


class Metrics:
    """The providers of a shipper, one for each resource of the processes of its node.

    That of the first resource has the figures of delivery, which ``figures`` returns, and the samples of the node.
    """

    def __init__(self, context: StageContext, figures: Callable[[], Figures]) -> None:
        plan, problems = context.plan, context.problems
        self._spool_dir = os.path.realpath(context.spool_dir)
        self._wanted = plan.settings
        self._figures = figures
        settings = read_metrics(plan, context.environ, problems.warn_once)
        self._interval = settings.interval
        self._otlp = otlp(settings.otlp, problems) if settings.otlp is not None else None
        self._files = FileExporter(plan, problems) if settings.local else None
        self._prometheus = (
            prometheus(plan.settings.prometheus, problems) if plan.settings.prometheus is not None else None
        )
        self._sampler: NodeSampler | None = None
        self._lock = threading.Lock()
        self._meters: dict[Resource, Meter] = {}
        self._by_process: dict[bytes, Meter] = {}
        self._periodic: list[tuple[MetricExporter, PeriodicExportingMetricReader]] = []

    @property
    def has_destination(self) -> bool:
        """Whether metrics of calls go anywhere."""
        return any(each is not None for each in (self._otlp, self._files, self._prometheus))

    def meter(self, resource: bytes) -> Meter:
        """The meter for a process with this encoded resource: that of its node and service."""
        with self._lock:
            found = self._by_process.get(resource)
            if found is None:
                if len(self._by_process) >= _MOST_CACHED:
                    self._by_process.clear()
                found = self._by_process[resource] = self._find(resource)
            return found

    def begin(self, resource: bytes) -> None:
        """Make the first provider for a process with this encoded resource, and listen. Called again and again."""
        if self._prometheus is not None:
            self._prometheus.listen()
        if resource:
            self.meter(resource)

    def flush(self) -> None:
        """Export now, but not to a server that did not accept the last export: nobody is to wait for it again."""
        for exporter, reader in tuple(self._periodic):
            if self._otlp is None or exporter is not self._otlp or not self._otlp.is_failing:
                reader.force_flush()

    def close(self) -> None:
        """Export what has not been exported yet, for at most a few seconds."""
        deadline = time.monotonic() + _LAST_EXPORT
        # The files first, since a server may take all of the time.
        for _, reader in sorted(self._periodic, key=lambda each: each[0] is self._otlp):
            with contextlib.suppress(Exception):  # the others are to export too
                reader.shutdown(max(0.0, deadline - time.monotonic()) * 1000)
        for each in (self._otlp, self._files, self._prometheus, self._sampler):
            if each is not None:
                each.close()

    def _find(self, resource: bytes) -> Meter:
        attributes = _of_node(resource)
        instance = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._spool_dir} {sorted(attributes.items(), key=str)}")
        node = Resource({**attributes, _INSTANCE: str(instance)})
        found = self._meters.get(node)
        if found is None:
            if len(self._meters) >= _MOST_PROVIDERS:
                return next(iter(self._meters.values()))
            is_first = not self._meters
            found = self._meters[node] = self._provide(node, self._interval, sends=self._wanted.metrics)
            if is_first:
                self._observe(found, node)
        return found

    def _observe(self, meter: Meter, node: Resource) -> None:
        if self._wanted.metrics or self._prometheus is not None:
            for metric in _OF_DELIVERY:
                _observe(meter, metric, partial(self._delivered, metric))
        if self._wanted.utilization is not None:
            self._sampler = sampler = NodeSampler(self._wanted.utilization)
            sampled = self._provide(node, sampler.interval, sends=True)
            for metric in _OF_NODE:
                _observe(sampled, metric, partial(_sampled, sampler, metric))

    def _provide(self, resource: Resource, interval: float, *, sends: bool) -> Meter:
        exporters: list[MetricExporter | None] = [self._files, self._otlp] if sends else []
        periodic = [
            (each, PeriodicExportingMetricReader(each, interval * 1000)) for each in exporters if each is not None
        ]
        served = [self._prometheus.reader()] if self._prometheus is not None else []
        provider = MeterProvider([*(reader for _, reader in periodic), *served], resource, shutdown_on_exit=False)
        self._periodic.extend(periodic)
        return provider.get_meter(names.SCOPE, __version__)

    def _delivered(self, name: str, _options: CallbackOptions) -> Iterable[Observation]:
        return observations(self._figures(), name)


def observations(figures: Figures, name: str) -> list[Observation]:
    """The values of this metric of delivery."""
    of_spool: dict[str, int] = {
        names.DELIVERY_UNWRITTEN: figures.unwritten,
        names.SPOOL_BYTES: figures.bytes,
        names.SPOOL_LIMIT: figures.limit_bytes,
        names.SPOOL_WRITERS: figures.writers,
    }
    if name in of_spool:
        return [Observation(of_spool[name])] if figures.destinations else []
    found = []
    for each in figures.destinations:
        values: dict[str, float] = {
            names.DELIVERY_RECEIVED: each.received,
            names.DELIVERY_DELIVERED: each.delivered,
            names.DELIVERY_BYTES: each.delivered_bytes,
            names.DELIVERY_REFUSED: each.refused,
            names.DELIVERY_DROPPED: each.dropped,
            names.DELIVERY_RETRIES: each.retries,
            names.DELIVERY_WAITING: each.waiting,
            names.DELIVERY_WAITING_BYTES: each.waiting_bytes,
            names.DELIVERY_WAITING_AGE: each.age(time.time_ns()),
        }
        attributes = {
            names.TRACING_EXPORTER: each.exporter,
            names.TRACING_SIGNAL: each.signal,
            names.TRACING_ADDRESS: each.address,
        }
        found.append(Observation(values[name], attributes))
    return found


def _sampled(sampler: NodeSampler, name: str, _options: CallbackOptions) -> Iterable[Observation]:
    return [Observation(value, dict(attributes)) for metric, value, attributes in sampler.samples() if metric == name]


def _observe(meter: Meter, metric: Metric, observe: Observe) -> None:
    is_counter = metric.instrument == "counter"
    create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
    create(metric, [observe], metric.unit, _text(metric))


def _text(metric: Metric) -> str:
    return metric.meaning.replace("`", "")


def _of_node(resource: bytes) -> dict[str, Any]:
    """The attributes that the processes of a node and service have in common."""
    try:
        decoded = decode_resource(resource)
    except FormatError:
        return {}
    return {key: decoded[key] for key in decoded if key not in _OF_ONE_PROCESS and not key.startswith("process.")}
