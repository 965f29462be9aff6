"""Steps with a long tail of trajectories, and what only looks like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hand_made import HandMade

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.findings.rollouts import LONG_TAIL

S = 1000
"""A second, in the milliseconds of runs made by hand."""
OF_ENGINE = {names.GEN_AI_OPERATION: "chat", names.GEN_AI_PROVIDER: "vllm", names.GEN_AI_REQUEST_MODEL: "tiny"}


class Rollouts:
    """A driver that waits for one call with all trajectories of a step. Times are seconds."""

    def __init__(self, seconds: float = 10) -> None:
        self.run = HandMade()
        self.run.parts = "actor,data,get,task,wait"
        self.driver = self.run.driver(0, seconds * S)

    def step(
        self, number: int, trajectories: list[tuple[float, float]], *, tokens: Sequence[int] = (), **of_last: Any
    ) -> None:
        """A call with trajectories at these times. As many have a generation as there are ``tokens``. The span of the
        last one differs by ``of_last``.
        """
        end = max(end for _, end in trajectories)
        call = self.run.submit(self.driver, "generate", 0)
        execution = self.run.run(call, 0, end * S)
        for place, (begin, until) in enumerate(trajectories):
            own = {names.RAY_RL_STEP: number, names.RAY_RL_SAMPLE: f"p{place}", names.RAY_RL_ROLLOUT: 0}
            more = of_last if place == len(trajectories) - 1 else {}
            ended = {"end": until * S, **more}
            span = self.run.span(names.RL_TRAJECTORY, begin * S, parent=execution, worker="w1", attributes=own, **ended)
            if place < len(tokens):
                made = {**OF_ENGINE, names.GEN_AI_OUTPUT_TOKENS: tokens[place]}
                self.run.span("chat tiny", begin * S, until * S, span, worker="w1", attributes=made)
        self.run.get(self.driver, [call], 0, end * S)

    def found(self) -> list[Finding]:
        return [each for each in find(Analysis(self.run.table())) if each.kind == LONG_TAIL]


EQUAL = [(0.0, 2.0)] * 19


def test_the_last_trajectory_of_a_step_is_found_with_its_sample_and_tokens() -> None:
    run = Rollouts()
    run.step(12, [*EQUAL, (0, 9)], tokens=[100] * 19 + [900])
    (found,) = run.found()
    assert found.text == (
        "the last 1 of 20 trajectories of step 12 ran for 7.00 s after the others had ended: sample p19, rollout 0 "
        "took 9.00 s, 4.5 times the median of 2.00 s; it generated 900 tokens, and the median is 100"
    )
    assert found.share == pytest.approx(0.7)
    assert found.quotes == {names.RAY_RL_SAMPLE: "sample p19"}


def test_tokens_are_told_only_if_those_of_all_trajectories_are_recorded() -> None:
    run = Rollouts()
    run.step(1, [*EQUAL, (0, 9)], tokens=[100] * 19)
    assert "generated" not in run.found()[0].text


@pytest.mark.parametrize(
    ("why", "trajectories"),
    [
        ("too few to have a tail", [(0.0, 2.0)] * 6 + [(0.0, 9.0)]),
        ("many are long", [(0.0, 2.0)] * 16 + [(0.0, 9.0)] * 4),
        ("it began late", [*EQUAL, (7.0, 9.0)]),
        ("it began after the others", [*EQUAL, (2.5, 9.0)]),
        ("they vary", [(0.0, 4.0 + number / 4) for number in range(20)]),
    ],
)
def test_what_is_no_tail_is_not_found(why: str, trajectories: list[tuple[float, float]]) -> None:
    run = Rollouts()
    run.step(1, trajectories)
    assert run.found() == [], why


def test_a_step_beside_which_another_goes_on_does_not_wait() -> None:
    run = Rollouts()
    run.step(1, [*EQUAL, (0, 9)])
    run.step(2, [(3.0, 5.0)] * 20)
    assert run.found() == []


def test_a_tail_that_nobody_waits_for_is_not_found() -> None:
    """The driver goes on with its own work."""
    run = Rollouts(100)
    run.step(1, [*EQUAL, (0, 9)])
    assert run.found() == []


@pytest.mark.parametrize("last", [{"end": None, "state": "running"}, {"end": None, "state": "lost"}])
def test_a_trajectory_without_an_end_says_nothing_of_its_step(last: dict[str, Any]) -> None:
    run = Rollouts()
    run.step(1, [*EQUAL, (0, 9)], **last)
    assert run.found() == []
