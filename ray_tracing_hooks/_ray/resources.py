"""The resources that the current task of this worker holds: wraps ``set_visible_accelerator_ids`` (Ray 2.60
``_private/utils.py``), which the worker calls before each task (``_raylet.pyx``, ``execute_task``), but not before the
methods of actors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches


class HeldResources:
    """The resources of the current task: a worker runs one task at a time.

    Attributes:
        encoded: The encoded attributes. For actors they are part of the templates.
    """

    __slots__ = ("encoded",)

    def __init__(self) -> None:
        self.encoded = b""


def patch(patches: Patches, process: RayProcess, held: HeldResources) -> bool:
    """Record the resources of each task in ``held``; False if this Ray lacks the wrapped function."""
    from ray._private import utils  # noqa: PLC0415  the hook's module must be importable without Ray

    def wrap(original: Callable[[], Any]) -> Callable[[], Any]:
        before: Mapping[str, Any] | None = None

        def set_visible_accelerator_ids() -> Any:
            nonlocal before
            try:
                resources = process.worker.core_worker.resource_ids()
                if resources != before:
                    before, held.encoded = resources, b""
                    held.encoded = encode.attributes(process.of_task())
            except Exception as error:  # noqa: BLE001  the user's task must run whatever fails here
                failed("reading the resources of a task", error)
            try:
                return original()
            except BaseException as error:
                hide_frame(error)
                raise

        return set_visible_accelerator_ids

    return patches.wrap(utils, "set_visible_accelerator_ids", wrap)
