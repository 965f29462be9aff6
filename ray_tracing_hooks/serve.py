"""Ray Serve's own tracing, recorded and delivered by this package, without tracing the rest of Ray.

    RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=ray_tracing_hooks.serve:span_processors
    RAY_SERVE_TRACING_SAMPLING_RATIO=1.0

Use this if you want Serve's spans and no others. It needs Ray 2.56 or later; ``TracingConfig.exporter_import_path`` is
the same option. The spans go to the exporters in ``RAY_TRACING_EXPORTERS``. With one of the hooks, you do not need it:
the hook traces requests to Serve, with more detail and no further setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

__all__ = ["span_processors"]


def span_processors() -> list[SpanProcessor]:
    """Record the spans of Serve in this process, and deliver them.

    Serve calls it in each proxy and replica. The list is empty on purpose: this package adds its processor to the
    provider that Serve sets right after this call, and to a provider that the program sets. If one of the hooks runs,
    this does nothing. It never raises, unless ``RAY_TRACING_STRICT=1``.
    """
    from ray_tracing_hooks import _startup  # noqa: PLC0415

    _startup.record()
    return []
