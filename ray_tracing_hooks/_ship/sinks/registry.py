"""The sinks by the names of their exporters. The module of a sink is imported only where it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Protocol, cast

from ray_tracing_hooks._formats.signals import TRACES, Signal
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination, Sink, Surroundings

_SINKS = ("local", "otlp", "jaeger", "skywalking")
"""The sinks of this package, each a module of its name in this folder with the functions of :class:`_Module`."""


class _Module(Protocol):
    """The module of a sink. A driver imports it to log where its spans go, so it imports nothing heavy.

    Attributes:
        SIGNALS: The signals that the sink can deliver.
    """

    SIGNALS: frozenset[Signal]

    def make(self, surroundings: Surroundings) -> Sink:
        """The sink. Raises SettingError, DeliveryError."""

    def destination(self, plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]) -> Destination:
        """Where it delivers to. Invalid settings are passed to ``problem``."""


def known_sinks() -> tuple[str, ...]:
    """The names of the sinks that are part of this package."""
    return _SINKS


def takes(name: str, signal: Signal) -> bool:
    """Whether the sink of this name can deliver ``signal``. Installed exporters deliver spans."""
    return signal in _module(name).SIGNALS if name in _SINKS else signal is TRACES


def usable(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Those of ``names`` that are a built-in sink or an installed exporter, and the problems of the others.

    If none of them is, ``local`` is used instead: unrequested local spans are better than none at all.
    """
    known, problems = [], []
    for name in names:
        if name in _SINKS or _installed().is_installed(name):
            known.append(name)
        else:
            problems.append(
                f"unknown exporter {name!r} (RAY_TRACING_EXPORTERS, or OTEL_TRACES_EXPORTER); expected some of "
                f"{', '.join(_SINKS)} and the installed ones ({', '.join(_installed().names())}), or none"
            )
    if problems and not known:
        known = ["local"]
    return tuple(known), [f"{problem}; using {', '.join(known)}" for problem in problems]


def make_sink(name: str, surroundings: Surroundings) -> Sink:
    """The sink of this name. Raises SettingError for an unknown name, DeliveryError if it cannot work now."""
    if name in _SINKS:
        return _module(name).make(surroundings)
    made: Sink = _installed().make(name, surroundings)
    return made


def destination_of(
    name: str, plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]
) -> Destination:
    """The destination of the sink of this name. Invalid settings are passed to ``problem``."""
    if name in _SINKS:
        return _module(name).destination(plan, environ, problem)
    found: Destination = _installed().destination(name, plan, environ)
    return found


def _module(name: str) -> _Module:
    return cast("_Module", importlib.import_module(f"{__package__}.{name}"))


def _installed() -> ModuleType:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  heavy, and not needed for our own sinks

    return entry_point
