"""The calls of trainables that are functions: Ray wraps them in a class of its own, ``ImplicitFunc`` (Ray 2.60
``tune/trainable/function_trainable.py``), and its calls are named by the function.

Their arguments do not say which one it is. The caller knows it from the trial (:func:`calling`), and the actor from
itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.dispatch import Naming, Shown
from ray_tracing_hooks._ray.function_names import name_of
from ray_tracing_hooks._ray.library_calls import preceded_by

PART = "tune"

_MODULE, _CLASS, _EXECUTE = "ray.tune.trainable.function_trainable", "ImplicitFunc", "execute"


class _Trainable(threading.local):
    """The trainable that this thread calls, and that of this actor."""

    name = ""


_called = _Trainable()
_own: list[str] = []
"""The name of the trainable of this actor."""

_known: dict[str, str] = {}
"""The names of functions, by that under which they are registered."""

_INTERNAL = ("__", "get_auto_filled_metrics")
"""How the names of methods begin with which Ray Tune manages its actors."""

_MOST_NAMES = 1000


def patch(patches: Patches) -> bool:
    """Learn the name of this actor's trainable; False if this Ray lacks the wrapped method."""
    from ray.tune.trainable.function_trainable import FunctionTrainable  # noqa: PLC0415  imported by now

    return patches.wrap(FunctionTrainable, "setup", preceded_by(_learn, "naming a trainable"))


def _learn(trainable: Any, *_args: Any, **_kwargs: Any) -> None:
    name = getattr(type(trainable), "_name", None)
    _own[:] = [name] if isinstance(name, str) else []


@contextlib.contextmanager
def calling(trial: Any) -> Iterator[None]:
    """Calls in this context are those of a trial."""
    try:
        _called.name = _name_of(trial)
    except Exception as error:  # noqa: BLE001  the call must be made whatever fails here
        failed("naming the calls of a trial", error)
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
        name = getattr(trial.get_trainable_cls(), "_name", "")
        name = _known[registered] = name if isinstance(name, str) else ""
    return name


def _only(found: Iterable[str]) -> str:
    """The name, if there is only one: of the actor's own trainable, or of those that this process calls."""
    different = set(found)
    return different.pop() if len(different) == 1 else ""


def of(module: str, class_name: str, function: str) -> Naming | None:
    """The naming of a method of ``ray.tune``."""
    if module != _MODULE or class_name.rpartition(".")[2] != _CLASS or function.startswith(_INTERNAL):
        return None

    def by(args: Any, _kwargs: Any) -> Shown | None:
        trainable = _called.name or _only(_own or _known.values())
        method = name_of(args[0]) if function == _EXECUTE and args else None
        return Shown(f"{trainable}.{method or function}") if trainable else None

    return Naming(PART, by)
