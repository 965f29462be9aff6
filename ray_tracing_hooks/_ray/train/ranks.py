"""The training loop of a rank: wraps ``ThreadRunner.run`` (Ray 2.60
``train/v2/_internal/execution/worker_group/thread_runner.py``), which starts it in a thread of its own. The loop runs
within a span below the attempt that asked for it.

The places where the ranks of a run meet: a report, or a collective function. Each is a span, with what the wait for
the others took.

What a rank reports: wraps ``TrainContext.report`` and the parts of it that take time (Ray 2.60
``train/v2/_internal/execution/context.py``).

The collective functions of Ray Train, such as ``ray.train.collective.barrier``: wraps what they call (Ray 2.60
``train/v2/_internal/execution/collective_impl.py``).

A run without workers, whose one rank is the process that calls ``fit()``: wraps
``DataParallelTrainer._initialize_and_run_local_controller`` and ``LocalTrainFnUtils.report`` (Ray 2.60
``train/v2/api/data_parallel_trainer.py`` and ``_internal/execution/train_fn_utils.py``).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.library_spans import followed_by, spanned
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.run import end_span, of_run
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.guard import guarded
from ray_tracing_hooks._safety.patching import Patches


class Step(threading.local):
    """Where the training loop of this thread is.

    Attributes:
        loop: A weak reference to the loop that :attr:`number` belongs to.
        number: How often its rank has met the others.
        span: The span of the current step, None between steps or if it is not recorded.
        barrier: How many seconds the rank has waited for the others, None if it has not.
        handover: How many seconds it has waited until the controller had taken the report before, None if it has not.
    """

    loop: ref[Any] | None = None
    number = 0
    span: RecordedSpan | None = None
    began = 0.0
    barrier: float | None = None
    handover: float | None = None


step = Step()
"""The step of this thread."""


def begin_step(active: Tracing, name: str, loop: Any, rank: int, more: dict[str, Any] | None = None) -> Begun:
    """Begin the next step of the training loop ``loop`` of this rank."""
    if step.loop is None or step.loop() is not loop:
        step.loop, step.number = ref(loop), 0
    step.number += 1
    attributes = {names.RAY_TRAIN_WORLD_RANK: rank, names.RAY_TRAIN_STEP: step.number, **(more or {})}
    begun = library_spans.begin(active, name, get_current(), attributes)
    step.span, step.began, step.barrier, step.handover = begun[1], monotonic(), None, None
    return begun


def end_step(span: RecordedSpan, error: BaseException | None) -> None:
    step.span = None
    if step.barrier is not None:
        span.set_attribute(names.RAY_TRAIN_BARRIER_TIME, step.barrier)
    if step.handover is not None:
        span.set_attribute(names.RAY_TRAIN_HANDOVER_TIME, step.handover)
    end_span(span, error)


def of_metrics(active: Tracing, metrics: Any) -> dict[str, Any]:
    """The attributes for the metrics that are reported, where arguments are recorded."""
    return {names.RAY_TRAIN_METRICS: active.redactor.result("", metrics)} if active.redactor is not None else {}


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(runner: Any, target: Callable[[], Any]) -> Any:
        if tracing.active is not None:
            with guarded("tracing a training loop"):
                target = spanned(functools.partial(_begin, context=get_current()), end_span)(target)
        with hidden_frame:
            return original(runner, target)

    return run


def _begin(active: Tracing, context: Context) -> Begun:
    from ray.train.v2._internal.execution.context import get_train_context  # noqa: PLC0415  as above

    train_context = get_train_context()
    return begin_rank(active, train_context.train_run_context.run_config.name, train_context, context)


def begin_rank(active: Tracing, run: Any, train_context: Any, context: Context) -> Begun:
    """Begin the span of this process's rank, given its context in Ray Train."""
    attributes = {
        names.RAY_TRAIN_WORLD_RANK: train_context.get_world_rank(),
        names.RAY_TRAIN_WORLD_SIZE: train_context.get_world_size(),
        names.RAY_TRAIN_LOCAL_RANK: train_context.get_local_rank(),
        names.RAY_TRAIN_NODE_RANK: train_context.get_node_rank(),
        **(active.process.of_task() if not active.process.is_driver else {}),
    }
    begun = library_spans.begin(active, names.run_name(run, names.TRAIN_WORKER), context, attributes)
    if begun[1] is not None and active.memory is not None:
        active.memory.measure(begun[1])
    return begun


_MOST_TRANSFERS = 100
"""Bounds the transfers that are known to follow, in case one never does."""

_transfers: dict[str, Context] = {}
"""The contexts of reports whose checkpoints may be transferred in another thread, by the name of the folder."""


def _begin_report(active: Tracing, context: Any, metrics: Any, *_args: Any, **_others: Any) -> Begun:
    return begin_step(active, names.TRAIN_REPORT, context, context.get_world_rank(), of_metrics(active, metrics))


def _timed(attribute: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that keeps how long a method takes as this attribute of the step."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            began = monotonic()
            try:
                with hidden_frame:
                    return original(*args, **kwargs)
            finally:
                setattr(step, attribute, monotonic() - began)

        return call

    return wrap


def _synchronizing(original: Callable[..., Any]) -> Callable[..., Any]:
    """At the barrier, all ranks learn the name of the folder for the checkpoint."""
    return followed_by(_note_folder, "tracing the transfer of a checkpoint")(_timed("barrier")(original))


def _note_folder(folder: str, *_args: Any, **_kwargs: Any) -> None:
    if len(_transfers) >= _MOST_TRANSFERS:
        _transfers.clear()
    _transfers[folder] = get_current()


def _begin_transfer(
    active: Tracing, _context: Any, folder: str, _metrics: Any, checkpoint: Any = None, *_args: Any, **_others: Any
) -> Begun | None:
    around = _transfers.pop(folder, None) or get_current()
    if not checkpoint:
        return None
    attributes = {names.RAY_TRAIN_CHECKPOINT: folder}
    if step.span is not None:
        step.span.set_attributes(attributes)
    return library_spans.begin(active, names.TRAIN_TRANSFER, around, attributes)


def _begin_barrier(active: Tracing) -> Begun:
    return _begin_collective(active, "barrier")


def _begin_broadcast(
    active: Tracing, _data: Any, *, caller_method_name: str = "broadcast_from_rank_zero", **_others: Any
) -> Begun:
    return _begin_collective(active, caller_method_name.rpartition(".")[2])


def _begin_collective(active: Tracing, name: str) -> Begun:
    from ray.train.v2._internal.execution.context import get_train_context  # noqa: PLC0415  as above

    context = get_train_context()
    return begin_step(active, names.TRAIN_COLLECTIVES + name, context, context.get_world_rank())


def _end_collective(span: RecordedSpan, error: BaseException | None) -> None:
    # They do nothing but wait for the others.
    step.barrier = monotonic() - step.began
    end_step(span, error)


WRAPPERS = {"ThreadRunner.run": _run}

REPORTS = {
    "TrainContext.report": spanned(_begin_report, end_step),
    "TrainContext._sync_checkpoint_dir_name_across_ranks": _synchronizing,
    "TrainContext._upload_checkpoint": spanned(_begin_transfer),
    "TrainContext._wait_then_report": _timed("handover"),
}

COLLECTIVES = {
    "barrier": spanned(_begin_barrier, _end_collective),
    "broadcast_from_rank_zero": spanned(_begin_broadcast, _end_collective),
}

_LOCAL_RUN = "_initialize_and_run_local_controller"


def patch_local(patches: Patches) -> bool:
    """Wrap runs without workers; False if this Ray has changed them. Older ones do not have them."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # noqa: PLC0415  imported by now

    if not hasattr(DataParallelTrainer, _LOCAL_RUN):
        return True
    from ray.train.v2._internal.execution.train_fn_utils import LocalTrainFnUtils  # noqa: PLC0415  as above

    return patches.wrap(DataParallelTrainer, _LOCAL_RUN, _run_local) and patches.wrap(
        LocalTrainFnUtils, "report", spanned(_begin_local_report, end_step)
    )


def _run_local(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(trainer: Any, train_func: Callable[[], Any]) -> Any:
        rank = spanned(functools.partial(_begin_local_rank, trainer=trainer), end_span)
        with hidden_frame:
            return original(trainer, rank(train_func))

    return spanned(_begin_local_attempt, end_span)(functools.wraps(original)(run))


def _begin_local_attempt(active: Tracing, trainer: Any, _train_func: Any) -> Begun:
    attributes = {**of_run(trainer.train_run_context), names.RAY_TRAIN_ATTEMPT: 1, names.RAY_TRAIN_NUM_WORKERS: 0}
    name = names.run_name(trainer.run_config.name, names.TRAIN_ATTEMPT)
    return library_spans.begin(active, name, get_current(), attributes)


def _begin_local_rank(active: Tracing, trainer: Any) -> Begun:
    from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils  # noqa: PLC0415  as above

    return begin_rank(active, trainer.run_config.name, get_train_fn_utils().get_context(), get_current())


def _begin_local_report(active: Tracing, utils: Any, metrics: Any, *_args: Any, **_others: Any) -> Begun:
    rank = utils.get_context().get_world_rank()
    return begin_step(active, names.TRAIN_REPORT, utils, rank, of_metrics(active, metrics))
