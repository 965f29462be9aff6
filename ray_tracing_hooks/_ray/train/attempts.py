"""The attempts of a run, in its controller: wraps ``TrainController._run_control_loop_iteration``, ``_set_state``,
``_execute_failure_decision`` and ``_execute_resize_decision`` (Ray 2.60
``train/v2/_internal/execution/controller/controller.py``).

An attempt begins where the run begins or begins anew, after a failure or to change the number of workers, and ends
where the next one begins or the run ends. So attempts cover the run: that of a failure includes everything until Ray
knew of it, and the next one the end of the old workers and the start of new ones.
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
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.library_calls import preceded_by
from ray_tracing_hooks._ray.propagation import QUIET_KEY
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._ray.train.failures import attributes_of, end
from ray_tracing_hooks._ray.train.run import of_run
from ray_tracing_hooks._record.current import attach, detach, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_RUNNING = "RUNNING"


def patch(patches: Patches) -> bool:
    """Wrap the controller; False if this Ray lacks one of these methods."""
    from ray.train.v2._internal.execution.controller.controller import TrainController  # noqa: PLC0415  imported by now

    return (
        patches.wrap(TrainController, "_run_control_loop_iteration", _iteration)
        and patches.wrap(TrainController, "_set_state", _set_state)
        and patches.wrap(
            TrainController, "_execute_failure_decision", preceded_by(_note_failure, "recording a failure decision")
        )
        and patches.wrap(
            TrainController, "_execute_resize_decision", preceded_by(_note_resize, "recording a resize decision")
        )
    )


class Attempts:
    """The attempts of one run.

    Args:
        active: The instrumentation.
        run: Ray's ``TrainRunContext`` of the run.
        around: The context of the run.

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
        """Begin the next attempt."""
        self._number += 1
        attributes = {**of_run(self._run), names.RAY_TRAIN_ATTEMPT: self._number}
        name = names.run_name(self._run.run_config.name, names.TRAIN_ATTEMPT)
        self.context, self._span = library_spans.begin(self._active, name, self._around, attributes)
        self._began, self._ran = monotonic(), 0.0

    def end(self, error: BaseException | None, message: str = "") -> None:
        """End the current attempt."""
        span, self._span = self._span, None
        if span is None:
            return
        if self._ran:
            span.set_attribute(names.RAY_TRAIN_RUNNING_TIME, monotonic() - self._ran)
        if message:
            span.set_status(trace.StatusCode.ERROR, message)
        end(span, error)

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
        """Add an event to the current attempt."""
        if self._span is not None:
            self._span.add_event(event, {**attributes, **(attributes_of(error) if error is not None else {})})

    def resized(self, workers: int) -> None:
        """Record how many workers the current attempt has."""
        if self._span is not None:
            self._span.set_attribute(names.RAY_TRAIN_NUM_WORKERS, workers)
            self.note(names.TRAIN_RESIZE, {names.RAY_TRAIN_NUM_WORKERS: workers})


_runs: WeakKeyDictionary[Any, Attempts] = WeakKeyDictionary()


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
        token = None
        try:
            attempts = _attempts_of(controller)
            token = attach(attempts.context) if attempts is not None else None
        except Exception as error:  # noqa: BLE001  the run must continue whatever fails here
            failed("tracing an attempt of Ray Train", error)
        try:
            return await original(controller)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if token is not None:
                detach(token)

    return iteration


def _set_state(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_state(controller: Any, state: Any) -> Any:
        try:
            result = original(controller, state)
        except BaseException as error:
            hide_frame(error)
            raise
        try:
            attempts = _runs.get(controller)
            if attempts is not None:
                # A callback that fails changes it.
                attempts.changed(controller.get_state())
        except Exception as error:  # noqa: BLE001  as above
            failed("recording the state of a run", error)
        return result

    return set_state


def _note_failure(controller: Any, decision: Any, *args: Any, **kwargs: Any) -> None:
    attempts = _runs.get(controller)
    error = args[0] if args else kwargs.get("training_failed_error")
    if attempts is not None:
        attempts.note(names.TRAIN_FAILURE, {names.RAY_TRAIN_DECISION: decision.name}, error)


def _note_resize(controller: Any, decision: Any) -> None:
    attempts = _runs.get(controller)
    if attempts is not None:
        attempts.resized(decision.num_workers)
