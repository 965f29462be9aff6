"""Spans to SkyWalking, and traces that continue from and into processes of its agents.

    export SW_AGENT_COLLECTOR_BACKEND_SERVICES=oap:11800 SW_AGENT_NAME=my-ray
    ray start --head --tracing-startup-hook=ray_tracing_hooks.skywalking:setup

    ray.init(_tracing_startup_hook="ray_tracing_hooks.skywalking:setup")

Requests that arrive with the header ``sw8`` continue their trace. Requests of instrumented libraries get such a header.
``RAY_TRACING_SKYWALKING_PROTOCOL=sw6`` is for SkyWalking 6.x and 7.x. ``RAY_TRACING_SKYWALKING_*`` configure the back
end, and so do the variables of SkyWalking's own agents, ``SW_AGENT_*``. With
``RAY_TRACING_SKYWALKING_TRANSPORT=none``, nothing is sent to SkyWalking: traces are joined by headers alone, and spans
go to the exporters in ``RAY_TRACING_EXPORTERS``.
"""

from __future__ import annotations

__all__ = ["setup"]


def setup() -> None:
    """Trace this process to SkyWalking.

    Ray calls it in the driver and in every worker. It takes no arguments, can be called again, and never raises, unless
    ``RAY_TRACING_STRICT=1``.
    """
    from ray_tracing_hooks._startup import start  # noqa: PLC0415

    start(exporters=("skywalking",))
