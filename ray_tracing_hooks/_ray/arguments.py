"""How the trace context travels: one more element at the end of a call's flat argument list.

Ray flattens the arguments of every Python call into pairs (``_common/signature.py``, ``flatten_args``) and makes
arguments of them again in the worker (``recover_args``). Both are called through their module, so both can be wrapped
(Ray 2.60: ``remote_function.py``, ``actor.py``, ``_raylet.pyx``). A list with an odd number of elements carries a
context at its end; user signatures, keyword arguments and pickles are not touched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._patching import Patches

KEY = "__ray_tracing_hooks_context__"
"""The keyword under which a context goes from ``recover_args`` to the executor, which takes it out again. It cannot go
by thread: the methods of async actors run in another one.
"""


class _Outgoing(threading.local):
    carried: bytes | None = None


outgoing = _Outgoing()
"""The context of the call that this thread is submitting."""


class _NoArguments(tuple[()]):
    """Empty, but true: Ray skips ``flatten_args`` for a call with no arguments and no parameters."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


_NO_ARGUMENTS = _NoArguments()


def arguments(args: Any, carried: bytes | None) -> Any:
    """What to call Ray with for ``args``, so that it has a place for what is carried."""
    return _NO_ARGUMENTS if carried is not None and not args else args


_creation: bytes | None = None


def take_creation() -> bytes | None:
    """The context of the actor creation that this process is executing; there is at most one in its life."""
    global _creation
    carried, _creation = _creation, None
    return carried


def patch(patches: Patches) -> bool:
    """Wrap both ends; False if this Ray has not both."""
    from ray._common import signature  # noqa: PLC0415  this module is imported only in Ray processes

    if not callable(getattr(signature, "flatten_args", None)):
        return False
    return patches.wrap(signature, "recover_args", _recover_args) and patches.wrap(
        signature, "flatten_args", _flatten_args
    )


def _flatten_args(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def flatten_args(signature_parameters: Any, args: Any, kwargs: Any) -> list[Any]:
        flat = original(signature_parameters, args, kwargs)
        carried = outgoing.carried
        if carried is not None:
            flat.append(carried)
        return flat

    return flatten_args


def _recover_args(original: Callable[..., Any]) -> Callable[..., Any]:
    def recover_args(flattened_args: list[Any]) -> Any:
        if not len(flattened_args) & 1:
            return original(flattened_args)
        global _creation  # noqa: PLW0603
        carried = flattened_args.pop()
        args, kwargs = original(flattened_args)
        if carried[0] & 1:
            # Not among the keyword arguments: Ray writes those of a creation into the actor's title.
            _creation = carried
        else:
            kwargs[KEY] = carried
        return args, kwargs

    return recover_args
