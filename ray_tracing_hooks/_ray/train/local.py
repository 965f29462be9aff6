"""A run without workers, whose one rank is the process that calls ``fit()``: wraps
``DataParallelTrainer._initialize_and_run_local_controller`` and ``LocalTrainFnUtils.report`` (Ray 2.60
``train/v2/api/data_parallel_trainer.py`` and ``_internal/execution/train_fn_utils.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import library_spans
from ray_tracing_hooks._ray.library_calls import spanned
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.failures import end
from ray_tracing_hooks._ray.train.ranks import begin_rank
from ray_tracing_hooks._ray.train.run import of_run
from ray_tracing_hooks._ray.train.steps import begin_step, end_step, of_metrics
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.patching import Patches

_RUN = "_initialize_and_run_local_controller"


def patch(patches: Patches) -> bool:
    """Wrap runs without workers; False if this Ray has changed them. Older ones do not have them."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # noqa: PLC0415  imported by now

    if not hasattr(DataParallelTrainer, _RUN):
        return True
    from ray.train.v2._internal.execution.train_fn_utils import LocalTrainFnUtils  # noqa: PLC0415  as above

    return patches.wrap(DataParallelTrainer, _RUN, _run) and patches.wrap(
        LocalTrainFnUtils, "report", spanned(_begin_report, end_step)
    )


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(trainer: Any, train_func: Callable[[], Any]) -> Any:
        try:
            return original(trainer, spanned(functools.partial(_begin_rank, trainer=trainer), end)(train_func))
        except BaseException as error:
            hide_frame(error)
            raise

    return spanned(_begin_attempt, end)(functools.wraps(original)(run))


def _begin_attempt(active: Tracing, trainer: Any, _train_func: Any) -> Begun:
    attributes = {**of_run(trainer.train_run_context), names.RAY_TRAIN_ATTEMPT: 1, names.RAY_TRAIN_NUM_WORKERS: 0}
    name = names.run_name(trainer.run_config.name, names.TRAIN_ATTEMPT)
    return library_spans.begin(active, name, get_current(), attributes)


def _begin_rank(active: Tracing, trainer: Any) -> Begun:
    from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils  # noqa: PLC0415  as above

    return begin_rank(active, trainer.run_config.name, get_train_fn_utils().get_context(), get_current())


def _begin_report(active: Tracing, utils: Any, metrics: Any, *_args: Any, **_others: Any) -> Begun:
    rank = utils.get_context().get_world_rank()
    return begin_step(active, names.TRAIN_REPORT, utils, rank, of_metrics(active, metrics))
