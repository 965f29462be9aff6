"""OTLP to a collector over gRPC or HTTP: spans and log records, each with its own settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._formats.signals import LOGS, METRICS, TRACES, Signal
from ray_tracing_hooks._ship.sink import Surroundings
from ray_tracing_hooks._ship.sinks import otlp_settings
from ray_tracing_hooks._ship.sinks.otlp_settings import OtlpSettings
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink
from ray_tracing_hooks._ship.transport.contract import Refused, Tls, Transport, one_line

_METHODS = {
    TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}

_MOST_WARNINGS = 5
"""Bounds the reports: a server may put a time or a number into each of its warnings."""


def make(surroundings: Surroundings) -> OtlpSink:
    """The sink that the standard variables configure."""
    settings = otlp_settings.read(surroundings.environ, surroundings.problem, surroundings.signal)
    return OtlpSink(settings, surroundings)


class OtlpSink(SendingSink):
    """Sends ``ExportTraceServiceRequest`` messages, or those of another signal, by the OTLP specification."""

    def __init__(self, settings: OtlpSettings, surroundings: Surroundings) -> None:
        super().__init__(surroundings, connect(settings, surroundings.signal), settings.delay)
        self._signal = surroundings.signal
        self._max_spans = settings.max_spans
        self._json = settings.protocol == "http/json"
        self._undecodable = 0
        self._warnings: set[str] = set()

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        # In JSON a span takes about twice as much.
        return otlp.cut(groups, REQUEST_BYTES // 2 if self._json else REQUEST_BYTES, self._max_spans)

    def encode(self, groups: Sequence[Group]) -> bytes:
        if not self._json:
            return otlp.encode(groups)
        # Counted when the request is accepted, since it may be encoded more than once.
        body, self._undecodable = otlp.encode_json(groups, self._signal)
        return body

    def parts(self, groups: Sequence[Group], refusal: Refused) -> Sequence[list[Group]]:
        return otlp.halves_by_trace(groups) if refusal.too_large_trace else super().parts(groups, refusal)

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        self._lose(f"{{count}} {self._items} could not be decoded and were skipped", self._undecodable)
        rejected, message = otlp.decode_json_answer(answer, self._signal) if self._json else otlp.decode_answer(answer)
        message = one_line(message)
        if rejected:
            self.refuse(min(rejected, otlp.count(groups)), message or "it gives no reason")
        elif message and message not in self._warnings and len(self._warnings) < _MOST_WARNINGS:
            self._warnings.add(message)
            self._problem(f"{self._transport.address} accepted the {self._items} with a warning: {message}")


def connect(settings: OtlpSettings, signal: Signal) -> Transport:
    """The transport for requests with ``signal``, by ``settings``.

    Only the library that is needed is imported.
    """
    if settings.protocol == "grpc":
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(
            settings.target,
            _METHODS[signal],
            address=settings.address,
            headers=settings.headers,
            timeout=settings.timeout,
            gzip=settings.gzip,
            tls=settings.tls,
        )
    from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

    return HttpTransport(
        settings.target,
        address=settings.address,
        content_type="application/json" if settings.protocol == "http/json" else "application/x-protobuf",
        headers=settings.headers,
        timeout=settings.timeout,
        gzip=settings.gzip,
        tls=settings.tls or Tls(),
    )
