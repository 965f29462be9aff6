"""The iterations of an algorithm of RLlib and their phases: wraps ``Algorithm.step``, and ``MetricsLogger.log_time``,
with which algorithms time what they do (Ray 2.60 ``rllib/algorithms/algorithm.py`` and
``utils/metrics/metrics_logger.py``).

What env runners and learners of RLlib run: their calls go through ``apply``, with a function (Ray 2.60
``rllib/utils/actor_manager.py``). A learner has a class that Ray makes (``train/_internal/worker_group.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.labels import CallLabel, CallLabeler, name_of
from ray_tracing_hooks._ray.library_spans import begun, end_call, spanned, within
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame, hide_frame
from ray_tracing_hooks._safety.guard import guarded

_TIMERS, _TIMER = "timers", "_timer"
"""The first part of the keys of an algorithm's own timers, and how most of their names end."""


_contexts: WeakKeyDictionary[Any, Context] = WeakKeyDictionary()
"""The contexts of the current iterations, by the algorithm."""

_algorithms: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The names of algorithms, by what they log their metrics with."""


def _begin(active: Tracing, algorithm: Any) -> Begun:
    name = type(algorithm).__name__
    attributes = {names.RAY_RLLIB_ALGORITHM: name, names.RAY_RLLIB_ITERATION: algorithm.iteration + 1}
    begun = library_spans.begin(active, names.run_name(name, names.RLLIB), get_current(), attributes)
    _contexts[algorithm] = begun[0]
    metrics = getattr(algorithm, "metrics", None)
    if metrics is not None:
        _algorithms[metrics] = name
    return begun


def _context_of(algorithm: Any) -> Context | None:
    """For training in another thread, while the evaluation runs in this one."""
    return None if SPAN_KEY in get_current() else _contexts.get(algorithm)


def _log_time(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def log_time(metrics: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        with hidden_frame:
            timer = original(metrics, key, *args, **kwargs)
        if tracing.active is None or type(key) is not tuple or len(key) != 2 or key[0] != _TIMERS:
            return timer
        algorithm = _algorithms.get(metrics)
        return timer if algorithm is None else _Phase(timer, algorithm, str(key[1]).removesuffix(_TIMER))

    return log_time


class _Phase:
    """The timer of a phase, which is also its span while it runs."""

    def __init__(self, timer: Any, algorithm: str, phase: str) -> None:
        self._timer, self._algorithm, self._phase = timer, algorithm, phase
        self._span: RecordedSpan | None = None
        self._token: Any = None

    def __enter__(self) -> Any:
        found = begun(self._begin, tracing.active)
        if found is not None:
            context, self._span = found
            self._token = attach(context)
        try:
            return self._timer.__enter__()
        except BaseException as error:
            hide_frame(error)
            self._end(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        try:
            return self._timer.__exit__(kind, error, trace)
        except BaseException as fault:
            hide_frame(fault)
            error = fault if error is None else error
            raise
        finally:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        token, self._token = self._token, None
        if token is not None:
            detach(token)
        span, self._span = self._span, None
        if span is not None:
            with guarded("ending a phase of RLlib"):
                end_call(span, error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timer, name)

    def _begin(self, active: Tracing) -> Begun:
        name = names.run_name(self._algorithm, f"{names.RLLIB}.{self._phase}")
        return library_spans.begin(active, name, get_current(), {names.RAY_RLLIB_ALGORITHM: self._algorithm})


WRAPPERS = {
    "Algorithm.step": spanned(_begin),
    "Algorithm._run_one_training_iteration": within(_context_of, "tracing an iteration of RLlib"),
    "MetricsLogger.log_time": _log_time,
}


_OF_LEARNERS = {"_WrappedExecutable": "Learner"}


def labeler_for(_module: str, class_name: str, function: str) -> CallLabeler | None:
    """The naming of a method of one of these actors."""
    if function != "apply" or not class_name:
        return None
    short = class_name.rpartition(".")[2]
    shown = _OF_LEARNERS.get(short, short)

    def by(args: Any, kwargs: Any) -> CallLabel | None:
        name = name_of(args[0] if args else kwargs.get("func"))
        return CallLabel(f"{shown}.{name}") if name else None

    return CallLabeler(by)
