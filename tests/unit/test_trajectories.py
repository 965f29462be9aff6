"""Trajectories that a program tells: their spans, and what is recorded below them."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks import rl
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._record.current import get_current


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tracing, "active", tracing_of(tmp_path))
    return tmp_path


def call() -> bool:
    """Begin and end a span in the current context. Returns whether it is recorded."""
    active = tracing.active
    assert active is not None
    _, span = library_spans.begin(active, "call", get_current())
    if span is not None:
        span.end()
    return span is not None


def attributes(span: Any) -> dict[str, Any]:
    found = {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}
    return {key: value for key, value in found.items() if key.startswith("ray.rl.")}


def test_a_trajectory_is_a_span_with_what_it_is_for(traced: Path) -> None:
    with rl.trajectory(12, 7, 3, staleness=2) as span:
        assert call()
        span.set_attribute("ray.rl.outcome", "accepted")
    inner, outer = spooled_spans(traced)
    assert (outer.name, inner.parent_span_id) == ("ray.rl.trajectory", outer.span_id)
    assert attributes(outer) == {
        "ray.rl.step": 12,
        "ray.rl.sample": "7",
        "ray.rl.rollout": 3,
        "ray.rl.staleness": 2,
        "ray.rl.outcome": "accepted",
    }


def test_an_exception_of_the_block_is_its_own_and_makes_the_span_an_error(traced: Path) -> None:
    with pytest.raises(LookupError) as caught, rl.trajectory(1, "prompt"):
        raise LookupError("no tool")
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)] == [
        "test_an_exception_of_the_block_is_its_own_and_makes_the_span_an_error"
    ]
    (span,) = spooled_spans(traced)
    assert span.status.code == 2


def test_what_is_below_is_recorded_for_a_share_of_the_samples_with_all_their_rollouts(traced: Path) -> None:
    """The same ones in each process, and others in each step. The trajectories themselves are all recorded."""
    chosen: dict[tuple[int, int], set[bool]] = {}
    for step in range(10):
        for sample in range(40):
            for rollout in range(2):
                with rl.trajectory(step, sample, rollout, share=0.25):
                    chosen.setdefault((step, sample), set()).add(call())
    assert all(len(found) == 1 for found in chosen.values())
    recorded = {key for key, found in chosen.items() if found == {True}}
    assert 70 <= len(recorded) <= 130
    assert {sample for step, sample in recorded if step == 0} == {4, 10, 16, 26, 28, 31, 34, 35, 38, 39}
    spans = spooled_spans(traced)
    assert len([span for span in spans if span.name == "ray.rl.trajectory"]) == 800
    assert len([span for span in spans if span.name == "call"]) == 2 * len(recorded)


def test_without_tracing_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "active", None)
    with rl.trajectory(1, 1) as span:
        span.set_attribute("ray.rl.outcome", "accepted")
        assert not span.is_recording()


@pytest.mark.parametrize("place", ["begin", "end_call"])
def test_a_fault_of_this_package_does_not_reach_the_block(
    place: str, traced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(library_spans, place, broken)
    with rl.trajectory(1, 1) as span:
        assert span.is_recording() == (place == "end_call")


def test_a_share_that_is_no_number_begins_no_span(traced: Path) -> None:
    """One that had begun would stay open."""
    share: Any = "all"
    with rl.trajectory(1, 1, share=share) as span:
        assert not span.is_recording()
    assert spooled_spans(traced) == []
