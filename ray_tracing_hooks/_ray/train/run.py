"""A run of Ray Train: wraps ``DataParallelTrainer.fit`` (Ray 2.60 ``train/v2/api/data_parallel_trainer.py``).

Why a run, an attempt or a rank failed, and how that ends its span.

The attempts of a run, in its controller: wraps ``TrainController._run_control_loop_iteration``, ``_set_state``,
``_execute_failure_decision`` and ``_execute_resize_decision`` (Ray 2.60
``train/v2/_internal/execution/controller/controller.py``).

An attempt begins where the run begins or begins anew, after a failure or to change the number of workers, and ends
where the next one begins or the run ends. So attempts cover the run: that of a failure includes everything until Ray
knew of it, and the next one the end of the old workers and the start of new ones.

What generic calls of Ray Train run: a function on a worker (``RayTrainWorker.execute``), or the validation of a
checkpoint (Ray 2.60 ``train/v2/_internal/execution/worker_group/worker.py`` and ``checkpoint/validation_manager.py``;
those of Train's first version are in ``train/_internal/worker_group.py``).

The training loop of a rank: wraps ``ThreadRunner.run`` (Ray 2.60
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
from weakref import WeakKeyDictionary, ref

from opentelemetry import trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._libraries import TRAIN
from ray_tracing_hooks._ray import errors, library_spans, tracing
from ray_tracing_hooks._ray.labels import CallLabel, CallLabeler, name_of
from ray_tracing_hooks._ray.library_spans import followed_by, preceded_by, spanned
from ray_tracing_hooks._ray.propagation import QUIET_KEY, Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, detach, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame, qualified_name
from ray_tracing_hooks._safety.guard import guarded, report
from ray_tracing_hooks._safety.patching import Patches

_INNER = ("controller_failure", "health_check_failure", "_base_exc")
"""Where Ray's own errors (``train/v2/api/exceptions.py`` and ``_internal/exceptions.py``) keep what they wrap."""

_MOST_CAUSES = 10


def cause(error: BaseException) -> BaseException:
    """The error of the program or of Ray that Ray Train has wrapped: of several ranks, that of the first one."""
    for _ in range(_MOST_CAUSES):
        if not type(error).__module__.startswith("ray.train"):
            break
        values = vars(error)
        ranks = values.get("worker_failures")
        inner = ranks[min(ranks)] if isinstance(ranks, dict) and ranks else None
        for name in _INNER:
            inner = inner or values.get(name)
        if not isinstance(inner, BaseException) or inner is error:
            break
        error = inner
    return errors.cause(error)


def failed_ranks(error: BaseException) -> list[str]:
    """The ranks that failed, if Ray says so."""
    ranks = vars(error).get("worker_failures")
    return [str(rank) for rank in sorted(ranks)] if isinstance(ranks, dict) else []


def attributes_of(error: BaseException) -> dict[str, Any]:
    """The attributes of an event about this failure."""
    found: dict[str, Any] = {names.ERROR_TYPE: qualified_name(type(cause(error)))}
    if ranks := failed_ranks(error):
        found[names.RAY_TRAIN_FAILED_RANKS] = ranks
    return found


def end_span(span: RecordedSpan, error: BaseException | None) -> None:
    """End a span with the cause of this error, or without one."""
    if error is not None:
        if ranks := failed_ranks(error):
            span.set_attribute(names.RAY_TRAIN_FAILED_RANKS, ranks)
        errors.fail(span, cause(error))
    span.end()


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


def _say(_trainer: Any) -> None:
    report(
        "runs and ranks of the first version of Ray Train are not recorded: its trainers run on Ray Tune, whose "
        "experiments and trials are. Ray 2.52 and newer use the second version, unless RAY_TRAIN_V2_ENABLED is 0"
    )


_RUNNING = "RUNNING"


class Attempts:
    """The attempts of one run.

    Attributes:
        context: The context of the current attempt.
    """

    def __init__(self, active: Tracing, run: Any, around: Context) -> None:
        self._active, self._run = active, run
        # Waits of the controller are part of its loop, which never ends: they make no spans.
        self._around = Context({**around, QUIET_KEY: True})
        self._number = 0
        self._span: RecordedSpan | None = None
        self._began = self._ran = 0.0
        self._state = ""
        self.begin()

    def begin(self) -> None:
        self._number += 1
        attributes = {**of_run(self._run), names.RAY_TRAIN_ATTEMPT: self._number}
        name = names.run_name(self._run.run_config.name, names.TRAIN_ATTEMPT)
        self.context, self._span = library_spans.begin(self._active, name, self._around, attributes)
        self._began, self._ran = monotonic(), 0.0

    def end(self, error: BaseException | None, message: str = "") -> None:
        span, self._span = self._span, None
        if span is None:
            return
        if self._ran:
            span.set_attribute(names.RAY_TRAIN_RUNNING_TIME, monotonic() - self._ran)
        if message:
            span.set_status(trace.StatusCode.ERROR, message)
        end_span(span, error)

    def changed(self, state: Any) -> None:
        """Record that the run is in another state."""
        kind = state._state_type  # noqa: SLF001  Ray's own callback for metrics reads it too
        name: str = kind.state_name
        if name == self._state:
            return
        self._state = name
        error = getattr(state, "training_failed_error", None)
        self.note(names.TRAIN_CHANGED, {names.RAY_TRAIN_STATE: name}, error)
        if name == _RUNNING and not self._ran:
            self._ran = monotonic()
            if self._span is not None:
                self._span.set_attribute(names.RAY_TRAIN_SCHEDULING_TIME, self._ran - self._began)
        if kind.is_terminal:
            self.end(error, "aborted" if name == "ABORTED" else "")
        elif kind.needs_new_run_attempt:
            self.end(error)
            self.begin()

    def note(self, event: str, attributes: dict[str, Any], error: BaseException | None = None) -> None:
        if self._span is not None:
            self._span.add_event(event, {**attributes, **(attributes_of(error) if error is not None else {})})

    def resized(self, workers: int) -> None:
        """Record how many workers the current attempt has."""
        if self._span is not None:
            self._span.set_attribute(names.RAY_TRAIN_NUM_WORKERS, workers)
            self.note(names.TRAIN_RESIZE, {names.RAY_TRAIN_NUM_WORKERS: workers})


_runs: WeakKeyDictionary[Any, Attempts] = WeakKeyDictionary()


@guarded("tracing an attempt of Ray Train")
def _attempts_of(controller: Any) -> Attempts | None:
    active = tracing.active
    if active is None:
        return None
    known = _runs.get(controller)
    if known is None:
        known = _runs[controller] = Attempts(active, controller._train_run_context, get_current())  # noqa: SLF001
    return known


def _iteration(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def iteration(controller: Any) -> Any:
        attempts = _attempts_of(controller)
        token = attach(attempts.context) if attempts is not None else None
        try:
            with hidden_frame:
                return await original(controller)
        finally:
            if token is not None:
                detach(token)

    return iteration


def _note_state(_result: Any, controller: Any, *_args: Any, **_kwargs: Any) -> None:
    attempts = _runs.get(controller)
    if attempts is not None:
        # A callback that fails changes it.
        attempts.changed(controller.get_state())


def _note_failure(controller: Any, decision: Any, *args: Any, **kwargs: Any) -> None:
    attempts = _runs.get(controller)
    error = args[0] if args else kwargs.get("training_failed_error")
    if attempts is not None:
        attempts.note(names.TRAIN_FAILURE, {names.RAY_TRAIN_DECISION: decision.name}, error)


def _note_resize(controller: Any, decision: Any) -> None:
    attempts = _runs.get(controller)
    if attempts is not None:
        attempts.resized(decision.num_workers)


WRAPPERS = {"DataParallelTrainer.fit": spanned(_begin, end_span)}

FIRST_VERSION = {"BaseTrainer.fit": preceded_by(_say, "reporting a run of Ray Train")}

ATTEMPTS = {
    "TrainController._run_control_loop_iteration": _iteration,
    "TrainController._set_state": followed_by(_note_state, "recording the state of a run"),
    "TrainController._execute_failure_decision": preceded_by(_note_failure, "recording a failure decision"),
    "TrainController._execute_resize_decision": preceded_by(_note_resize, "recording a resize decision"),
}


_EXECUTE = {"execute", "_RayTrainWorker__execute"}


def labeler_for(_module: str, class_name: str, function: str) -> CallLabeler | None:
    if class_name == "RayTrainWorker" and function in _EXECUTE:
        return _OF_WORKER
    return _OF_VALIDATION if function == "run_validation_fn" and not class_name else None


def _executed(args: Any, kwargs: Any) -> CallLabel | None:
    function = args[0] if args else kwargs.get("fn") or kwargs.get("func")
    name = name_of(function)
    # What Ray Train itself runs to manage its workers makes no spans, as the rest of its calls.
    if not name or str(getattr(function, "__module__", "")).startswith(TRAIN.internal):
        return None
    return CallLabel(f"RayTrainWorker.{name}")


def _validated(args: Any, kwargs: Any) -> CallLabel | None:
    config = args[0] if args else kwargs["validation_config"]
    function = name_of(config.fn)
    return CallLabel(f"{config.fn.__module__}.{function}") if function else None


_OF_WORKER, _OF_VALIDATION = CallLabeler(_executed), CallLabeler(_validated)


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
                target = spanned(functools.partial(_begin_loop, context=get_current()), end_span)(target)
        with hidden_frame:
            return original(runner, target)

    return run


def _begin_loop(active: Tracing, context: Context) -> Begun:
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


LOOPS = {"ThreadRunner.run": _run}

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
