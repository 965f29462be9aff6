"""Tracing of Ray programs with OpenTelemetry, switched on by one line.

    ray start --head --tracing-startup-hook=ray_tracing_hooks:setup
    ray.init(_tracing_startup_hook="ray_tracing_hooks:setup")

``RAY_TRACING_EXPORTERS`` names the exporters (default ``local``). ``ray_tracing_hooks.local:setup``
always writes local files.
"""

from __future__ import annotations

__all__ = ["__version__", "setup"]

__version__: str


def setup() -> None:
    """Trace this process with the exporters that ``RAY_TRACING_EXPORTERS`` names.

    Ray calls it in the driver and in every worker. It takes no arguments, can be called again, and never raises, unless
    ``RAY_TRACING_STRICT=1``.
    """
    # Imported here, not at the top: importing this module must not fail, and `start` guards everything else.
    from ray_tracing_hooks._startup import start  # noqa: PLC0415

    start()


def __getattr__(name: str) -> str:
    # Lazy: a process that only moves objects, or uses one module of the package, need not import it.
    if name == "__version__":
        from ray_tracing_hooks._version import __version__  # noqa: PLC0415

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
