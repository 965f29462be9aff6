"""Detects that this process connects to a cluster where Ray calls no hook.

For hooks that a program calls itself. Imports neither Ray nor OpenTelemetry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.patching import Patches


def connected_worker() -> Any:
    """The connection of this thread's client, or None."""
    client = sys.modules.get("ray.util.client")
    return client.ray.get_context().client_worker if client is not None and client.ray.is_connected() else None


def patch(patches: Patches, on_connected: Callable[[], None]) -> bool:
    """Call ``on_connected`` when this process has connected as a client."""
    from ray.util.client import _ClientContext  # noqa: PLC0415  the hook's module must be importable without Ray

    return patches.wrap(_ClientContext, "connect", _notifying(on_connected))


def patch_local(patches: Patches, on_connected: Callable[[], None]) -> bool:
    """Call ``on_connected`` when this process has connected as a driver."""
    from ray._private import worker  # noqa: PLC0415  as above

    return patches.wrap(worker, "connect", _notifying(on_connected))


def _notifying(on_connected: Callable[[], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            on_connected()
            return result

        return connect

    return wrap
