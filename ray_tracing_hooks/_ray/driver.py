"""The end of a connection: wraps ``Worker.set_mode`` (Ray 2.60 ``_private/worker.py``), which ``ray.shutdown()`` calls
with None as its last step, also when the interpreter exits, after Ray's processes have been ended.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._patching import Patches


def patch(patches: Patches, on_begin: Callable[[], None], on_end: Callable[[], None]) -> bool:
    """Call ``on_begin`` when this process begins to disconnect, ``on_end`` when Ray has shut down."""
    from ray._private import worker  # noqa: PLC0415

    def set_mode(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_mode(self: Any, mode: Any) -> Any:
            result = original(self, mode)
            if mode is None:
                on_end()
            return result

        return set_mode

    def disconnect(original: Callable[..., Any]) -> Callable[..., Any]:
        def disconnect(*args: Any, **kwargs: Any) -> Any:
            on_begin()
            return original(*args, **kwargs)

        return disconnect

    return patches.wrap(worker.Worker, "set_mode", set_mode) and patches.wrap(worker, "disconnect", disconnect)


def exit_code(error: BaseException) -> int | None:
    """What the interpreter exits with because of ``error``, the last one that nothing caught; None if that is not sure.

    Python tells nobody what ``sys.exit()`` was given. Notebooks and test runners note errors too, and go on; what has
    come out of the program itself has a traceback that begins there.
    """
    if sys.flags.interactive or hasattr(sys, "ps1"):
        return None  # a session goes on after an error
    traceback = error.__traceback__
    if threading.main_thread().is_alive() or not isinstance(error, Exception) or traceback is None:
        return None
    begun = traceback.tb_frame
    if begun.f_code.co_name == "_run_module_as_main" and begun.f_globals.get("__name__") == "runpy":
        return 1
    return 1 if begun.f_code.co_name == "<module>" and begun.f_globals.get("__name__") == "__main__" else None


def notice_sigterm(on_sigterm: Callable[[], None]) -> Callable[[], None]:
    """Call ``on_sigterm`` before Ray's own handler of SIGTERM ends this driver; returns what puts that handler back.

    The handler raises SystemExit, of which nothing can be seen once the interpreter exits. ``ray.init`` sets it (Ray
    2.60 ``_private/worker.py``) before it calls the hook. A handler of the user's own is left alone.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or getattr(handler, "__module__", None) != "ray._private.worker":
        return lambda: None

    @functools.wraps(handler)
    def sigterm_handler(*args: Any) -> Any:
        on_sigterm()
        return handler(*args)

    def put_back() -> None:
        if signal.getsignal(signal.SIGTERM) is sigterm_handler:
            _set_handler(handler)

    return put_back if _set_handler(sigterm_handler) else lambda: None


def _set_handler(handler: Callable[..., Any]) -> bool:
    try:
        signal.signal(signal.SIGTERM, handler)
    except ValueError:  # only the main thread may
        return False
    return True
