"""The settings of the sink of Jaeger."""

from __future__ import annotations

from ray_tracing_hooks._settings.table import Values, setting
from ray_tracing_hooks._settings.values import URL, one_of


class Settings(Values):
    """The names begin with ``jaeger_``."""

    prefix = "jaeger_"

    protocol: str = setting(
        one_of("otlp-grpc", "otlp-http", "thrift-http", "thrift-udp", "grpc"),
        "otlp-grpc",
        "how the Jaeger exporter sends: `otlp-grpc`, `otlp-http`, or Jaeger's own `thrift-http`, `thrift-udp`, `grpc`",
    )
    endpoint: str | None = setting(
        URL,
        None,
        "the address of Jaeger, such as `http://jaeger:4317`",
        "from `OTEL_EXPORTER_JAEGER_*`, else localhost",
        secret=True,
    )
