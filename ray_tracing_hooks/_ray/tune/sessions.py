"""The threads in which functions run that train: wraps ``_TrainSession`` (Ray 2.60 ``train/_internal/session.py``),
which belongs to a trainable of Ray Tune that is a function, or to a worker of the first version of Ray Train.

The function runs while its actor is asked for the next result (``get_next``), until it reports one. So what it does
belongs to that call: after each report, its thread has the context of the call that made it continue.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.context import Context

from ray_tracing_hooks._ray.library_calls import followed_by, in_context, preceded_by
from ray_tracing_hooks._record.current import attach, get_current
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches) -> bool:
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
