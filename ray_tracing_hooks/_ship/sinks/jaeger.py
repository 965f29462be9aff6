"""Jaeger, over OTLP or over its own protocols."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from ray_tracing_hooks._errors import SettingError
from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._formats.jaeger import Encoder, jaeger_span, process
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._ship.sink import Sink, Surroundings
from ray_tracing_hooks._ship.sinks import jaeger_settings
from ray_tracing_hooks._ship.sinks.decoding import resource_of, scope_of
from ray_tracing_hooks._ship.sinks.jaeger_settings import JaegerSettings
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink
from ray_tracing_hooks._ship.transport.contract import Tls, Transport

_POST_SPANS = "/jaeger.api_v2.CollectorService/PostSpans"

_BATCH_HEAD = 64
"""An upper bound of the bytes of a request besides its process and its spans."""


def make(surroundings: Surroundings) -> Sink:
    """The sink for the settings. Raises SettingError if a package is missing."""
    settings = jaeger_settings.read(surroundings.plan, surroundings.environ, surroundings.problem)
    if settings.protocol.startswith("otlp"):
        return _otlp_sink(settings, surroundings)
    encoder = _encoder(settings.protocol)
    return JaegerSink(settings, surroundings, _transport(settings), encoder)


class JaegerSink(SendingSink):
    """Sends Jaeger's ``Batch`` messages, each with spans of one process.

    Over UDP a batch counts as accepted when it has been sent, since there is no response.
    """

    def __init__(
        self, settings: JaegerSettings, surroundings: Surroundings, transport: Transport, encoder: Encoder
    ) -> None:
        super().__init__(surroundings, transport, settings.delay)
        self._encoder = encoder
        self._max_spans = settings.max_spans
        self._max_bytes = REQUEST_BYTES
        if settings.protocol == "thrift-udp":
            from ray_tracing_hooks._ship.transport.udp import DATAGRAM_BYTES  # noqa: PLC0415  only where it is used

            self._max_bytes = DATAGRAM_BYTES
        self._max_bytes -= _BATCH_HEAD

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        # Encode here, so that sizes are exact, and only once however often a request is retried.
        for group in self._encoded(groups):
            yield from otlp.cut([group], self._max_bytes, self._max_spans)

    def encode(self, groups: Sequence[Group]) -> bytes:
        return self._encoder.request(groups[0].resource, [span for group in groups for span in group.spans])

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        """Jaeger's responses are empty."""

    def _encoded(self, groups: Sequence[Group]) -> list[Group]:
        """The spans in Jaeger's format, grouped by process, with the process in place of the resource."""
        spans_of: dict[bytes, list[bytes]] = {}
        bad = 0
        for group in groups:
            spans, scope = spans_of.setdefault(group.resource, []), scope_of(group.scope)
            for span in group.spans:
                try:
                    spans.append(self._encoder.span(jaeger_span(decode_span(span), scope)))
                except (ValueError, OverflowError, RecursionError, struct.error):  # malformed, or numbers out of range
                    bad += 1
        self._lose("{count} spans could not be decoded and were skipped", bad)
        return [
            Group(self._encoder.process(process(resource_of(resource))), b"", spans)
            for resource, spans in spans_of.items()
        ]


# Only the library that is needed is imported.


def _otlp_sink(settings: JaegerSettings, surroundings: Surroundings) -> Sink:
    from ray_tracing_hooks._ship.sinks.otlp import OtlpSink  # noqa: PLC0415
    from ray_tracing_hooks._ship.sinks.otlp_settings import OtlpSettings  # noqa: PLC0415

    return OtlpSink(
        OtlpSettings(
            protocol="grpc" if settings.protocol == "otlp-grpc" else "http/protobuf",
            target=settings.target,
            address=settings.address,
            headers=settings.headers,
            timeout=settings.timeout,
            gzip=False,
            tls=settings.tls,
            max_spans=settings.max_spans,
            delay=settings.delay,
        ),
        surroundings,
    )


def _encoder(protocol: str) -> Encoder:
    if protocol == "grpc":
        from ray_tracing_hooks._formats.jaeger_proto import API_V2  # noqa: PLC0415

        return API_V2
    try:
        from ray_tracing_hooks._formats import jaeger_thrift  # noqa: PLC0415
    except ImportError as error:
        raise SettingError(
            f"RAY_TRACING_JAEGER_PROTOCOL={protocol} needs the package 'thrift', which cannot be imported ({error}): "
            "pip install 'ray-tracing-hooks[jaeger]' on every node, or use otlp-grpc, which needs no package"
        ) from error
    return jaeger_thrift.COMPACT if protocol == "thrift-udp" else jaeger_thrift.BINARY


def _transport(settings: JaegerSettings) -> Transport:
    if settings.protocol == "thrift-udp":
        from ray_tracing_hooks._ship.transport.udp import UdpTransport  # noqa: PLC0415

        host, _, port = settings.target.rpartition(":")
        return UdpTransport(host.strip("[]"), int(port))
    if settings.protocol == "grpc":
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(
            settings.target,
            _POST_SPANS,
            address=settings.address,
            headers=settings.headers,
            timeout=settings.timeout,
            gzip=False,
            tls=settings.tls,
        )
    from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

    return HttpTransport(
        settings.target,
        address=settings.address,
        content_type="application/x-thrift",
        headers=settings.headers,
        timeout=settings.timeout,
        gzip=False,
        tls=settings.tls or Tls(),
    )
