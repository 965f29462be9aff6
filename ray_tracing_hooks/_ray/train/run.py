"""A run of Ray Train: wraps ``DataParallelTrainer.fit`` (Ray 2.60 ``train/v2/api/data_parallel_trainer.py``)."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import library_spans
from ray_tracing_hooks._ray.library_calls import preceded_by, spanned
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.failures import end
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._safety.guard import report
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches) -> bool:
    """Wrap runs; False if this Ray lacks the wrapped method."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # noqa: PLC0415  imported by now

    return patches.wrap(DataParallelTrainer, "fit", spanned(_begin, end))


def _begin(active: Tracing, trainer: Any) -> Begun:
    attributes = {**of_run(trainer.train_run_context), names.RAY_TRAIN_TRAINER: type(trainer).__name__}
    workers = _number_of_workers(trainer.scaling_config)
    if workers is not None:
        attributes[names.RAY_TRAIN_NUM_WORKERS] = workers
    name = names.run_name(trainer.run_config.name, names.TRAIN_RUN)
    return library_spans.begin(active, name, get_current(), attributes)


def _number_of_workers(scaling: Any) -> int | None:
    """How many workers the run asks for; the most, if it is elastic."""
    asked = scaling.num_workers
    if isinstance(asked, tuple):
        asked = asked[-1]
    return asked if type(asked) is int else None


def of_run(run: Any) -> dict[str, Any]:
    """The attributes of a run, from Ray's ``TrainRunContext``."""
    attributes = {names.RAY_TRAIN_RUN_NAME: run.run_config.name, names.RAY_TRAIN_RUN_ID: getattr(run, "run_id", None)}
    return {key: value for key, value in attributes.items() if isinstance(value, str)}


def patch_first_version(patches: Patches) -> bool:
    """Wrap runs of the first version, to say that they make no spans (Ray 2.40 to 2.60 ``train/base_trainer.py``)."""
    from ray.train.base_trainer import BaseTrainer  # noqa: PLC0415  imported by now

    return patches.wrap(BaseTrainer, "fit", preceded_by(_say, "reporting a run of Ray Train"))


def _say(_trainer: Any) -> None:
    report(
        "the first version of Ray Train makes no spans of runs and ranks: its trainers run on Ray Tune, whose "
        "experiments and trials do. Ray 2.52 and newer have the second one, unless RAY_TRAIN_V2_ENABLED is 0"
    )
