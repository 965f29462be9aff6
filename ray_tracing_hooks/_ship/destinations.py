"""The destinations of spans as text, for a driver's message that tracing is on."""

from __future__ import annotations

from collections.abc import Mapping

from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination
from ray_tracing_hooks._ship.sinks.registry import destination_of, usable


def destinations(plan: ShipPlan, environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The destinations of spans of this plan, and problems of their settings. No connection is made.

    A destination that is known not to work is left out.
    """
    found, problems = configured(plan, environ)
    texts = []
    for each in found:
        wrong = each.check()
        if wrong is None:
            texts.append(each.text)
        else:
            problems.append(wrong)
    return texts, problems


def configured(plan: ShipPlan, environ: Mapping[str, str]) -> tuple[list[Destination], list[str]]:
    """The destinations by their settings alone, and problems of these. Nothing is created or tried."""
    exporters, problems = usable(plan.exporters)
    found = [destination_of(name, plan, environ, problems.append) for name in exporters]
    if plan.has_metrics:
        from ray_tracing_hooks._ship.metrics import settings as metrics  # noqa: PLC0415  only if it is used

        metrics.read(plan._replace(exporters=exporters), environ, problems.append)
        address = plan.settings.prometheus
        if address is not None and not metrics.is_prometheus_installed():
            problems.append(f"metrics are not served at {address}: {metrics.PROMETHEUS_EXTRA}")
    return found, problems


def otlp_targets(plan: ShipPlan, environ: Mapping[str, str]) -> frozenset[str]:
    """The OTLP endpoints of this plan's exporters: ``host:port`` for gRPC, a URL for HTTP."""

    def ignore(_problem: str) -> None:
        """The driver has reported it."""

    sending = [name for name in plan.exporters if name in ("otlp", "jaeger")]
    targets = {destination_of(name, plan, environ, ignore).otlp_target for name in sending}
    return frozenset(target for target in targets if target is not None)
