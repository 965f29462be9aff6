"""The first version of Ray Train, which older Rays have: what runs on Ray Tune is in one trace, and what is missing is
said once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from support import below, check_links, run_program, spans_in, tree, with_training, without_placement

IS_OLDER = tuple(map(int, ray.__version__.split(".")[:2])) < (2, 60)

# With newer Rays it takes a cluster of its own for what few use.
pytestmark = [] if IS_OLDER else [pytest.mark.slow]

TRAINING = """
user training
  older ray.tune
    older ray.tune.trial
      TrainTrainable.stop call
      TrainTrainable.train call x2
      TrainTrainable.train call
        RayTrainWorker.__init__ call x2
        user step x4
          __main__.helper call
      _Inner.__init__ call
"""

TUNING = """
user tuning
  functions ray.tune
    functions ray.tune.trial x2
      ImplicitFunc.__init__ call
      objective.stop call
      objective.train call
      objective.train call x2
        user step
          __main__.helper call
"""


def test_training_and_tuning_are_one_trace(tmp_path: Path) -> None:
    run = run_program(
        "older_training",
        str(tmp_path / "results"),
        RTH_HOOK="ray_tracing_hooks.local:setup",
        RAY_TRAIN_V2_ENABLED="0",
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        **with_training(),
    )
    assert run.result == [1, [1, 2]]
    assert run.stderr.count("ray_tracing_hooks: runs and ranks of the first version of Ray Train are not recorded") == 1
    spans = without_placement(spans_in(tmp_path / "spans"))
    check_links(spans)
    assert len({span.trace_id for span in spans}) == 1
    assert tree(below(spans, "user training")) == TRAINING.strip()
    assert tree(below(spans, "user tuning")) == TUNING.strip()
