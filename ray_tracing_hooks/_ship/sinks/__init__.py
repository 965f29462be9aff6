"""Where spans go: each sink is a module of its own, imported only by the shipper that uses it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from ray_tracing_hooks._errors import SettingError, TracingError
from ray_tracing_hooks._ship.plan import ShipPlan

_SINKS = {"local": "ray_tracing_hooks._ship.sinks.local:LocalSink"}


class DeliveryError(TracingError):
    """Spans could not be delivered now. The shipper keeps them and tries again; the message is for the user."""


class Batch(NamedTuple):
    """Encoded spans of one encoded resource and scope."""

    resource: bytes
    scope: bytes
    spans: list[bytes]


class Sink(Protocol):
    """A place that spans are delivered to. All calls come from one thread, and may block."""

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
    """

    plan: ShipPlan
    state: Mapping[str, Any]
    remember: Callable[[Mapping[str, Any]], None]
    count: Callable[[str, int], None]


def known_sinks() -> tuple[str, ...]:
    """The names that can stand in ``RAY_TRACING_EXPORTERS``."""
    return tuple(_SINKS)


def make_sink(name: str, surroundings: Surroundings) -> Sink:
    """The sink of this name. Raises SettingError for an unknown name, DeliveryError if it cannot work now."""
    try:
        place = _SINKS[name]
    except KeyError:
        raise SettingError(f"unknown exporter {name!r}; expected one of {', '.join(known_sinks())}") from None
    module, _, factory = place.partition(":")
    return cast("Sink", getattr(importlib.import_module(module), factory)(surroundings))
