"""Frameworks on Ray's actors, with threads of their own: each is one connected trace, and calls have the names of what
they run.
"""

from __future__ import annotations

import pytest
from support import HOOK, Run, await_spans, below, by_name, check_links, of_driver, run_program, tree


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("spans")
    run = run_program("frameworks", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(folder), RAY_TRACING_THREADS="1")
    killed = "PolicyWorker.hang ray.remote_worker"
    run.spans = of_driver(await_spans(folder, lambda spans: len(by_name(spans, killed)) == 2), "frameworks")
    return run


FUSED = """
user fused
  AgentLoop.__init__ call
  AgentLoop.run call x3
    user trajectory
      user reward
      user tokenize x2
  FusedWorker.<lambda> call x2
  FusedWorker.__init__ call x2
  FusedWorker.actor_generate call x2
    user generate
  FusedWorker.count_roles call
    user count
  FusedWorker.critic_update call x2
    user update
"""

ISOLATED = """
user isolated
  Initializer.__init__ call x2
  Initializer.create_worker call x2
    PolicyWorker.__init__ call
  PolicyWorker.hang call !worker_died x2
    Signals.send call
    user last
  PolicyWorker.refit call x2
    user receive
  PolicyWorker.train call x2
    user train
  Signals.__init__ call
  Signals.wait call x2
"""

BATCHES = """
user batches
  Engine.__init__ call
  Engine.update_weight call
    user update weight
  ModelActor.__init__ call x2
  ModelActor.forward call
    user forward
  ModelActor.forward call x2
    user forward x2
  user prefetch
    ModelActor.forward call
      user forward
"""


pytestmark = pytest.mark.slow(
    older_rays=True
)  # a program of many actors; test_calls.py and test_context.py have its parts


def test_a_fused_worker_is_named_by_role_and_method(runs: Run) -> None:
    """As in verl. Tokenizer and reward run in threads of executors, below the trajectory."""
    assert tree(below(runs.spans, "user fused")) == FUSED.strip()


def test_isolated_workers_lose_nothing_when_they_are_killed(runs: Run) -> None:
    """As in NeMo-RL. What had ended is there, and what had not is marked."""
    assert tree(below(runs.spans, "user isolated")) == ISOLATED.strip()


def test_batches_are_named_by_their_method(runs: Run) -> None:
    """As in OpenRLHF. Threads that the program makes continue its trace."""
    assert tree(below(runs.spans, "user batches")) == BATCHES.strip()


def test_every_span_has_its_parent(runs: Run) -> None:
    check_links(runs.spans)


@pytest.mark.slow(older_rays=True)  # all of it once more, as test_conformance.py does it with other programs
def test_programs_run_as_they_do_untraced(runs: Run) -> None:
    """Results, and the exception of a thread."""
    plain = run_program("frameworks")
    assert runs.result == plain.result
