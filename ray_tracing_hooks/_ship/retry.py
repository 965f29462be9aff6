"""Retry with exponential backoff, for everything that sends."""

from __future__ import annotations

import random

from ray_tracing_hooks._safety.errors import TracingError
from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._ship.sink import DeliveryError


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
