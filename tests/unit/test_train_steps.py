"""Steps of the training loops of Ray Train, and attempts of its runs. See also tests/ray/test_train.py."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.context import Context
from stand_ins import tracing_of

from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.library_spans import followed_by
from ray_tracing_hooks._ray.train import run
from ray_tracing_hooks._ray.train.run import begin_step, step
from ray_tracing_hooks._safety.patching import Patches


class Loop:
    """Identifies a training loop, as its context does."""


def test_steps_are_counted_for_each_loop_which_is_not_kept(tmp_path: Path) -> None:
    """It has the datasets and the checkpoint of its rank."""
    active, loop = tracing_of(tmp_path), Loop()
    numbers = []
    for _ in range(2):
        begin_step(active, "ray.train.report", loop, 0)
        numbers.append(step.number)
    alive = weakref.ref(loop)
    del loop
    gc.collect()
    assert alive() is None
    begin_step(active, "ray.train.report", Loop(), 0)
    assert [*numbers, step.number] == [1, 2, 1]


class Controller:
    """As Ray's ``TrainController`` sets a state."""

    def __init__(self) -> None:
        self.state: Any = None

    def set_state(self, state: Any) -> None:
        self.state = state

    def get_state(self) -> Any:
        return self.state


@pytest.mark.parametrize("is_named", [False, True])
def test_the_last_state_of_a_run_ends_its_attempt(
    is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However Ray passes the state."""
    active, controller, patches = tracing_of(tmp_path), Controller(), Patches()
    monkeypatch.setattr(tracing, "active", active)
    attempts = run.Attempts(active, SimpleNamespace(run_config=SimpleNamespace(name="mine")), Context())
    monkeypatch.setitem(run._runs, controller, attempts)
    span = attempts._span
    assert span is not None
    assert patches.wrap(Controller, "set_state", followed_by(run._note_state, "recording the state of a run"))
    kind = SimpleNamespace(state_name="FINISHED", is_terminal=True, needs_new_run_attempt=False)
    state = SimpleNamespace(_state_type=kind)
    try:
        if is_named:
            controller.set_state(state=state)
        else:
            controller.set_state(state)
    finally:
        patches.undo()
    assert span.end_time is not None
