"""What happens to the trials of an experiment: wraps the methods of ``TuneController`` that change or call one of them
(Ray 2.60 ``tune/execution/tune_controller.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray.library_spans import followed_by, preceded_by, within
from ray_tracing_hooks._ray.tune import trainables
from ray_tracing_hooks._ray.tune.experiments import experiment_of
from ray_tracing_hooks._ray.tune.trials import BY_CRITERION, BY_SCHEDULER, BY_TRIAL, Trial
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_DONE = ("done", "__duplicate__")
"""The keys in a result with which the code of a trial says that it has ended (``tune/result.py``)."""


def patch(patches: Patches) -> bool:
    """Wrap what happens to trials; False if this Ray lacks one of these methods."""
    from ray.tune.execution.tune_controller import TuneController  # noqa: PLC0415  imported by now

    wrappers = {
        "add_trial": followed_by(_added, "tracing a trial of Ray Tune"),
        "_set_trial_status": _status,
        "_actor_started": within(_context_of_actor, "tracing a trial of Ray Tune"),
        "_schedule_trial_task": _task,
        "_schedule_trial_stop": _task,
        "_schedule_trial_restore": followed_by(_restored, "recording a restored trial"),
        "_trial_task_failure": _task_failure,
        "_process_trial_failure": preceded_by(_failed, "recording the failure of a trial"),
        "_process_trial_save": followed_by(_saved, "recording a checkpoint of a trial"),
        "_process_trial_result": _result,
        "stop_trial": preceded_by(_stopped, "recording what ended a trial"),
        "_wrapped": preceded_by(_asked, "recording what ended a trial"),
    }
    return all(patches.wrap(TuneController, name, wrapper) for name, wrapper in wrappers.items())


def _trial(controller: Any, trial: Any) -> Trial | None:
    experiment = experiment_of(controller)
    return experiment.of(trial) if experiment is not None else None


def _added(_result: None, controller: Any, trial: Any) -> None:
    experiment = experiment_of(controller)
    if experiment is not None:
        experiment.add(trial)


def _status(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_status(controller: Any, trial: Any, status: str) -> Any:
        before = trial.status
        try:
            result = original(controller, trial, status)
        except BaseException as error:
            hide_frame(error)
            raise
        if status != before:
            try:
                known = _trial(controller, trial)
                if known is not None:
                    known.changed(status)
            except Exception as error:  # noqa: BLE001  the experiment must go on whatever fails here
                failed("recording the status of a trial", error)
        return result

    return set_status


def _context_of_actor(controller: Any, tracked_actor: Any, *_args: Any, **_kwargs: Any) -> Context | None:
    known = _trial(controller, controller._actor_to_trial[tracked_actor])  # noqa: SLF001
    return known.context if known is not None else None


def _context_of(controller: Any, trial: Any, *_args: Any, **_kwargs: Any) -> Context | None:
    known = _trial(controller, trial)
    return known.context if known is not None else None


def _task(original: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of the actor of a trial, which are named by its trainable."""
    in_trial = within(_context_of, "tracing a trial of Ray Tune")(original)

    @functools.wraps(original)
    def schedule(controller: Any, trial: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with trainables.calling(trial):
                return in_trial(controller, trial, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

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


def _failed(controller: Any, trial: Any, exception: BaseException) -> None:
    known = _trial(controller, trial)
    if known is not None:
        known.failed(exception)


def _task_failure(original: Callable[..., Any]) -> Callable[..., Any]:
    """With ``fail_fast="raise"``, Ray raises the error of a trial at once, and leaves the trial as it is."""

    @functools.wraps(original)
    def fail(controller: Any, trial: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(controller, trial, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            try:
                known = _trial(controller, trial)
                if known is not None:
                    known.failed(error, for_good=True)
            except Exception as fault:  # noqa: BLE001  as above
                failed("recording the failure of a trial", fault)
            raise

    return fail


def _stopped(controller: Any, trial: Any) -> None:
    """Without a result that ends it, a scheduler stops a trial that it compares with others, such as HyperBand."""
    known = _trial(controller, trial)
    if known is not None:
        known.stopped_by = known.stopped_by or BY_SCHEDULER


def _asked(controller: Any) -> None:
    experiment = experiment_of(controller)
    if experiment is not None:
        experiment.asked += 1


def _result(original: Callable[..., Any]) -> Callable[..., Any]:
    """Ray marks the result of a trial as its last one where something decides that it ends."""

    @functools.wraps(original)
    def process(controller: Any, trial: Any, result: Any) -> Any:
        experiment = experiment_of(controller)
        was_done = _is_done(result)
        asked = experiment.asked if experiment is not None else 0
        try:
            decision = original(controller, trial, result)
        except BaseException as error:
            hide_frame(error)
            raise
        if experiment is not None and (known := experiment.of(trial)) is not None:
            if was_done:
                known.stopped_by = BY_TRIAL
            elif _is_done(result):
                known.stopped_by = BY_SCHEDULER if experiment.asked != asked else BY_CRITERION
        return decision

    return process


def _is_done(result: Any) -> bool:
    """Whether a result is a last one. What a trial reports may be anything, and need not be true or false."""
    try:
        return any(result.get(key) for key in _DONE)
    except Exception as error:  # noqa: BLE001  the experiment must go on whatever fails here
        failed("recording what ended a trial", error)
        return False
