"""Spans to Jaeger.

    export RAY_TRACING_JAEGER_ENDPOINT=http://jaeger:4317
    ray start --head --tracing-startup-hook=ray_tracing_hooks.jaeger:setup

    ray.init(_tracing_startup_hook="ray_tracing_hooks.jaeger:setup")

Jaeger accepts OTLP since 1.35, so OTLP is the default. ``RAY_TRACING_JAEGER_PROTOCOL`` selects another protocol:
``otlp-http``, or Jaeger's own ``thrift-http``, ``thrift-udp`` and ``grpc``. The endpoint can also be given by
``OTEL_EXPORTER_JAEGER_ENDPOINT`` or ``OTEL_EXPORTER_JAEGER_AGENT_HOST``; ``_AGENT_PORT``, ``_USER``, ``_PASSWORD``,
``_TIMEOUT`` and ``_CERTIFICATE`` apply too. Without any, spans go to ``localhost``.
"""

from __future__ import annotations

__all__ = ["setup"]


def setup() -> None:
    """Trace this process to Jaeger.

    Ray calls it in the driver and in every worker. It takes no arguments, can be called again, and never raises, unless
    ``RAY_TRACING_STRICT=1``.
    """
    from ray_tracing_hooks._startup import start  # noqa: PLC0415

    start(exporters=("jaeger",))
