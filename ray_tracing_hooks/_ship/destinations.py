"""The destinations of spans as text, for a driver's message that tracing is on."""

from __future__ import annotations

from collections.abc import Mapping

from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sinks.registry import usable


def destinations(plan: ShipPlan, environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The destinations of spans of this plan, and problems of their settings. No connection is made.

    A destination that is known not to work is left out.
    """
    exporters, problems = usable(plan.exporters)
    places = []
    for name in exporters:
        if name == "local":
            from ray_tracing_hooks._ship.sinks.local import check_folder  # noqa: PLC0415  each only if it is used

            problem = check_folder(plan.local_dir)
            if problem is not None:
                problems.append(problem)
            else:
                places.append(plan.local_dir)
        elif name == "otlp":
            from ray_tracing_hooks._ship.sinks import otlp_settings  # noqa: PLC0415

            places.append(f"OTLP {otlp_settings.read(environ, problems.append).address}")
        elif name == "jaeger":
            from ray_tracing_hooks._ship.sinks import jaeger_settings  # noqa: PLC0415

            places.append(f"Jaeger {jaeger_settings.read(plan, environ, problems.append).address}")
        elif name == "console" and plan.console_file is not None:
            places.append(plan.console_file)
        else:
            places.append(name)
    if plan.metrics:
        from ray_tracing_hooks._ship.metrics import settings as metrics  # noqa: PLC0415  as above

        if metrics.are_taken(exporters):
            metrics.read(exporters, environ, problems.append)
        else:
            problems.append(metrics.NOT_TAKEN)
    return places, problems


def otlp_targets(plan: ShipPlan, environ: Mapping[str, str]) -> frozenset[str]:
    """The OTLP endpoints of this plan's exporters: ``host:port`` for gRPC, a URL for HTTP."""

    def ignore(_problem: str) -> None:
        """The driver has reported it."""

    targets = set()
    if "otlp" in plan.exporters:
        from ray_tracing_hooks._ship.sinks import otlp_settings  # noqa: PLC0415  as above

        targets.add(otlp_settings.read(environ, ignore).target)
    if "jaeger" in plan.exporters and plan.jaeger_protocol.startswith("otlp"):
        from ray_tracing_hooks._ship.sinks import jaeger_settings  # noqa: PLC0415

        targets.add(jaeger_settings.read(plan, environ, ignore).target)
    return frozenset(targets)
