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
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

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
