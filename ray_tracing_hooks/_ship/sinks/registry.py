"""The sinks by the names of their exporters. The module of a sink is imported only when it is created."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple, cast

from ray_tracing_hooks._formats.signals import LOGS, TRACES, Signal
from ray_tracing_hooks._ship.sink import Sink, Surroundings


class _Registered(NamedTuple):
    """A sink of this package: its factory as ``module:function``, and the signals that it can deliver."""

    factory: str
    signals: frozenset[Signal]


_SINKS = {
    "local": _Registered("ray_tracing_hooks._ship.sinks.local:LocalSink", frozenset({TRACES, LOGS})),
    "otlp": _Registered("ray_tracing_hooks._ship.sinks.otlp:make", frozenset({TRACES, LOGS})),
    "jaeger": _Registered("ray_tracing_hooks._ship.sinks.jaeger:make", frozenset({TRACES})),
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
    module, _, factory = _SINKS[name].factory.partition(":")
    return cast("Sink", getattr(importlib.import_module(module), factory)(surroundings))


def _is_installed(name: str) -> bool:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  not needed for our own sinks

    return entry_point.is_installed(name)


def _installed() -> tuple[str, ...]:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  as above

    return entry_point.names()
