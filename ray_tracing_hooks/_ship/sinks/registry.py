"""The sinks by the names of their exporters. The module of a sink is imported only when it is created."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from ray_tracing_hooks._formats.signals import LOGS, TRACES, Signal
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination, Sink, Surroundings


class _Registered(NamedTuple):
    """A sink of this package. Functions are named as ``module:function`` of this folder.

    Attributes:
        factory: Makes the sink of :class:`Surroundings`. Raises SettingError, DeliveryError.
        destination: Reads the :class:`Destination` from a plan, the environment, and a function that reports invalid
            settings. A driver calls it, so its module imports nothing heavy.
        signals: The signals that the sink can deliver.
    """

    factory: str
    destination: str
    signals: frozenset[Signal]


_SINKS = {
    "local": _Registered("local:LocalSink", "local:destination", frozenset({TRACES, LOGS})),
    "otlp": _Registered("otlp:make", "otlp_settings:destination", frozenset({TRACES, LOGS})),
    "jaeger": _Registered("jaeger:make", "jaeger_settings:destination", frozenset({TRACES})),
    "skywalking": _Registered("skywalking:make", "skywalking_settings:destination", frozenset({TRACES})),
}

_INSTALLED_SIGNALS = frozenset({TRACES})
"""The signals of an installed exporter: its entry point is in the group for spans."""


def known_sinks() -> tuple[str, ...]:
    """The names of the sinks that are part of this package."""
    return tuple(_SINKS)


def takes(name: str, signal: Signal) -> bool:
    """Whether the sink of this name can deliver ``signal``."""
    return signal in (_SINKS[name].signals if name in _SINKS else _INSTALLED_SIGNALS)


def usable(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Those of ``names`` that are a built-in sink or an installed exporter, and the problems of the others.

    If none of them is, ``local`` is used instead: unrequested local spans are better than none at all.
    """
    known, problems = [], []
    for name in names:
        if name in _SINKS or _is_installed(name):
            known.append(name)
        else:
            problems.append(
                f"unknown exporter {name!r} (RAY_TRACING_EXPORTERS, or OTEL_TRACES_EXPORTER); expected some of "
                f"{', '.join(_SINKS)} and the installed ones ({', '.join(_installed())}), or none"
            )
    if problems and not known:
        known = ["local"]
    return tuple(known), [f"{problem}; using {', '.join(known)}" for problem in problems]


def make_sink(name: str, surroundings: Surroundings) -> Sink:
    """The sink of this name. Raises SettingError for an unknown name, DeliveryError if it cannot work now."""
    if name not in _SINKS:
        from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  as in _is_installed

        return entry_point.make(name, surroundings)
    return cast("Sink", _function(_SINKS[name].factory)(surroundings))


def destination_of(
    name: str, plan: ShipPlan, environ: Mapping[str, str], problem: Callable[[str], None]
) -> Destination:
    """The destination of the sink of this name. Invalid settings are passed to ``problem``."""
    if name not in _SINKS:
        from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  as in _is_installed

        return entry_point.destination(name, plan, environ)
    return cast("Destination", _function(_SINKS[name].destination)(plan, environ, problem))


def _function(name: str) -> Callable[..., object]:
    module, _, function = name.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    return found


def _is_installed(name: str) -> bool:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  not needed for our own sinks

    return entry_point.is_installed(name)


def _installed() -> tuple[str, ...]:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  as above

    return entry_point.names()
