"""The timer of a phase of RLlib is its span: however the timer ends, the span does, and the context is as before."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from opentelemetry import context as context_api
from opentelemetry.context import Context

from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.rllib import iterations

KEY = "key"


class Timer:
    """A timer that raises where it is asked to."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __enter__(self) -> object:
        if self.fault == "enter":
            raise LookupError("enter")
        return self

    def __exit__(self, *_error: object) -> None:
        if self.fault == "exit":
            raise LookupError("exit")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """The errors with which spans have ended."""
    found: list[BaseException | None] = []

    def begin(*_arguments: Any) -> tuple[Context, Any]:
        return context_api.set_value(KEY, "here"), object()

    monkeypatch.setattr(tracing, "active", object())
    monkeypatch.setattr(library_spans, "begin", begin)
    monkeypatch.setattr(iterations, "end_call", lambda _span, error: found.append(error))
    return found


@pytest.mark.parametrize(
    ("fault", "raised", "expected"),
    [
        ("", None, None),
        ("", ValueError("body"), "body"),
        ("enter", None, "enter"),
        ("exit", None, "exit"),
        ("exit", ValueError("body"), "body"),
    ],
)
def test_a_phase_ends_with_its_timer(
    ended: list[BaseException | None], fault: str, raised: Exception | None, expected: str | None
) -> None:
    seen = None
    with contextlib.suppress(ValueError, LookupError), iterations._Phase(Timer(fault), "PPO", "learner_update"):
        seen = context_api.get_value(KEY)
        if raised is not None:
            raise raised
    assert seen == (None if fault == "enter" else "here")
    assert [error if error is None else str(error) for error in ended] == [expected]
    assert context_api.get_value(KEY) is None
