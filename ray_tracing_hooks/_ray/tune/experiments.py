"""An experiment and its trials, in the process that runs it: wraps the methods of ``TuneController`` in which it
begins, goes on and ends, and those that change or call a trial (Ray 2.60 ``tune/execution/tune_controller.py``).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import errors, library_spans, tracing
from ray_tracing_hooks._ray.library_spans import ended_by, followed_by, preceded_by, within
from ray_tracing_hooks._ray.propagation import QUIET_KEY
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.tune.trials import (
    BY_CRITERION,
    BY_SCHEDULER,
    BY_TRIAL,
    ERROR,
    FINAL,
    Trial,
    begin_experiment,
    calling,
)
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.guard import guarded


class Experiment:
    """One experiment.

    Attributes:
        trials: Its trials that have not ended, by id.
        asked: How often its scheduler was asked for anything.
        context: The context of its trials.
        loop: The context of its loop, in which waiting for objects makes no spans.
    """

    def __init__(self, active: Tracing, name: str, around: Context) -> None:
        self.active = active
        self.name = name
        self.trials: dict[str, Trial] = {}
        self.metric = ""
        self.asked = 0
        self._count = self._failed = 0
        self.context, self.span = library_spans.begin(
            active, names.run_name(self.name, names.TUNE_EXPERIMENT), around, {names.RAY_TUNE_EXPERIMENT: name}
        )
        self.loop = Context({**self.context, QUIET_KEY: True})

    def describe(self, controller: Any) -> None:
        """Record how the experiment chooses among its trials, from its ``TuneController``."""
        metric = getattr(controller, "_metric", None)
        self.metric = metric if isinstance(metric, str) else ""
        if self.span is not None:
            self.span.set_attribute(names.RAY_TUNE_SCHEDULER, type(controller.scheduler_alg).__name__)
            self.span.set_attribute(names.RAY_TUNE_SEARCHER, _searcher(controller.search_alg))
            if self.metric:
                self.span.set_attribute(names.RAY_TUNE_METRIC, self.metric)
        # Those of an experiment that is resumed are added before its controller is complete.
        for trial in self.trials.values():
            trial.metric = self.metric

    def add(self, trial: Any) -> None:
        """Begin the span of a new trial; one that had ended before the experiment was resumed has none."""
        if trial.trial_id not in self.trials and trial.status not in FINAL:
            self.trials[trial.trial_id] = Trial(self.active, self.context, self.name, self.metric, trial)

    def of(self, trial: Any) -> Trial | None:
        return self.trials.get(trial.trial_id)

    def end_trials(self, trials: Any = None) -> None:
        """End the spans of these trials of Ray's that have ended; of all without them."""
        for trial in list(self.trials.values()) if trials is None else trials:
            status = trial.end(by_experiment=trials is None)
            self.trials.pop(trial.trial_id, None)
            self._count += 1
            self._failed += status == ERROR

    def failed(self, error: BaseException) -> None:
        """Record what has ended the experiment. The error itself would keep the controller, by its traceback."""
        if self.span is not None:
            with guarded("recording the error of an experiment of Ray Tune"):
                errors.describe(self.span, error)

    def end(self) -> None:
        self.end_trials()
        span, self.span = self.span, None
        if span is None:
            return
        span.set_attribute(names.RAY_TUNE_TRIALS, self._count)
        if self._failed:
            span.set_attribute(names.RAY_TUNE_TRIALS_FAILED, self._failed)
        span.end()


def _searcher(algorithm: Any) -> str:
    """The class of the search algorithm, within what limits or generates its trials."""
    for _ in range(3):
        inner = vars(algorithm).get("searcher")
        if inner is None:
            break
        algorithm = inner
    return type(algorithm).__name__


_experiments: WeakKeyDictionary[Any, Experiment] = WeakKeyDictionary()


def _context_of(controller: Any, *_args: Any, **_kwargs: Any) -> Context | None:
    experiment = _experiments.get(controller)
    return experiment.loop if experiment is not None else None


def _begin(controller: Any, *_args: Any, storage: Any = None, **_kwargs: Any) -> Context | None:
    active = tracing.active
    if active is None:
        return None
    name = getattr(storage, "experiment_dir_name", None) or "experiment"
    begin_experiment()
    experiment = _experiments[controller] = Experiment(active, name, get_current())
    # An experiment that an interruption ends is not cleaned up.
    weakref.finalize(controller, experiment.end).atexit = False
    return experiment.loop


def _begun(error: BaseException | None, controller: Any, *_args: Any, **_kwargs: Any) -> None:
    experiment = _experiments.get(controller)
    if experiment is None:
        return
    if error is None:
        experiment.describe(controller)
    else:
        experiment.failed(error)
        experiment.end()


def _stepped(error: BaseException | None, controller: Any) -> None:
    experiment = _experiments.get(controller)
    if experiment is None:
        return
    if error is not None:
        experiment.failed(error)
    else:
        # Not where their status changes, since Ray sets some back in the same step.
        experiment.end_trials([trial for trial in experiment.trials.values() if trial.has_ended])


def _cleaned_up(_error: BaseException | None, controller: Any) -> None:
    experiment = _experiments.pop(controller, None)
    if experiment is not None:
        experiment.end()


_DONE = ("done", "__duplicate__")
"""The keys in a result with which the code of a trial says that it has ended (``tune/result.py``)."""


def _trial(controller: Any, trial: Any) -> Trial | None:
    experiment = _experiments.get(controller)
    return experiment.of(trial) if experiment is not None else None


def _added(_result: None, controller: Any, trial: Any) -> None:
    experiment = _experiments.get(controller)
    if experiment is not None:
        experiment.add(trial)


def _set_status(controller: Any, trial: Any, status: str) -> None:
    known = _trial(controller, trial) if status != trial.status else None
    if known is not None:
        known.changed(status)


def _context_of_actor(controller: Any, tracked_actor: Any, *_args: Any, **_kwargs: Any) -> Context | None:
    known = _trial(controller, controller._actor_to_trial[tracked_actor])  # noqa: SLF001
    return known.context if known is not None else None


def _context_of_trial(controller: Any, trial: Any, *_args: Any, **_kwargs: Any) -> Context | None:
    known = _trial(controller, trial)
    return known.context if known is not None else None


def _task(original: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of the actor of a trial, which are named by its trainable."""
    in_trial = within(_context_of_trial, "tracing a trial of Ray Tune")(original)

    @functools.wraps(original)
    def schedule(controller: Any, trial: Any, *args: Any, **kwargs: Any) -> Any:
        with hidden_frame, calling(trial):
            return in_trial(controller, trial, *args, **kwargs)

    return schedule


def _restored(is_restored: bool, controller: Any, trial: Any) -> None:
    known = _trial(controller, trial) if is_restored else None
    if known is not None:
        known.note(names.TUNE_RESTORED, _path_of(trial.latest_checkpoint_result))


def _saved(_result: None, controller: Any, trial: Any, checkpoint_value: Any) -> None:
    known = _trial(controller, trial)
    if known is not None and checkpoint_value and checkpoint_value.checkpoint:
        known.note(names.TUNE_CHECKPOINTED, _path_of(checkpoint_value))


def _path_of(result: Any) -> dict[str, str]:
    path = getattr(getattr(result, "checkpoint", None), "path", None)
    return {names.RAY_TUNE_CHECKPOINT: path} if isinstance(path, str) else {}


def _note_failure(controller: Any, trial: Any, exception: BaseException) -> None:
    known = _trial(controller, trial)
    if known is not None:
        known.failed(exception)


def _task_failed(error: BaseException | None, controller: Any, trial: Any, *_args: Any, **_kwargs: Any) -> None:
    """With ``fail_fast="raise"``, Ray raises the error of a trial at once, and leaves the trial as it is."""
    known = _trial(controller, trial) if error is not None else None
    if known is not None and error is not None:
        known.failed(error, for_good=True)


def _stopped(controller: Any, trial: Any) -> None:
    """Without a result that ends it, a scheduler stops a trial that it compares with others, such as HyperBand."""
    known = _trial(controller, trial)
    if known is not None:
        known.stopped_by = known.stopped_by or BY_SCHEDULER


def _asked(controller: Any) -> None:
    experiment = _experiments.get(controller)
    if experiment is not None:
        experiment.asked += 1


def _result(original: Callable[..., Any]) -> Callable[..., Any]:
    """Ray marks the result of a trial as its last one where something decides that it ends."""

    @functools.wraps(original)
    def process(controller: Any, trial: Any, result: Any) -> Any:
        experiment = _experiments.get(controller)
        was_done = _is_done(result)
        asked = experiment.asked if experiment is not None else 0
        with hidden_frame:
            decision = original(controller, trial, result)
        if experiment is not None and (known := experiment.of(trial)) is not None:
            if was_done:
                known.stopped_by = BY_TRIAL
            elif _is_done(result):
                known.stopped_by = BY_SCHEDULER if experiment.asked != asked else BY_CRITERION
        return decision

    return process


@guarded("recording what ended a trial")
def _is_done(result: Any) -> bool:
    """Whether a result is a last one. What a trial reports may be anything, and need not be true or false."""
    return any(result.get(key) for key in _DONE)


_DOING = "tracing an experiment of Ray Tune"
_in_experiment = within(_context_of, _DOING)

WRAPPERS = {
    "TuneController.__init__": lambda original: ended_by(_begun, _DOING)(within(_begin, _DOING)(original)),
    "TuneController.step": lambda original: ended_by(_stepped, _DOING)(_in_experiment(original)),
    "TuneController.cleanup": lambda original: ended_by(_cleaned_up, _DOING)(_in_experiment(original)),
    # These submit calls for the experiment too.
    "TuneController.setup_experiments": _in_experiment,
    "TuneController.checkpoint": _in_experiment,
}

TRIALS = {
    "TuneController.add_trial": followed_by(_added, "tracing a trial of Ray Tune"),
    "TuneController._set_trial_status": preceded_by(_set_status, "recording the status of a trial"),
    "TuneController._actor_started": within(_context_of_actor, "tracing a trial of Ray Tune"),
    "TuneController._schedule_trial_task": _task,
    "TuneController._schedule_trial_stop": _task,
    "TuneController._schedule_trial_restore": followed_by(_restored, "recording a restored trial"),
    "TuneController._trial_task_failure": ended_by(_task_failed, "recording the failure of a trial"),
    "TuneController._process_trial_failure": preceded_by(_note_failure, "recording the failure of a trial"),
    "TuneController._process_trial_save": followed_by(_saved, "recording a checkpoint of a trial"),
    "TuneController._process_trial_result": _result,
    "TuneController.stop_trial": preceded_by(_stopped, "recording what ended a trial"),
    "TuneController._wrapped": preceded_by(_asked, "recording what ended a trial"),
}
