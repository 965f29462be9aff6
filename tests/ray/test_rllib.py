"""RLlib: an iteration has its phases, and env runners and learners are named by what they run."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from conformance import check_training
from conftest import Cluster
from support import NEEDS_TRAIN_V2, Run, below, by_name, check_links, tree

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import Span

pytestmark = [NEEDS_TRAIN_V2, pytest.mark.slow]  # RLlib takes long to start

ITERATION = """
PPO ray.rllib
  PPO ray.rllib.synch_env_connectors
    SingleAgentEnvRunner.get_state call x2
    SingleAgentEnvRunner.set_state call x2
  PPO ray.rllib.training_iteration
    PPO ray.rllib.restore_env_runners
    PPO ray.rllib.training_step
      PPO ray.rllib.env_runner_sampling
        SingleAgentEnvRunner.sample call x2
      PPO ray.rllib.learner_update
        Learner.update call
      PPO ray.rllib.synch_weights
        Learner.get_state call
        SingleAgentEnvRunner.set_state call x2
"""


@pytest.fixture(scope="module")
def run(training: Cluster) -> Run:
    return training.run("rllib_runs")


IS_FIRST = tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 60)
"""Older Rays divide an iteration otherwise."""


def iterations(run: Run) -> list[Span]:
    return sorted(by_name(run.spans, "PPO ray.rllib"), key=lambda span: span.start_ns)


def test_an_iteration_has_its_phases(run: Run) -> None:
    """Sampling, the update of the learners, and the synchronization of weights, with the calls of each."""
    first, second = iterations(run)
    assert [each.attributes[names.RAY_RLLIB_ITERATION] for each in (first, second)] == [1, 2]
    assert first.attributes[names.RAY_RLLIB_ALGORITHM] == "PPO"
    spans = [span for span in run.spans if span.span_id != second.span_id]
    found = tree(below(spans, "PPO ray.rllib"))
    assert found == ITERATION.strip() if IS_FIRST else found.count("SingleAgentEnvRunner.sample call x2") == 1


def test_an_evaluation_is_a_phase(run: Run) -> None:
    _, second = iterations(run)
    (evaluation,) = by_name(run.spans, "PPO ray.rllib.evaluation_iteration")
    assert evaluation.parent_id == second.span_id


def test_phases_are_the_timers_of_the_algorithm(run: Run) -> None:
    """All that the result has, and each as often as it ran."""
    timed = {timer.removesuffix("_timer") for timer in run.result["timers"]}
    phases = {span.name.rpartition(".")[2] for span in run.spans if span.name.startswith("PPO ray.rllib.")}
    assert timed <= phases


def test_no_call_is_named_apply(run: Run) -> None:
    check_links(run.spans)
    assert {span.trace_id for span in run.spans} == {run.spans[0].trace_id}
    assert not [span.name for span in run.spans if ".apply " in span.name]


def test_it_comes_to_the_same_untraced(run: Run, tmp_path: Path) -> None:
    check_training("rllib_runs", run.result, tmp_path)
