"""The analysis of runs whose schedule is known: programs made at random, and simulated as Ray runs them."""

from __future__ import annotations

from random import Random

import pytest
from hand_made import MS
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import Shape, Simulation

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN, STARTING, SUBMIT, Path, critical_path
from ray_tracing_hooks._insight.model.calls import Calls


def check(path: Path) -> None:
    """What holds for every path."""
    end = path.start
    for step in path.steps:
        assert step.start == end
        assert step.end > step.start
        end = step.end
    assert end == path.end
    assert sum(path.kinds.values()) == path.wall
    assert sum(path.functions.values()) == path.kinds[RUN] + path.kinds[SUBMIT]


@given(st.integers(0, 1 << 32), st.integers(1, 20))
def test_an_exact_path_is_that_of_the_schedule(seed: int, size: int) -> None:
    made = Simulation(Random(seed), Shape(steps=size))
    path = critical_path(Calls(made.run.table()))
    check(path)
    kinds, functions = made.path()
    assert path.is_exact
    found = dict(path.kinds)
    found[RUN] = found.pop(RUN, 0) + found.pop(SUBMIT, 0)
    assert {k: v for k, v in found.items() if v} == {k: v for k, v in kinds.items() if v}
    assert dict(path.functions) == {k: v for k, v in functions.items() if v}
