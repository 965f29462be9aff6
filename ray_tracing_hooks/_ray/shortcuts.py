"""Faster versions of work that Ray does at every call, which compensate for some of the cost of tracing.

Each one is skipped if this Ray does not have the code, or has another version of it
(:mod:`ray_tracing_hooks._ray.signatures` is of the same kind):

- A submission pickles the list of the exceptions to retry, which is nearly always None (Ray 2.60 ``_raylet.pyx``,
  ``serialize_retry_exception_allowlist``).
- An execution enters two context managers that are generators (``_private/client_mode_hook.py``,
  ``disable_client_hook``; ``_private/worker.py``, ``_changeproctitle``).
- While deserializing arguments, it sets the SIGINT handler and restores it (``_private/utils.py``, ``DeferSigint``)
  through the ``signal`` module, which each time raises and catches an exception to convert a handler to a constant.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what the signal module is made of
import signal
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._patching import Patches

_set_handler = signal.signal
"""The function of the standard library, which Ray replaces while it defers SIGINT."""

_ENTERS = (
    "signal",
    "getsignal",
    "SIGINT",
    "overridden_sigint_handler",
    "_set_signal_received",
    "orig_signal",
    "_signal_monkey_patch",
)
_LEAVES = ("overridden_sigint_handler", "orig_signal", "signal", "SIGINT", "signal_received")
"""The names in the code of ``DeferSigint.__enter__`` and ``__exit__``, by which a known version is recognized."""


def patch(patches: Patches) -> bool:
    """Apply every shortcut that fits this Ray; returns whether there is any."""
    import ray.cloudpickle  # noqa: PLC0415  the hook's module must be importable without Ray
    from ray import _raylet  # noqa: PLC0415
    from ray._private import client_mode_hook, utils, worker  # noqa: PLC0415

    made = []
    if vars(_raylet).get("ray_pickle") is ray.cloudpickle:
        made.append(patches.wrap(_raylet, "ray_pickle", Pickle))
    if vars(_raylet).get("disable_client_hook") is client_mode_hook.disable_client_hook and hasattr(
        client_mode_hook, "_client_hook_status_on_thread"
    ):
        made.append(patches.wrap(_raylet, "disable_client_hook", _disable_client_hook))
    if vars(worker).get("_changeproctitle") is not None and callable(getattr(_raylet, "setproctitle", None)):
        made.append(patches.wrap(worker, "_changeproctitle", _changeproctitle))
    defer = getattr(utils, "DeferSigint", None)
    if defer is not None and (names_in(defer, "__enter__"), names_in(defer, "__exit__")) == (_ENTERS, _LEAVES):
        made += [patches.wrap(defer, "__enter__", _enter), patches.wrap(defer, "__exit__", _exit)]
    return any(made)


def names_in(owner: Any, method: str) -> tuple[str, ...]:
    """The names in the code of a function, by which a known version is recognized; empty if there is none."""
    code = getattr(getattr(owner, method, None), "__code__", None)
    return code.co_names if code is not None else ()


class Pickle:
    """Stands in for the module ``ray.cloudpickle``, with the pickle of None cached."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._none = module.dumps(None)

    def dumps(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if value is None and not args and not kwargs:
            return self._none
        try:
            return self._module.dumps(value, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _disable_client_hook(_original: Callable[[], Any]) -> type:
    from ray._private import client_mode_hook  # noqa: PLC0415

    class DisabledClientHook:
        """In this thread, ``ray.*`` functions are those of this process, not those of a Ray Client."""

        __slots__ = ("_before",)

        def __enter__(self) -> None:
            status = client_mode_hook._client_hook_status_on_thread  # noqa: SLF001
            self._before = getattr(status, "status", True)
            status.status = False

        def __exit__(self, *_error: object) -> None:
            client_mode_hook._client_hook_status_on_thread.status = self._before  # noqa: SLF001

    return DisabledClientHook


def _changeproctitle(_original: Callable[..., Any]) -> type:
    from ray import _raylet  # noqa: PLC0415

    class ChangedTitle:
        """Sets the title of this process to ``title``, and then to ``next_title``."""

        __slots__ = ("_next_title", "_title")

        def __init__(self, title: str, next_title: str) -> None:
            self._title, self._next_title = title, next_title

        def __enter__(self) -> None:
            _raylet.setproctitle(self._title)  # type: ignore[attr-defined]  # not in its stub

        def __exit__(self, *_error: object) -> None:
            _raylet.setproctitle(self._next_title)  # type: ignore[attr-defined]  # not in its stub

    return ChangedTitle


def _enter(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def enter(self: Any) -> Any:
        handler = _signal.getsignal(signal.SIGINT)
        if signal.signal is not _set_handler or not callable(handler):
            return original(self)
        self.overridden_sigint_handler = handler
        _signal.signal(signal.SIGINT, self._set_signal_received)
        self.orig_signal = _set_handler
        signal.signal = self._signal_monkey_patch
        return self

    return enter


def _exit(original: Callable[..., Any]) -> Callable[..., Any]:
    def leave(self: Any, exc_type: Any, exc: Any, exc_tb: Any) -> Any:
        handler = self.overridden_sigint_handler
        if self.orig_signal is not _set_handler or not callable(handler):
            return original(self, exc_type, exc, exc_tb)
        signal.signal = _set_handler
        _signal.signal(signal.SIGINT, handler)
        if exc_type is None and self.signal_received:
            handler(signal.SIGINT, None)
            return None
        return False

    return leave
