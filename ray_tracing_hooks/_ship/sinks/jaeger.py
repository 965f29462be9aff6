"""Jaeger: by OTLP, or by its own protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from ray_tracing_hooks._errors import SettingError
from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.jaeger import JaegerSpan, Process, jaeger_span, process
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._formats.span import Scope, decode_resource, decode_scope, decode_span
from ray_tracing_hooks._formats.wire import FormatError
from ray_tracing_hooks._ship.sinks import Sink, Surroundings, jaeger_settings
from ray_tracing_hooks._ship.sinks.jaeger_settings import JaegerSettings
from ray_tracing_hooks._ship.sinks.sending import REQUEST_BYTES, SendingSink
from ray_tracing_hooks._ship.transport import Tls, Transport

_DATAGRAM_SPANS_BYTES = 20_000
"""Encoded spans of so many bytes nearly always fit into a datagram with their process; the others are halved."""

_POST_SPANS = "/jaeger.api_v2.CollectorService/PostSpans"

_Encode = Callable[[Process, Sequence[JaegerSpan]], bytes]


def make(surroundings: Surroundings) -> Sink:
    """The sink that the settings ask for. Raises SettingError where a package is missing."""
    settings = jaeger_settings.read(surroundings.plan, surroundings.environ, surroundings.problem)
    if settings.protocol.startswith("otlp"):
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
    transport, encode = _transport(settings)
    return JaegerSink(settings, surroundings, transport, encode)


class JaegerSink(SendingSink):
    """Sends Jaeger's ``Batch``: the spans of one process."""

    def __init__(
        self, settings: JaegerSettings, surroundings: Surroundings, transport: Transport, encode: _Encode
    ) -> None:
        super().__init__(surroundings, transport, settings.delay)
        self._max_spans = settings.max_spans
        self._max_bytes = _DATAGRAM_SPANS_BYTES if settings.protocol == "thrift-udp" else REQUEST_BYTES // 2
        self._encode = encode

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        for of_one in _by_resource(groups):
            yield from otlp.cut(of_one, self._max_bytes, self._max_spans)

    def encode(self, groups: Sequence[Group]) -> bytes:
        spans: list[JaegerSpan] = []
        bad = 0
        for group in groups:
            scope = _scope(group.scope)
            for span in group.spans:
                try:
                    spans.append(jaeger_span(decode_span(span), scope))
                except FormatError:
                    bad += 1
        self._count("{count} spans could not be decoded and were skipped", bad)
        return self._encode(_process(groups[0].resource), spans)

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        """Jaeger's answers say nothing."""


def _by_resource(groups: Sequence[Group]) -> Iterator[list[Group]]:
    sorted_: dict[bytes, list[Group]] = {}
    for group in groups:
        sorted_.setdefault(group.resource, []).append(group)
    yield from sorted_.values()


@lru_cache(maxsize=1024)
def _process(resource: bytes) -> Process:
    try:
        return process(decode_resource(resource))
    except FormatError:
        return process({})


@lru_cache(maxsize=1024)
def _scope(scope: bytes) -> Scope:
    try:
        return decode_scope(scope)
    except FormatError:
        return Scope("", "", {})


def _transport(settings: JaegerSettings) -> tuple[Transport, _Encode]:
    if settings.protocol == "grpc":
        from ray_tracing_hooks._formats.jaeger_proto import post_spans_request  # noqa: PLC0415
        from ray_tracing_hooks._ship.transport.grpc import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(
            settings.target,
            _POST_SPANS,
            address=settings.address,
            headers=settings.headers,
            timeout=settings.timeout,
            gzip=False,
            tls=settings.tls,
        ), post_spans_request
    try:
        from ray_tracing_hooks._formats import jaeger_thrift  # noqa: PLC0415
    except ImportError as error:
        raise SettingError(
            f"RAY_TRACING_JAEGER_PROTOCOL={settings.protocol} needs the package 'thrift', which is not installed "
            f"({error}): pip install 'ray-tracing-hooks[jaeger]', or use otlp-grpc, which needs nothing more"
        ) from error
    if settings.protocol == "thrift-udp":
        from ray_tracing_hooks._ship.transport.udp import UdpTransport  # noqa: PLC0415

        host, _, port = settings.target.rpartition(":")
        return UdpTransport(host.strip("[]"), int(port)), jaeger_thrift.emit_batch
    from ray_tracing_hooks._ship.transport.http import HttpTransport  # noqa: PLC0415

    return HttpTransport(
        settings.target,
        address=settings.address,
        content_type="application/x-thrift",
        headers=settings.headers,
        timeout=settings.timeout,
        gzip=False,
        tls=settings.tls or Tls(),
    ), jaeger_thrift.batch
