"""The analysis of runs whose schedule is known: programs made at random, and simulated as Ray runs them."""

from __future__ import annotations

from collections import Counter
from random import Random

from hand_made import MS
from hypothesis import example, given
from hypothesis import strategies as st
from schedules import Shape, Simulation

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN, SUBMIT, UNEXPLAINED, Path
from ray_tracing_hooks._insight.analysis.findings import find

SHAPES = st.builds(
    Shape,
    steps=st.integers(1, 8),
    depth=st.integers(0, 2),
    workers=st.integers(1, 3),
    slots=st.sampled_from([(1,), (2,), (1, 2, 4)]),
)
CLOCKS = (0, 2 * MS, -5 * MS, 300 * MS, -3_600_000 * MS)


def simulated(random: Random, shape: Shape) -> Simulation:
    made = Simulation(random, shape)
    assert all(lane.most <= lane.slots for lane in made.lanes)
    return made


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


def check_all(made: Simulation) -> Analysis:
    analysis = Analysis.corrected(made.run.table())
    check(analysis.path)
    check(analysis.split)
    for finding in find(analysis):
        assert 0 <= finding.share <= 1
    for actor in analysis.actors:
        assert 0 <= actor.busy_share <= 1
        assert 0 <= actor.taken_share <= 1
    return analysis


def is_of_the_schedule(path: Path, made: Simulation) -> bool:
    """Whether the time on the path is that of the schedule, by kind and by function."""
    kinds, functions = made.path()
    found = Counter(path.kinds)
    found[RUN] += found.pop(SUBMIT, 0)
    return +found == +kinds and +path.functions == +functions


@given(st.integers(0, 1 << 32), SHAPES)
def test_the_path_of_a_recorded_run_is_exact_and_that_of_its_schedule(seed: int, shape: Shape) -> None:
    made = simulated(Random(seed), shape)
    path = check_all(made).path
    # Methods of an actor with several slots may wait in several threads.
    assert path.is_exact or max(shape.slots) > 1
    assert path.coverage == 1
    assert is_of_the_schedule(path, made) or not path.is_exact


@given(seed=st.integers(0, 1 << 32), shape=SHAPES, excludes=st.booleans(), loses=st.booleans())
@example(seed=38555, shape=Shape(steps=1, depth=2, workers=1, slots=(1, 2, 4)), excludes=True, loses=False)
@example(seed=13785833, shape=Shape(steps=6, depth=0, workers=1, slots=(2,)), excludes=False, loses=False)
@example(seed=240043, shape=Shape(steps=4, depth=0, workers=1, slots=(2,)), excludes=False, loses=False)
def test_a_path_with_something_missing_is_exact_only_if_that_does_not_matter(
    seed: int, shape: Shape, *, excludes: bool, loses: bool
) -> None:
    """Functions that make no spans, and workers whose files are missing."""
    random = Random(seed)
    made = simulated(random, shape)
    if excludes and made.functions:
        made.exclude(random.sample(made.functions, 1))
    if loses and made.workers:
        made.lose(random.choice(made.workers))
    path = check_all(made).path
    assert not path.is_exact or path.kinds[UNEXPLAINED] or is_of_the_schedule(path, made)


@given(st.integers(0, 1 << 32), SHAPES, st.floats(0.1, 1))
def test_shares_add_up_whatever_is_missing_and_whatever_clocks_say(seed: int, shape: Shape, kept: float) -> None:
    random = Random(seed)
    shape.clocks = CLOCKS
    made = simulated(random, shape)
    made.run.spans = [span for span in made.run.spans if random.random() < kept]
    check_all(made)
