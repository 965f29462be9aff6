"""The thread that sends metrics: what it does at the end with requests that have not been taken."""

from __future__ import annotations

import threading

import pytest

from ray_tracing_hooks._ship.metrics import outbox as outboxes
from ray_tracing_hooks._ship.metrics.outbox import Outbox
from ray_tracing_hooks._ship.sink import DeliveryError


class Server:
    """Refuses the first attempt, for as many seconds if it says so, and takes the others."""

    address = "the server"

    def __init__(self, pause: float | None) -> None:
        self.pause = pause
        self.attempts: list[bytes] = []

    def send(self, body: bytes) -> bytes:
        self.attempts.append(body)
        if len(self.attempts) == 1:
            raise DeliveryError("not now", self.pause)
        return b""

    def close(self) -> None: ...


def outbox_of(server: Server, tried: threading.Event) -> Outbox:
    return Outbox(
        lambda: server,
        trouble=lambda _: None,
        refused=lambda _: None,
        accepted=lambda _: None,
        tried=tried.set,
    )


@pytest.mark.parametrize(
    ("pause", "attempts"), [(None, [b"delta", b"delta"]), (600.0, [b"delta"])], ids=["is away", "asks for a pause"]
)
def test_what_waits_for_another_attempt_is_sent_at_the_end(
    pause: float | None, attempts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the server has asked for a pause that is not over."""
    monkeypatch.setattr(outboxes, "_FIRST_RETRY", 600.0)
    monkeypatch.setattr(outboxes, "_LAST_RETRY", 600.0)
    server, tried = Server(pause), threading.Event()
    outbox = outbox_of(server, tried)
    outbox.give([b"delta"])
    assert tried.wait(60)
    outbox.close(60)
    assert server.attempts == attempts
    assert outbox.is_empty == (len(attempts) == 2)


@pytest.mark.parametrize("pause", [None, 600.0], ids=["is away", "asks for a pause"])
def test_in_a_hurry_it_is_sent_at_once_unless_the_server_has_asked_for_a_pause(
    pause: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More can be sent then."""
    monkeypatch.setattr(outboxes, "_FIRST_RETRY", 600.0)
    monkeypatch.setattr(outboxes, "_LAST_RETRY", 600.0)
    server, tried = Server(pause), threading.Event()
    outbox = outbox_of(server, tried)
    outbox.hurry(60)
    assert server.attempts == []
    outbox.give([b"first"])
    assert tried.wait(60)
    outbox.hurry(60)
    assert server.attempts == [b"first"] * (1 if pause else 2)
    assert outbox.is_empty == (not pause)
    outbox.give([b"second"])
    outbox.close(60)
    assert server.attempts == ([b"first"] if pause else [b"first", b"first", b"second"])
