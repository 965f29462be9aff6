"""The contract of a sink: what it is made with, what it is given, and how it fails.

A sink delivers spans to one place. :mod:`~ray_tracing_hooks._ship.sinks.registry` finds it by the name of its exporter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks._formats.signals import TRACES, Signal
from ray_tracing_hooks._ship.plan import ShipPlan


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

    Attributes:
        delay: How many seconds spans may wait in the spool so that more of them go at once.
        wants_more: After a failure, whether the sink needs more spans to find out what is wrong: those that have come
            since are then appended to the same batches before it is called again.
    """

    delay: float
    wants_more: bool

    def deliver(self, batches: Sequence[Batch]) -> None:
        """Deliver all of ``batches``. A span that can never be delivered is skipped and counted.

        Raises DeliveryError if that is impossible now. Then the same batches come again, and the sink makes sure, as
        far as it can, that no span arrives twice.
        """

    def checkpoint(self) -> Mapping[str, Any]:
        """The state, as JSON, with which the sink of the next shipper continues after the last delivery."""

    def close(self) -> None:
        """Release what the sink holds. Nothing more is delivered."""


@dataclass(frozen=True)
class Surroundings:
    """What a sink is made with.

    Attributes:
        plan: The settings.
        state: The last :meth:`Sink.checkpoint` that was stored, or an empty mapping.
        remember: Stores a state between two checkpoints. Raises OSError.
        count: Reports a loss to the user: a text with the place ``{count}``, and how many items more were lost.
        environ: The environment variables that say how to deliver.
        problem: Reports a wrong setting to the user.
        signal: What is delivered. A sink whose protocol knows only spans need not look.
    """

    plan: ShipPlan
    state: Mapping[str, Any]
    remember: Callable[[Mapping[str, Any]], None]
    count: Callable[[str, int], None]
    environ: Mapping[str, str] = field(repr=False)
    problem: Callable[[str], None]
    signal: Signal = TRACES
