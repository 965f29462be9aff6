"""The span of a trial, and what belongs to it.

The creation of the actor of a trial: wraps ``AcquiredResources.annotate_remote_entities`` (Ray 2.60
``air/execution/resources/request.py``), which Ray Tune calls for each actor before it creates it (``RayActorManager``).

The calls of trainables that Ray wraps in a class of its own are named by what it wraps: a function in
``ImplicitFunc``, and a class in those of ``tune.with_resources`` and ``tune.with_parameters`` (Ray 2.60
``tune/trainable/function_trainable.py`` and ``util.py``). Their arguments do not say which one it is. The caller knows
it from the trial (:func:`calling`), and the actor from itself.

The threads in which functions run that train: wraps ``_TrainSession`` (Ray 2.60 ``train/_internal/session.py``), which
belongs to a trainable of Ray Tune that is a function, or to a worker of the first version of Ray Train. The function
runs while its actor is asked for the next result (``get_next``), until it reports one. So what it does belongs to that
call: after each report, its thread has the context of the call that made it continue.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._libraries import TUNE
from ray_tracing_hooks._ray import errors, library_spans, tracing
from ray_tracing_hooks._ray.labels import CallLabel, CallLabeler, name_of
from ray_tracing_hooks._ray.library_spans import followed_by, in_context, preceded_by, within
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, get_current
from ray_tracing_hooks._safety.exceptions import hidden_frame, qualified_name
from ray_tracing_hooks._safety.guard import guarded

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
        name: The name of its experiment, for spans.

    Attributes:
        context: The context of what is done for it.
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


def _exploited(_result: None, _scheduler: Any, _controller: Any, trial: Any, trial_to_clone: Any) -> None:
    known = trial_of(trial.trial_id)
    if known is not None:
        cloned, config = trial_to_clone.trial_id, known.text(trial.config)
        known.note(names.TUNE_EXPLOIT, {names.RAY_TUNE_CLONED: cloned, names.RAY_TUNE_CONFIG: config})


_TRIAL_INFO = "__trial_info__"
"""The key of a trial in the configuration of its actor (``tune/result.py``)."""


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
        with hidden_frame:
            annotated = original(resources, entities)
        if tracing.active is not None:
            with guarded("tracing the actor of a trial"):
                return [_Created(each) for each in annotated]
        return annotated

    return annotate


_OF_FUNCTIONS, _OF_CLASSES = "ray.tune.trainable.function_trainable", "ray.tune.trainable.util"
_WRAPPERS = {(_OF_FUNCTIONS, "ImplicitFunc"), (_OF_CLASSES, "ResourceTrainable"), (_OF_CLASSES, "_Inner")}
_EXECUTE = "execute"


class _Trainable(threading.local):
    """The trainable that this thread calls, and that of this actor."""

    name = ""


_called = _Trainable()
_own: list[str] = []
"""The name of the trainable of this actor."""

_known: dict[str, str] = {}
"""The names of trainables in an experiment, by that under which they are registered."""

_MANAGING = ("__", *TUNE.internal_methods)
"""How the names of methods begin with which Ray Tune manages its actors."""

_MOST_NAMES = 1000


def _learn(trainable: Any, *_args: Any, **_kwargs: Any) -> None:
    name = _name_of_class(type(trainable))
    _own[:] = [name] if name else []


def _name_of_class(trainable: Any) -> str:
    """What a class of Ray wraps, empty for another class. Where it is a class, Ray gives the wrapper its name."""
    name = trainable.__name__ if trainable.__module__ == _OF_CLASSES else getattr(trainable, "_name", "")
    return name if isinstance(name, str) else ""


def begin_experiment() -> None:
    """Forget the trainables of an earlier experiment, which may have registered others under the same names."""
    _known.clear()


@contextlib.contextmanager
def calling(trial: Any) -> Iterator[None]:
    """Calls in this context are those of a trial."""
    with guarded("naming the calls of a trial"):
        _called.name = _name_of(trial)
    try:
        yield
    finally:
        _called.name = ""


def _name_of(trial: Any) -> str:
    registered = trial.trainable_name
    name = _known.get(registered)
    if name is None:
        if len(_known) >= _MOST_NAMES:
            _known.clear()
        name = _known[registered] = _name_of_class(trial.get_trainable_cls())
    return name


def _only(found: Iterable[str]) -> str:
    """The name, if there is only one: of the actor's own trainable, or of those that this process calls."""
    different = set(filter(None, found))
    return different.pop() if len(different) == 1 else ""


def labeler_for(module: str, class_name: str, function: str) -> CallLabeler | None:
    if (module, class_name.rpartition(".")[2]) not in _WRAPPERS or function.startswith(_MANAGING):
        return None

    def by(args: Any, _kwargs: Any) -> CallLabel | None:
        trainable = _called.name or _only(_own or _known.values())
        method = name_of(args[0]) if function == _EXECUTE and args else None
        return CallLabel(f"{trainable}.{method or function}") if trainable else None

    return CallLabeler(by)


class _Contexts:
    """The context of the thread of a session, and that of the last call that asked for a result."""

    __slots__ = ("asked", "of_thread")

    def __init__(self, context: Context) -> None:
        self.of_thread = self.asked = context


_sessions: WeakKeyDictionary[Any, _Contexts] = WeakKeyDictionary()


def _start(session: Any) -> None:
    context = get_current()
    _sessions[session] = _Contexts(context)
    thread = session.training_thread
    function = thread._target  # noqa: SLF001  where `RunnerThread.run` calls it
    thread._target = functools.wraps(function)(in_context(function, context))  # noqa: SLF001


def _asked(session: Any) -> None:
    contexts = _sessions.get(session)
    if contexts is not None:
        contexts.asked = get_current()


def _reported(_result: None, session: Any, *_args: Any, **_kwargs: Any) -> None:
    contexts = _sessions.get(session)
    # Not within a span of the program, which goes on.
    if contexts is not None and get_current() is contexts.of_thread:
        contexts.of_thread = contexts.asked
        attach(contexts.asked)


EXPLOITS = {"PopulationBasedTraining._exploit": followed_by(_exploited, "recording an exploit")}
"""An exploit of population based training: a trial continues with the state of another (Ray 2.60
``tune/schedulers/pbt.py``)."""

ACTORS = {"AcquiredResources.annotate_remote_entities": _annotate}

NAMES = {"Trainable.__init__": preceded_by(_learn, "naming a trainable")}

_DOING = "giving a training function its context"

SESSIONS = {
    "_TrainSession.start": preceded_by(_start, _DOING),
    "_TrainSession.get_next": preceded_by(_asked, _DOING),
    "_TrainSession._report_training_result": followed_by(_reported, _DOING),
}
