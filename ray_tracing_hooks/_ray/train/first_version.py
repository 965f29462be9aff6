"""Says once that runs of Ray Train's first version make no spans of their own: wraps ``BaseTrainer.fit`` (Ray 2.40 to
2.60 ``train/base_trainer.py``), which the second version does not use.
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._guard import report
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.library_calls import preceded_by


def patch(patches: Patches) -> bool:
    """Wrap runs; False if this Ray lacks the wrapped method."""
    from ray.train.base_trainer import BaseTrainer  # noqa: PLC0415  imported by now

    return patches.wrap(BaseTrainer, "fit", preceded_by(_say, "reporting a run of Ray Train"))


def _say(_trainer: Any) -> None:
    report(
        "the first version of Ray Train makes no spans of runs and ranks: its trainers run on Ray Tune, whose "
        "experiments and trials do. Ray 2.52 and newer have the second one, unless RAY_TRAIN_V2_ENABLED is 0"
    )
