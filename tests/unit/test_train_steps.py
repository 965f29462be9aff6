"""Steps of the training loops of Ray Train. See also tests/ray/test_train.py."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from stand_ins import tracing_of

from ray_tracing_hooks._ray.train.ranks import begin_step, step


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
