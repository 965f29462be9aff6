"""The contract of a sink: its construction, its input, and its errors.

A sink delivers spans to one destination. :mod:`~ray_tracing_hooks._ship.registry` finds it by exporter name.
Everything that sends retries with :class:`Backoff`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ray_tracing_hooks._formats.otlp import TRACES, Signal
from ray_tracing_hooks._safety.guard import TracingError, describe
from ray_tracing_hooks._ship.plan import ShipPlan


class DeliveryError(TracingError):
    """Spans could not be delivered now. The shipper keeps them and retries; the message is for the user.

    ``retry_after`` is the number of seconds after which the server asks for the retry.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RefusesAllError(DeliveryError):
    """The destination accepts nothing that these settings send: credentials, path or protocol are wrong.

    ``reason`` is what it says.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Batch(NamedTuple):
    """Encoded spans, or log records, of one encoded resource and scope: protobuf messages of OTLP.

    :mod:`ray_tracing_hooks._formats.encoded_span.decode` reads them, and ``Signal.item_json`` makes OTLP-JSON of them.
    """

    resource: bytes
    scope: bytes
    spans: list[bytes]


class Sink(Protocol):
    """A destination of spans. All calls come from one thread, and may block. What a sink does not define is as here.

    Attributes:
        delay: How many seconds spans may wait in the spool to be sent in larger batches.
        needs_more_to_judge: After a failure, whether the sink needs more spans to find the cause: spans that have
            arrived since are then appended to the same batches before the next call.
    """

    delay: float = 0.0
    needs_more_to_judge: bool = False

    def deliver(self, batches: Sequence[Batch]) -> None:
        """Deliver all of ``batches``. A span that can never be delivered is skipped and counted.

        Raises DeliveryError if that is not possible now. The same list is then passed again, and the sink ensures, as
        far as it can, that no span arrives twice. After any other exception it is retried too.
        """

    def checkpoint(self) -> Mapping[str, Any]:
        """The state, as JSON, with which the sink of the next shipper continues after the last delivery.

        Empty for a sink without a state. A state must be stored before the next delivery. In it ``items`` is how many
        items were written to files in total.
        """
        return {}

    def on_idle(self) -> None:
        """Release what takes processor time while nothing is delivered; called when nothing has come for a while."""
        return

    def close(self) -> None:
        """Release what the sink holds. Nothing more is delivered."""


@dataclass(frozen=True)
class SinkContext:
    """The arguments of a sink.

    Attributes:
        plan: The settings, as the process that started the shipper stored them.
        state: The last :meth:`Sink.checkpoint` that was stored, or an empty mapping.
        remember: Stores a state between two checkpoints. Raises OSError.
        count: Reports a loss to the user: a text with the placeholder ``{count}``, and how many more were lost. For
            items that will never be delivered, sinks call :meth:`lose`.
        environ: The environment variables that configure delivery.
        problem: Reports an invalid setting to the user.
        signal: The signal to deliver. A sink whose protocol has only spans need not check it.
        lost: Called in place of ``count`` with losses that are numbers of items, if not None.
    """

    plan: ShipPlan
    state: Mapping[str, Any]
    remember: Callable[[Mapping[str, Any]], None]
    count: Callable[[str, int], None]
    environ: Mapping[str, str] = field(repr=False)
    problem: Callable[[str], None]
    signal: Signal = TRACES
    lost: Callable[[str, int], None] | None = None

    def lose(self, text: str, number: int) -> None:
        """Report items that will never be delivered to this destination, as ``count`` does."""
        (self.lost or self.count)(text, number)


class Tls(NamedTuple):
    """Paths of PEM files: the CA certificates to trust (None: the system's), and our client certificate and its key.

    Without ``client_key``, the key is in the file of the client certificate.
    """

    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None


@dataclass(frozen=True)
class Destination:
    """Where a sink delivers to, as known from the settings, without a connection.

    Attributes:
        text: The destination for messages, without credentials.
        identity: Its parts as JSON values. If they are the same, a replay continues after an earlier one.
        otlp_target: The URL or ``host:port`` of an OTLP server, whose requests no instrumentation records.
        check: Returns what prevents delivery, as far as this can be found on this machine, or None.
    """

    text: str
    identity: tuple[Any, ...]
    otlp_target: str | None = None
    check: Callable[[], str | None] = lambda: None


class Backoff:
    """Seconds to wait before the next attempt: twice as many after each failure, from ``first`` up to ``last``.

    Each wait is drawn from the upper half of that range, so that the shippers of many nodes do not return to a
    collector at the same time.
    """

    def __init__(self, first: float = 0.2, last: float = 10.0) -> None:
        self._first = first
        self._last = last
        self._longest = 0.0

    def next(self) -> float:
        """The wait after one more failure."""
        self._longest = min(max(self._first, 2 * self._longest), self._last)
        return self._longest * random.uniform(0.5, 1.0)  # noqa: S311  no secret

    def reset(self) -> None:
        """Start over after a successful attempt."""
        self._longest = 0.0


def retry_after(error: BaseException) -> float:
    """The number of seconds after which the server asks for a retry; 0 if it does not."""
    return (error.retry_after or 0.0) if isinstance(error, DeliveryError) else 0.0


def reason(error: BaseException) -> str:
    """Why an attempt failed, for the user."""
    return str(error) if isinstance(error, TracingError) else describe(error)
