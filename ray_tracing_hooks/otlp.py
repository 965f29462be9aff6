"""Spans over OTLP to a collector, or to any back end that accepts OTLP, configured by the standard variables.

    export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317
    ray start --head --tracing-startup-hook=ray_tracing_hooks.otlp:setup

    ray.init(_tracing_startup_hook="ray_tracing_hooks.otlp:setup")

All ``OTEL_EXPORTER_OTLP_*`` variables apply, in their general and their traces-specific form: ``ENDPOINT``,
``PROTOCOL`` (``grpc``, ``http/protobuf``, ``http/json``), ``HEADERS``, ``TIMEOUT``, ``COMPRESSION``, ``INSECURE``,
``CERTIFICATE``, ``CLIENT_CERTIFICATE`` and ``CLIENT_KEY``. Without any, spans go to ``localhost`` over gRPC.
"""

from __future__ import annotations

__all__ = ["setup"]


def setup() -> None:
    """Trace this process to an OTLP endpoint.

    Ray calls it in the driver and in every worker. It takes no arguments, can be called again, and never raises, unless
    ``RAY_TRACING_STRICT=1``.
    """
    from ray_tracing_hooks._startup import start  # noqa: PLC0415

    start(exporters=("otlp",))
