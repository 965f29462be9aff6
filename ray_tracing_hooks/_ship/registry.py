"""The sinks by the names of their exporters. The module of a sink is imported only where it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Protocol, cast

from ray_tracing_hooks._formats.otlp import TRACES, Signal
from ray_tracing_hooks._settings.table import SINKS
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination, Sink, SinkContext


class _Module(Protocol):
    """The module of each sink in ``SINKS``. A driver imports it to log where its spans go, so it imports nothing heavy.

    Attributes:
        SIGNALS: The signals that the sink can deliver.
    """

    SIGNALS: frozenset[Signal]

    def make(self, context: SinkContext) -> Sink:
        """The sink. Raises SettingError, DeliveryError."""

    def destination(self, plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
        """Where it delivers to. Invalid settings are passed to ``problem``."""


def takes(name: str, signal: Signal) -> bool:
    """Whether the sink of this name can deliver ``signal``. Installed exporters deliver spans."""
    return signal in _module(name).SIGNALS if name in SINKS else signal is TRACES


def usable(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Those of ``names`` that are a built-in sink or an installed exporter, and the problems of the others.

    If none of them is, ``local`` is used instead: unrequested local spans are better than none at all.
    """
    known, problems = [], []
    for name in names:
        if name in SINKS or _installed().is_installed(name):
            known.append(name)
        else:
            problems.append(
                f"unknown exporter {name!r} (RAY_TRACING_EXPORTERS, or OTEL_TRACES_EXPORTER); expected some of "
                f"{', '.join(SINKS)} and the installed ones ({', '.join(_installed().names())}), or none"
            )
    if problems and not known:
        known = ["local"]
    return tuple(known), [f"{problem}; using {', '.join(known)}" for problem in problems]


def make_sink(name: str, context: SinkContext) -> Sink:
    """The sink of this name. Raises SettingError for an unknown name, DeliveryError if it cannot work now."""
    if name in SINKS:
        return _module(name).make(context)
    made: Sink = _installed().make(name, context)
    return made


def destination_of(
    name: str, plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]
) -> Destination:
    """The destination of the sink of this name. Invalid settings are passed to ``problem``."""
    if name in SINKS:
        return _module(name).destination(plan, environ, problem)
    found: Destination = _installed().destination(name, plan, environ)
    return found


def _module(name: str) -> _Module:
    return cast("_Module", importlib.import_module(f"{__package__}.sinks.{name}"))


def _installed() -> ModuleType:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  heavy, and not needed for our own sinks

    return entry_point


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
        from ray_tracing_hooks._ship.sinks import otlp  # noqa: PLC0415  only if it is used

        otlp.read_metrics(plan._replace(exporters=exporters), environ, problems.append)
        address = plan.settings.prometheus
        if address is not None and not otlp.is_prometheus_installed():
            problems.append(f"metrics are not served at {address}: {otlp.PROMETHEUS_EXTRA}")
    return found, problems


def otlp_targets(plan: ShipPlan, environ: Mapping[str, str]) -> frozenset[str]:
    """The OTLP endpoints of this plan's exporters: ``host:port`` for gRPC, a URL for HTTP."""
    ours = [name for name in plan.exporters if name in SINKS]
    # The driver has reported their problems.
    targets = {destination_of(name, plan, environ, lambda _problem: None).otlp_target for name in ours}
    return frozenset(target for target in targets if target is not None)
