"""The destinations of metrics: local files, OTLP by the SDK's exporters, and Prometheus by the SDK's reader."""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricReader, MetricsData

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp import METRICS
from ray_tracing_hooks._safety.guard import TracingError, describe
from ray_tracing_hooks._ship.log import Problems, logger
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import SinkContext, Tls
from ray_tracing_hooks._ship.sinks.local import LocalSink
from ray_tracing_hooks._ship.sinks.otlp import PROMETHEUS_EXTRA
from ray_tracing_hooks._ship.transport.contract import ServerSettings, one_line

_SHARE = 10
"""Files of metrics may take this fraction of the limit for those of spans."""

_LINE_POINTS = 100
"""Most points per line of a file, each up to 6 KB. The Collector's file receiver truncates lines at 1 MiB."""

_REQUEST_POINTS = 5000
"""Most points per request over gRPC, each up to 0.6 KB: servers refuse messages above 4 MiB by default."""

_LISTEN_AGAIN = 10.0
"""Seconds after which an address that another process has is tried again."""

_LABELS = frozenset({"service.name", "service.instance.id", names.RESOURCE_NODE_ID})
"""The attributes of the resource that Prometheus gets as labels."""


class _SharedExporter(MetricExporter):
    """An exporter that the readers of several providers share: one of them cannot shut it down."""

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_options: Any) -> None:
        pass


class FileExporter(_SharedExporter):
    """Writes OTLP-JSON to ``metrics`` in the folder of local files, whose totals are cumulative.

    A failure is a problem of the shipper until the next success.
    """

    def __init__(self, plan: ShipPlan, problems: Problems) -> None:
        super().__init__()
        self._plan = plan.with_settings(local_max_bytes=max(1, plan.settings.local_max_bytes // _SHARE))
        self._problems = problems
        self._lock = threading.Lock()
        self._files: LocalSink | None = None

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_options: Any) -> MetricExportResult:
        with self._lock:
            try:
                if self._files is None:
                    self._files = self._open()
                self._files.append(map(_line, _parts(metrics_data)))
            except Exception as error:  # noqa: BLE001  the next export contains the totals again
                text = str(error) if isinstance(error, TracingError) else f"metrics are not written: {describe(error)}"
                self._problems.set("metrics-local", text)
                return MetricExportResult.FAILURE
        self._problems.clear("metrics-local")
        return MetricExportResult.SUCCESS

    def _open(self) -> LocalSink:
        problems = self._problems
        return LocalSink(SinkContext(self._plan, {}, lambda _: None, problems.count, {}, problems.warn_once, METRICS))

    def close(self) -> None:
        with self._lock:
            if self._files is not None:
                self._files.close()
                self._files = None


class OtlpExporter(_SharedExporter):
    """Sends with the SDK's exporter for the protocol; ``http/json`` is sent as ``http/protobuf``.

    A failure is a problem of the shipper until the next success; ``is_failing`` says whether the last export failed.
    """

    def __init__(self, settings: ServerSettings, problems: Problems) -> None:
        self._exporter: Any = _otlp_exporter(settings)
        super().__init__(
            # The SDK's readers take them from there too.
            self._exporter._preferred_temporality,  # noqa: SLF001
            self._exporter._preferred_aggregation,  # noqa: SLF001
        )
        self._address = settings.address
        self._problems = problems
        self._lock = threading.Lock()
        self._reason = _Reason()
        logging.getLogger("opentelemetry.exporter.otlp.proto").addHandler(self._reason)
        self.is_failing = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_options: Any) -> MetricExportResult:
        with self._lock:
            self._reason.begin()
            result: MetricExportResult = self._exporter.export(metrics_data, timeout_millis)
            self.is_failing = result is not MetricExportResult.SUCCESS
            if self.is_failing:
                self._problems.set("metrics-otlp", f"metrics are not sent to {self._address}: {self._reason.text}")
            else:
                self._problems.clear("metrics-otlp")
            return result

    def close(self) -> None:
        """Give up an attempt that is under way."""
        self._exporter.shutdown()


class _Reason(logging.Handler):
    """The last message that the SDK's exporter has logged in the thread that exports: its result says no reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._thread = 0

    def begin(self) -> None:
        self.text, self._thread = "no reason given", threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.text = one_line(record.getMessage())


def _otlp_exporter(settings: ServerSettings) -> MetricExporter:
    # The exporter parses it although it is given a time-out, and fails where it is no number.
    os.environ.pop("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", None)
    headers = dict(settings.headers)
    if settings.protocol == "grpc":
        # First, since it silences gRPC, which reads that when it is loaded.
        from ray_tracing_hooks._ship.transport.grpc import credentials  # noqa: PLC0415

        # isort: split
        from grpc import Compression  # noqa: PLC0415  only for this protocol
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

        return OTLPMetricExporter(
            settings.target,
            insecure=settings.tls is None,
            credentials=None if settings.tls is None else credentials(settings.tls),
            headers=headers,
            timeout=settings.timeout,
            compression=Compression.Gzip if settings.gzip else Compression.NoCompression,
            max_export_batch_size=_REQUEST_POINTS,
        )
    from opentelemetry.exporter.otlp.proto.http import Compression as HttpCompression  # noqa: PLC0415  as above
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter as HttpExporter,
    )

    tls = settings.tls or Tls()
    return HttpExporter(
        settings.target,
        certificate_file=tls.certificate,
        client_key_file=tls.client_key,
        client_certificate_file=tls.client_certificate,
        headers=headers,
        timeout=settings.timeout,
        compression=HttpCompression.Gzip if settings.gzip else HttpCompression.NoCompression,
    )


class Prometheus:
    """Serves the metrics of all its readers at ``address``, which is ``host:port``.

    Raises ImportError where OpenTelemetry's exporter for Prometheus is not installed.
    """

    def __init__(self, address: str, problems: Problems) -> None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415  an extra
        from prometheus_client import CollectorRegistry  # noqa: PLC0415

        class Registry(CollectorRegistry):
            """Shows a metric of several readers as one, as the format demands."""

            def collect(self) -> Iterator[Any]:
                families: dict[str, Any] = {}
                for family in super().collect():
                    known = families.setdefault(family.name, family)
                    if known is not family:
                        known.samples.extend(family.samples)
                yield from families.values()

        self._reader = PrometheusMetricReader
        self._registry = Registry()
        self._address = address
        self._problems = problems
        self._server: Any = None
        self._next = 0.0

    def reader(self) -> MetricReader:
        reader: MetricReader = self._reader(
            disable_target_info=True,
            scope_info_enabled=False,
            resource_attribute_filter=_LABELS.__contains__,
            registry=self._registry,
        )
        return reader

    def listen(self) -> None:
        """Listen at the address as soon as it is free. Called again and again."""
        from prometheus_client import start_http_server  # noqa: PLC0415

        if self._server is not None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LISTEN_AGAIN
        host, _, port = self._address.rpartition(":")
        try:
            self._server, _ = start_http_server(int(port), host.strip("[]"), self._registry)
        except OSError as error:
            self._problems.set(
                "prometheus",
                f"metrics are not served: cannot listen at {self._address} (RAY_TRACING_PROMETHEUS): {error.strerror}",
            )
            return
        self._problems.clear("prometheus")
        logger.info("metrics are at http://%s/metrics", self._address)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def otlp(settings: ServerSettings, problems: Problems) -> OtlpExporter | None:
    """The exporter with these settings; None where it cannot be made, which is reported."""
    try:
        return OtlpExporter(settings, problems)
    except Exception as error:  # noqa: BLE001  certificates cannot be read, for instance
        problems.warn_once(f"metrics are not sent to {settings.address}: {describe(error)}")
        return None


def prometheus(address: str, problems: Problems) -> Prometheus | None:
    """The server at this address; None where its package is not installed, which is reported."""
    try:
        return Prometheus(address, problems)
    except ImportError as error:
        problems.warn_once(f"metrics are not served at {address}: {PROMETHEUS_EXTRA} ({describe(error)})")
        return None


def _parts(data: MetricsData) -> Iterator[MetricsData]:
    """The same with a metric, and a bounded number of points, in each."""
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = metric.data.data_points
                for at in range(0, len(points), _LINE_POINTS):
                    # mypy takes no list for a list of one of the types of points.
                    some: Any = points[at : at + _LINE_POINTS]
                    part = replace(metric, data=replace(metric.data, data_points=some))
                    yield MetricsData([replace(resource, scope_metrics=[replace(scope, metrics=[part])])])


def _line(data: MetricsData) -> bytes:
    """A line of OTLP-JSON: protobuf's JSON, but with integer enums and hexadecimal ids."""
    found = json_format.MessageToDict(encode_metrics(data), use_integers_for_enums=True)
    for resource in found["resourceMetrics"]:
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"]:
                for point in (metric.get("histogram") or {}).get("dataPoints", ()):
                    for exemplar in point.get("exemplars", ()):
                        for key in ("traceId", "spanId"):
                            exemplar[key] = base64.b64decode(exemplar[key]).hex()
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
