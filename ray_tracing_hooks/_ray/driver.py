"""The end of a connection: wraps ``Worker.set_mode`` (Ray 2.60 ``_private/worker.py``), which ``ray.shutdown()`` calls
with None as its last step, also when the interpreter exits, after Ray's processes have been ended.
"""

from __future__ import annotations

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
