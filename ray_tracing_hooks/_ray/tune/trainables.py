"""The calls of trainables that Ray wraps in a class of its own are named by what it wraps: a function in
``ImplicitFunc``, and a class in those of ``tune.with_resources`` and ``tune.with_parameters`` (Ray 2.60
``tune/trainable/function_trainable.py`` and ``util.py``).

Their arguments do not say which one it is. The caller knows it from the trial (:func:`calling`), and the actor from
itself.

The threads in which functions run that train: wraps ``_TrainSession`` (Ray 2.60 ``train/_internal/session.py``),
which belongs to a trainable of Ray Tune that is a function, or to a worker of the first version of Ray Train.

The function runs while its actor is asked for the next result (``get_next``), until it reports one. So what it does
belongs to that call: after each report, its thread has the context of the call that made it continue.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.context import Context

from ray_tracing_hooks._ray.labels import CallLabel, CallLabeler, name_of
from ray_tracing_hooks._ray.library_spans import followed_by, in_context, preceded_by
from ray_tracing_hooks._record.current import attach, get_current
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

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


def labeler_for(module: str, class_name: str, function: str) -> CallLabeler | None:
    """The naming of a method of ``ray.tune``."""
    if (module, class_name.rpartition(".")[2]) not in _WRAPPERS or function.startswith(_INTERNAL):
        return None

    def by(args: Any, _kwargs: Any) -> CallLabel | None:
        trainable = _called.name or _only(_own or _known.values())
        method = name_of(args[0]) if function == _EXECUTE and args else None
        return CallLabel(f"{trainable}.{method or function}") if trainable else None

    return CallLabeler(by)


def patch_sessions(patches: Patches) -> bool:
    """Wrap sessions; False if this Ray lacks one of these methods."""
    from ray.train._internal.session import _TrainSession  # noqa: PLC0415  imported by now

    doing = "giving a training function its context"
    return (
        patches.wrap(_TrainSession, "start", preceded_by(_start, doing))
        and patches.wrap(_TrainSession, "get_next", preceded_by(_asked, doing))
        and patches.wrap(_TrainSession, "_report_training_result", followed_by(_reported, doing))
    )


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
    thread._target = _in_context(thread._target, context)  # noqa: SLF001  where `RunnerThread.run` calls it


def _in_context(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    return functools.wraps(function)(in_context(function, context))


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
