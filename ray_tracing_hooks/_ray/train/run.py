"""A run of Ray Train: wraps ``DataParallelTrainer.fit`` (Ray 2.60 ``train/v2/api/data_parallel_trainer.py``)."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import library_spans
from ray_tracing_hooks._ray.library_calls import spanned
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.attributes import of_run
from ray_tracing_hooks._ray.train.failures import end
from ray_tracing_hooks._record.current import get_current


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
