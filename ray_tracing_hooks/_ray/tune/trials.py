"""The span of a trial.

The creation of the actor of a trial is part of the trial: wraps ``AcquiredResources.annotate_remote_entities`` (Ray
2.60 ``air/execution/resources/request.py``), which Ray Tune calls for each actor before it creates it
(``RayActorManager``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._ray import errors, library_spans, tracing
from ray_tracing_hooks._ray.library_spans import followed_by, within
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._safety.exceptions import hide_frame, qualified_name
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

RUNNING, ERROR = "RUNNING", "ERROR"
FINAL = frozenset({"TERMINATED", ERROR})
"""The statuses in which a trial has ended, unless Ray sets it back in the same step."""

BY_TRIAL, BY_CRITERION, BY_SCHEDULER, BY_EXPERIMENT = "trial", "criterion", "scheduler", "experiment"
"""What ends a trial, if no error does."""

_running: WeakValueDictionary[str, Trial] = WeakValueDictionary()


def trial_of(trial_id: str) -> Trial | None:
    """The trial with this id, unless it has ended."""
    return _running.get(trial_id)


class Trial:
    """The span of one trial.

    Args:
        active: The instrumentation.
        context: The context of its experiment.
        name: The name of its experiment, for spans.
        metric: The metric that is optimized.
        trial: Ray's object for it.

    Attributes:
        context: The context of what is done for it.
        trial_id: Its id.
        metric: The metric that is optimized.
        stopped_by: What decided that it ends, once something has.
    """

    def __init__(self, active: Tracing, context: Context, name: str, metric: str, trial: Any) -> None:
        from ray_tracing_hooks._record.argument_text import Redactor  # noqa: PLC0415  not in workers of Ray Data

        self.trial_id: str = trial.trial_id
        self.stopped_by = ""
        self._trial, self.metric = trial, metric
        self._redactor = Redactor(active.redact)
        self._error: BaseException | None = None
        self._failures = 0
        self._has_failed = False
        self._began, self._ended_at = monotonic(), now_ns()
        self._pending: float | None = None
        attributes = {
            names.RAY_TUNE_TRIAL_ID: self.trial_id,
            names.RAY_TUNE_TRAINABLE: str(trial.trainable_name),
            names.RAY_TUNE_CONFIG: self.text(trial.config),
        }
        self.context, self._span = library_spans.begin(
            active, names.run_name(name, names.TUNE_TRIAL), context, attributes
        )
        _running[self.trial_id] = self

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, by its status."""
        return self._trial.status in FINAL

    def text(self, config: Any) -> str:
        """A configuration as a short text."""
        if isinstance(config, Mapping):
            return self._redactor.arguments([], [], {str(key): value for key, value in config.items()})
        return self._redactor.result("", config)

    def changed(self, status: str) -> None:
        """Record that it has another status. Ray sets one that is final too, before it pauses or restarts a trial."""
        if status in FINAL:
            self._ended_at = now_ns()
            return
        self.note(names.TUNE_CHANGED, {names.RAY_TUNE_TRIAL_STATUS: status})
        if status == RUNNING and self._pending is None:
            self._pending = monotonic() - self._began

    def failed(self, error: BaseException, *, for_good: bool = False) -> None:
        """Record that it has failed. Ray may start it again, unless that is ``for_good``, whatever its status is."""
        self._error = error
        if for_good:
            self._has_failed, self._ended_at = True, now_ns()
        self._failures += 1
        kind = qualified_name(type(errors.cause(error)))
        self.note(names.TUNE_FAILURE, {names.ERROR_TYPE: kind})

    def note(self, event: str, attributes: dict[str, Any]) -> None:
        """Add an event to its span."""
        if self._span is not None:
            self._span.add_event(event, attributes)

    def end(self, *, by_experiment: bool) -> str:
        """End its span; returns its status. ``by_experiment`` says that its experiment ends before it."""
        span, self._span = self._span, None
        _running.pop(self.trial_id, None)
        status: str = ERROR if self._has_failed else self._trial.status
        if span is None:
            return status
        if status in FINAL:
            span.add_event(names.TUNE_CHANGED, {names.RAY_TUNE_TRIAL_STATUS: status}, self._ended_at)
        attributes: dict[str, Any] = {
            names.RAY_TUNE_TRIAL_STATUS: status,
            names.RAY_TUNE_ITERATIONS: self._reported("training_iteration"),
            names.RAY_TUNE_METRIC_VALUE: self._reported(self.metric),
            names.RAY_TUNE_FAILURES: self._failures or None,
            names.RAY_TUNE_PENDING_TIME: self._pending,
        }
        span.set_attributes({key: value for key, value in attributes.items() if value is not None})
        if status == ERROR and self._error is not None:
            # Ends it.
            errors.fail(span, self._error)
            return status
        if status != ERROR:
            span.set_attribute(names.RAY_TUNE_STOPPED_BY, self.stopped_by or BY_EXPERIMENT)
        span.end(self._ended_at if not by_experiment else None)
        return status

    def _reported(self, key: str) -> float | None:
        """A number that it has reported last. Ray's property for that may wait for the actor."""
        value = (self._trial.run_metadata.last_result or {}).get(key) if key else None
        if type(value) is int or type(value) is float:
            return value
        is_number = type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0
        return float(value) if value is not None and is_number else None


def patch_exploits(patches: Patches) -> bool:
    """Wrap exploits of population based training (Ray 2.60 ``tune/schedulers/pbt.py``): a trial continues with the
    state of another one; False if this Ray lacks the wrapped method.
    """
    from ray.tune.schedulers.pbt import PopulationBasedTraining  # noqa: PLC0415  imported by now

    return patches.wrap(PopulationBasedTraining, "_exploit", followed_by(_exploited, "recording an exploit"))


def _exploited(_result: None, _scheduler: Any, _controller: Any, trial: Any, trial_to_clone: Any) -> None:
    known = trial_of(trial.trial_id)
    if known is not None:
        cloned, config = trial_to_clone.trial_id, known.text(trial.config)
        known.note(names.TUNE_EXPLOIT, {names.RAY_TUNE_CLONED: cloned, names.RAY_TUNE_CONFIG: config})


_TRIAL_INFO = "__trial_info__"
"""The key of a trial in the configuration of its actor (``tune/result.py``)."""


def patch_actors(patches: Patches) -> bool:
    """Wrap the creation of actors; False if this Ray lacks the wrapped method."""
    from ray.air.execution.resources.request import AcquiredResources  # noqa: PLC0415  imported by now

    return patches.wrap(AcquiredResources, "annotate_remote_entities", _annotate)


class _Created:
    """A class of actors that is created in the context of the trial in its configuration."""

    def __init__(self, annotated: Any) -> None:
        self._annotated = annotated
        self.remote = within(_context_of, "tracing the actor of a trial")(annotated.remote)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._annotated, name)


def _context_of(*_args: Any, **kwargs: Any) -> Any:
    info = (kwargs.get("config") or {}).get(_TRIAL_INFO)
    trial = trial_of(info.trial_id) if info is not None else None
    return trial.context if trial is not None else None


def _annotate(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def annotate(resources: Any, entities: Any) -> Any:
        try:
            annotated = original(resources, entities)
        except BaseException as error:
            hide_frame(error)
            raise
        if tracing.active is None:
            return annotated
        try:
            return [_Created(each) for each in annotated]
        except Exception as error:  # noqa: BLE001  the actor must be created whatever fails here
            failed("tracing the actor of a trial", error)
            return annotated

    return annotate
