"""The calls of trainables that Ray wraps in a class of its own are named by what it wraps: a function in
``ImplicitFunc``, and a class in those of ``tune.with_resources`` and ``tune.with_parameters`` (Ray 2.60
``tune/trainable/function_trainable.py`` and ``util.py``).

Their arguments do not say which one it is. The caller knows it from the trial (:func:`calling`), and the actor from
itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ray_tracing_hooks._ray.dispatch import Naming, Shown
from ray_tracing_hooks._ray.function_names import name_of
from ray_tracing_hooks._ray.library_calls import preceded_by
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

PART = "tune"

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

_INTERNAL = ("__", "get_auto_filled_metrics")
"""How the names of methods begin with which Ray Tune manages its actors."""

_MOST_NAMES = 1000


def patch(patches: Patches) -> bool:
    """Learn the name of this actor's trainable; False if this Ray lacks the wrapped method."""
    from ray.tune.trainable.trainable import Trainable  # noqa: PLC0415  imported by now

    return patches.wrap(Trainable, "__init__", preceded_by(_learn, "naming a trainable"))


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
        name = _known[registered] = _name_of_class(trial.get_trainable_cls())
    return name


def _only(found: Iterable[str]) -> str:
    """The name, if there is only one: of the actor's own trainable, or of those that this process calls."""
    different = set(filter(None, found))
    return different.pop() if len(different) == 1 else ""


def of(module: str, class_name: str, function: str) -> Naming | None:
    """The naming of a method of ``ray.tune``."""
    if (module, class_name.rpartition(".")[2]) not in _WRAPPERS or function.startswith(_INTERNAL):
        return None

    def by(args: Any, _kwargs: Any) -> Shown | None:
        trainable = _called.name or _only(_own or _known.values())
        method = name_of(args[0]) if function == _EXECUTE and args else None
        return Shown(f"{trainable}.{method or function}") if trainable else None

    return Naming(PART, by)
