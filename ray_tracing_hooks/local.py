"""Spans as files on this machine, for reading with ``ray-tracing-hooks tree`` or any tool that reads OTLP-JSON.

    ray start --head --tracing-startup-hook=ray_tracing_hooks.local:setup
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")

Spans go to ``*.jsonl`` files under ``RAY_TRACING_LOCAL_DIR`` (default ``/tmp/spans``), one OTLP ``TracesData`` a line.
"""

from __future__ import annotations

__all__ = ["setup"]


def setup() -> None:
    """Trace this process to local files.

    Ray calls it in the driver and in every worker. It takes no arguments, can be called again, and never raises, unless
    ``RAY_TRACING_STRICT=1``.
    """
    from ray_tracing_hooks._startup import start  # noqa: PLC0415

    start(exporters=("local",))
