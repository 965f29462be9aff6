"""The work of operators: what they submit is below their spans.

The executor calls each operator of an execution in its own thread, and the operator makes all calls for its blocks. The
methods in :data:`_WORK` are wrapped on the operator itself, as long as the execution lasts: Ray 2.60
``data/_internal/execution/operators/``. Those that a class or a version of Ray does not have are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import ABSENT, Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.data.operators import Operator
from ray_tracing_hooks._record.current import attach, detach

_WORK = (
    # The interface of an operator: a bundle of blocks arrives, and no more will come.
    ("", "add_input"),
    ("", "input_done"),
    ("", "all_inputs_done"),
    # What its own callbacks call when a task or an actor is done.
    ("", "_try_schedule_tasks_internal"),
    ("", "_submit_sample_task"),
    ("", "_start_shuffle"),
    ("", "_try_finalize"),
    # Actors are also made before the execution begins, and when a pool grows.
    ("_actor_pool", "_create_actor_fn"),
    ("_aggregator_pool", "start"),
)
"""The methods that submit: the attribute of the operator that has it, empty for the operator itself, and its name."""


class _AtWork(threading.local):
    operator: Operator | None = None


at_work = _AtWork()
"""The operator that this thread works for."""


def watch(operator: Operator, patches: Patches) -> None:
    """Make what ``operator`` submits its own, until ``patches`` are undone."""
    for attribute, name in _WORK:
        owner = getattr(operator.op, attribute, None) if attribute else operator.op
        method = getattr(owner, name, None)
        if callable(method):
            patches.set(owner, name, _Working(operator, owner, name, method), back=vars(owner).get(name, ABSENT))


class _Working:
    """Takes the place of a method that submits, in the dictionary of one object.

    Ray pickles some of these objects, such as the pool of an old shuffle for its tasks. Copies have the plain method,
    and can be unpickled where this package is not.
    """

    def __init__(self, operator: Operator, owner: Any, name: str, method: Callable[..., Any]) -> None:
        self._operator, self._owner, self._name, self._method = operator, owner, name, method
        update_wrapper(self, method)

    def __reduce__(self) -> Any:
        is_of_class = hasattr(type(self._owner), self._name)
        return (getattr, (self._owner, self._name)) if is_of_class else (partial, (self._method,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        active = tracing.active
        if active is None:
            return self._method(*args, **kwargs)
        before = at_work.operator
        try:
            token = attach(self._operator.working(active))
        except Exception as error:  # noqa: BLE001  the execution must continue whatever fails here
            failed("tracing an operator of a dataset", error)
            return self._method(*args, **kwargs)
        at_work.operator = self._operator
        try:
            return self._method(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            at_work.operator = before
            detach(token)
