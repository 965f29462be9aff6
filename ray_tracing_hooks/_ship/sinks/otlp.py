"""OTLP to a collector, by gRPC or HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._ship.sinks import Surroundings, otlp_settings
from ray_tracing_hooks._ship.sinks.otlp_settings import OtlpSettings
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink
from ray_tracing_hooks._ship.transport import Tls, Transport

_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def make(surroundings: Surroundings) -> OtlpSink:
    """The sink that the standard variables ask for."""
    return OtlpSink(otlp_settings.read(surroundings.environ, surroundings.problem), surroundings)


class OtlpSink(SendingSink):
    """Sends ``ExportTraceServiceRequest`` messages, as the OTLP specification says."""

    def __init__(self, settings: OtlpSettings, surroundings: Surroundings) -> None:
        super().__init__(surroundings, _transport(settings), settings.delay)
        self._max_spans = settings.max_spans
        self._json = settings.protocol == "http/json"

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        # In JSON a span takes about twice as much.
        return otlp.cut(groups, REQUEST_BYTES // 2 if self._json else REQUEST_BYTES, self._max_spans)

    def encode(self, groups: Sequence[Group]) -> bytes:
        if not self._json:
            return otlp.encode(groups)
        body, bad = otlp.encode_json(groups)
        self._count("{count} spans could not be decoded and were skipped", bad)
        return body

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        rejected, message = otlp.decode_json_answer(answer) if self._json else otlp.decode_answer(answer)
        message = " ".join(message.split())[:200]
        if rejected:
            self.refuse(rejected, message or "it does not say why")
        elif message:
            self._problem(f"{self._transport.address} took the spans and says: {message}")


def _transport(settings: OtlpSettings) -> Transport:
    """Of the two libraries only the one that is needed is imported."""
    if settings.protocol == "grpc":
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(
            settings.target,
            _METHOD,
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
