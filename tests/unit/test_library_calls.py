"""What wraps calls of Ray's libraries never changes their results, errors and tracebacks, whatever fails in it."""

from __future__ import annotations

import inspect
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context as context_api
from opentelemetry.context import Context
from stand_ins import tracing_of

from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.library_spans import followed_by, preceded_by, spanned, within
from ray_tracing_hooks._record.current import attach, detach

KEY = "key"


class Span:
    """A span as far as it is ended here."""

    def __init__(self) -> None:
        self.ended = 0
        self.error: BaseException | None = None

    def end(self) -> None:
        self.ended += 1


def add(first: int, second: int = 1) -> int:
    """Add."""
    if context_api.get_value(KEY) is not None:
        return 1000 + first + second
    return first + second


def raises(*_args: Any, **_kwargs: Any) -> Any:
    raise LookupError("a fault of ours")


def fails(first: int, second: int = 1) -> int:
    raise ValueError(first, second)


@pytest.fixture(autouse=True)
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, BaseException]]:
    """Tracing is on, and what is reported."""
    found: list[tuple[str, BaseException]] = []
    monkeypatch.setattr(tracing, "active", object())
    monkeypatch.setattr("ray_tracing_hooks._safety.guard.failed", lambda doing, error: found.append((doing, error)))
    return found


def within_context() -> Any:
    return context_api.set_value(KEY, "here")


WRAPPERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "a span that cannot begin": spanned(raises),
    "a span that cannot end": spanned(lambda *_args, **_kwargs: (context_api.get_current(), Span()), raises),  # type: ignore[arg-type]
    "no span": spanned(lambda *_args, **_kwargs: None),
    "no context to be found": within(raises, "x"),
    "no context": within(lambda *_args, **_kwargs: None, "x"),
    "what follows fails": followed_by(raises, "x"),
    "what precedes fails": preceded_by(raises, "x"),
}


@pytest.mark.parametrize("why", WRAPPERS)
def test_a_call_is_made_once_whatever_fails(why: str) -> None:
    wrapped = WRAPPERS[why](add)
    assert wrapped(1, second=2) == 3
    assert context_api.get_value(KEY) is None
    assert inspect.signature(wrapped) == inspect.signature(add)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == (add.__name__, add.__doc__, add.__module__)


@pytest.mark.parametrize("why", WRAPPERS)
def test_its_error_is_its_own(why: str) -> None:
    """Its type, its arguments and its traceback, in which the frames of this package are not."""
    with pytest.raises(ValueError, match=r"1, 2") as caught:
        WRAPPERS[why](fails)(1, 2)
    assert caught.value.__context__ is None
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    # Before Python 3.11 a bare `raise` puts the frame back.
    assert frames[1:] == (["fails"] if sys.version_info >= (3, 11) else ["call", "fails"])


@pytest.mark.parametrize("why", WRAPPERS)
def test_a_fault_of_ours_is_reported(why: str, reported: list[tuple[str, BaseException]]) -> None:
    WRAPPERS[why](add)(1)
    assert [type(error) for _, error in reported] == (
        [] if why.startswith("no ") and "found" not in why else [LookupError]
    )


def test_without_tracing_nothing_is_done(monkeypatch: pytest.MonkeyPatch, reported: list[Any]) -> None:
    monkeypatch.setattr(tracing, "active", None)
    for wrap in WRAPPERS.values():
        assert wrap(add)(1) == 2
    assert not reported


def test_a_call_runs_in_the_context_of_its_span() -> None:
    """And what follows it does not, whether it returns or raises."""
    span = Span()
    ended: list[BaseException | None] = []

    def end(its: Any, error: BaseException | None) -> None:
        assert its is span
        ended.append(error)

    wrap = spanned(lambda *_args, **_kwargs: (within_context(), span), end)  # type: ignore[arg-type]
    assert wrap(add)(1) == 1002
    with pytest.raises(ValueError, match="1"):
        wrap(fails)(1)
    assert [type(error) for error in ended] == [type(None), ValueError]
    assert context_api.get_value(KEY) is None
    assert within(lambda *_args: within_context(), "x")(add)(1) == 1002
    assert context_api.get_value(KEY) is None


def test_a_span_that_cannot_be_ended_as_wanted_ends() -> None:
    span = Span()
    spanned(lambda *_args: (context_api.get_current(), span), raises)(add)(1)  # type: ignore[arg-type]
    assert span.ended == 1


def test_what_precedes_and_follows_has_the_arguments() -> None:
    seen: list[Any] = []
    preceded_by(lambda *args, **kwargs: seen.append((args, kwargs)), "x")(add)(1, second=4)
    followed_by(lambda *args, **kwargs: seen.append((args, kwargs)), "x")(add)(1, second=4)
    assert seen == [((1,), {"second": 4}), ((5, 1), {"second": 4})]
    with pytest.raises(ValueError, match="1"):
        followed_by(seen.append, "x")(fails)(1)
    assert len(seen) == 2, "nothing follows a call that failed"


@pytest.mark.parametrize("is_kept", [False, True])
def test_only_a_context_that_a_library_has_kept_is_that_of_a_parent_that_is_over(is_kept: bool, tmp_path: Path) -> None:
    """A library knows what its work belongs to, such as the upload of a checkpoint to its report."""
    active = tracing_of(tmp_path)
    context, around = library_spans.begin(active, "report", Context())
    assert around is not None
    around.end(time.time_ns() - 1_500_000_000)
    token = attach(Context() if is_kept else context)
    try:
        _, span = library_spans.begin(active, "upload", context)
    finally:
        detach(token)
    assert span is not None
    assert span.parent == (around.get_span_context() if is_kept else None)
    assert (span.trace_id == around.trace_id) is is_kept
    assert ("ray.after_end" in span.attributes) is not is_kept
