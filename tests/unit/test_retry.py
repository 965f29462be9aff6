"""How long is waited between attempts, and what is said of a failure."""

from __future__ import annotations

import pytest

from ray_tracing_hooks._safety.guard import TracingError
from ray_tracing_hooks._ship.sink import Backoff, DeliveryError, reason, retry_after


def test_waits_double_up_to_the_longest() -> None:
    """Each is drawn from the upper half, so that the shippers of many nodes spread."""
    backoff = Backoff(first=1.0, last=8.0)
    for longest in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert longest / 2 <= backoff.next() <= longest


def test_after_a_success_the_first_wait_comes_again() -> None:
    backoff = Backoff(first=1.0, last=8.0)
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 1.0


@pytest.mark.parametrize(
    ("error", "said", "asked"),
    [
        (DeliveryError("it is busy", retry_after=7.0), "it is busy", 7.0),
        (DeliveryError("it is away"), "it is away", 0.0),
        (TracingError("no such setting"), "no such setting", 0.0),
        (ValueError("of a library"), "ValueError: of a library", 0.0),
    ],
)
def test_a_failure_is_told_and_what_the_server_asks_for_is_known(error: Exception, said: str, asked: float) -> None:
    assert (reason(error), retry_after(error)) == (said, asked)
