"""Where spans go: each sink is a module of its own, imported only by the shipper that uses it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks._formats.signals import LOGS, TRACES, Signal
from ray_tracing_hooks._ship.plan import ShipPlan

_SINKS = {
    "local": "ray_tracing_hooks._ship.sinks.local:LocalSink",
    "otlp": "ray_tracing_hooks._ship.sinks.otlp:make",
    "jaeger": "ray_tracing_hooks._ship.sinks.jaeger:make",
}


_OF_LOGS = frozenset({"local", "otlp"})
"""Those that take log records too."""

METRICS_SINK = "metrics"
"""The name of the sink that counts spans for metrics, which no user chooses."""


class DeliveryError(TracingError):
    """Spans could not be delivered now. The shipper keeps them and tries again; the message is for the user.

    ``retry_after`` is how many seconds the server asks to be left alone.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Batch(NamedTuple):
    """Encoded spans, or log records, of one encoded resource and scope."""

    resource: bytes
    scope: bytes
    spans: list[bytes]


class Sink(Protocol):
    """A place that spans are delivered to. All calls come from one thread, and may block.

    ``delay`` is how many seconds spans may wait in the spool so that more of them go at once. A sink that also has
    ``needs_company``, true after a failure, gets what has come since added to the same portion when it is next called.

    A sink that sends in its own time what it makes of spans also has ``turned(hurry)``, which is called when its state
    has been stored, and tells whether it is another one since. With ``hurry`` somebody waits for what it has to send,
    as long as ``is_sending`` is true. Where ``may_forget`` is true, its state is not stored after each delivery, but at
    the end of a turn and from time to time; and a state that cannot be stored holds nothing up.
    """

    delay: float

    def deliver(self, batches: Sequence[Batch]) -> None:
        """Deliver all of ``batches``. A span that can never be delivered is skipped and counted.

        Raises DeliveryError if it could not be done now. Then the same batches come again, and the sink sees to it, as
        far as it can, that no span arrives twice.
        """

    def checkpoint(self) -> Mapping[str, Any]:
        """What to hand to the next shipper's sink, as JSON, so that it goes on after the last delivery."""

    def close(self) -> None:
        """Nothing more is delivered."""


@dataclass(frozen=True)
class Surroundings:
    """What a sink is made with.

    Attributes:
        plan: The settings.
        state: The last :meth:`Sink.checkpoint` that was stored, or nothing.
        remember: Stores a state between two checkpoints. Raises OSError.
        count: Tells the user of losses: a text with the place ``{count}``, and how many more there are.
        environ: The environment variables that say how to deliver.
        problem: Tells the user of a wrong setting.
        trouble: Tells the user of something, by a name, that does not work at present; with None, that it does again.
        wake: To be called when a sink that sends in its own time has done so, or has failed.
        signal: What is delivered. Where its protocol knows that of spans alone, a sink need not look.
    """

    plan: ShipPlan
    state: Mapping[str, Any]
    remember: Callable[[Mapping[str, Any]], None]
    count: Callable[[str, int], None]
    environ: Mapping[str, str] = field(repr=False)
    problem: Callable[[str], None]
    trouble: Callable[[str, str | None], None] = lambda _name, _text: None
    wake: Callable[[], None] = lambda: None
    signal: Signal = TRACES


def takes(name: str, signal: Signal) -> bool:
    """Whether the sink of this name can deliver ``signal``."""
    return signal is not LOGS or name in _OF_LOGS


def known_sinks() -> tuple[str, ...]:
    """The names of the sinks that are part of this package."""
    return tuple(_SINKS)


def usable(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Those of ``names`` that are a sink of ours or an installed exporter, and what is to be said of the others.

    Where none of them is, ``local`` takes their place: spans that nobody asked for are better than none at all.
    """
    known, problems = [], []
    for name in names:
        if name in _SINKS or _is_installed(name):
            known.append(name)
        else:
            problems.append(
                f"unknown exporter {name!r} (RAY_TRACING_EXPORTERS, or OTEL_TRACES_EXPORTER); expected some of "
                f"{', '.join(_SINKS)}, of the installed ones ({', '.join(_installed())}), or none"
            )
    if problems and not known:
        known = ["local"]
    return tuple(known), [f"{problem}; using {', '.join(known)}" for problem in problems]


def _is_installed(name: str) -> bool:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  looks through all installed packages

    return entry_point.is_installed(name)


def _installed() -> tuple[str, ...]:
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  as above

    return entry_point.names()


def make_sink(name: str, surroundings: Surroundings) -> Sink:
    """The sink of this name. Raises SettingError for an unknown name, DeliveryError if it cannot work now."""
    if name == METRICS_SINK:
        from ray_tracing_hooks._ship.metrics.sink import make  # noqa: PLC0415  by choice only

        return make(surroundings)
    if name not in _SINKS:
        from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  as above

        return entry_point.make(name, surroundings)
    module, _, factory = _SINKS[name].partition(":")
    return cast("Sink", getattr(importlib.import_module(module), factory)(surroundings))
