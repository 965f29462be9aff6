"""The resources that the current task of this worker holds: wraps ``set_visible_accelerator_ids`` (Ray 2.60
``_private/utils.py``), which the worker calls before each task (``_raylet.pyx``, ``execute_task``), but not before the
methods of actors.

Ray's function examines all resources again for every kind of accelerator, at 60 to 100 us per task. That has no effect
if the task holds no accelerators, so it is skipped then, which compensates for some of the cost of tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.process import RayProcess

_NAMES = (
    "ray._private.ray_constants",
    "env_bool",
    "ray",
    "_private",
    "accelerators",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR",
    "get_runtime_context",
    "get_accelerator_ids",
    "items",
    "len",
    "get_accelerator_manager_for_resource",
    "get_visible_accelerator_ids_env_var",
    "os",
    "environ",
    "get",
    "set_current_process_visible_accelerator_ids",
)
"""The names in the code of that function, by which a known version is recognized."""


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

    return patches.wrap(utils, "set_visible_accelerator_ids", partial(_set_visible_accelerator_ids, process, held))


def _set_visible_accelerator_ids(
    process: RayProcess, held: HeldResources, original: Callable[[], Any]
) -> Callable[[], Any]:
    from ray._private import accelerators  # noqa: PLC0415
    from ray._private.ray_constants import env_bool  # noqa: PLC0415

    kinds = accelerators.get_all_accelerator_resource_names()
    groups = tuple(f"{kind}_group_" for kind in kinds)
    variable = getattr(accelerators, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR", None)
    can_skip = variable is not None and _is_known(original)
    before: Mapping[str, Any] | None = None
    none_held = False

    def look() -> None:
        nonlocal before, none_held
        resources = process.worker.core_worker.resource_ids()
        if resources != before:
            none_held = not any(name in kinds or name.startswith(groups) for name in resources)
            before, held.encoded = resources, b""
            held.encoded = encode.attributes(process.of_task())

    def set_visible_accelerator_ids() -> Any:
        try:
            look()
            if none_held and can_skip and not env_bool(variable, False):
                return {}
        except Exception as error:  # noqa: BLE001  the user's task must run whatever fails here
            failed("reading the resources of a task", error)
        try:
            return original()
        except BaseException as error:
            hide_frame(error)
            raise

    return set_visible_accelerator_ids


def _is_known(function: Callable[[], Any]) -> bool:
    """Whether it has no effect without accelerators unless a variable is set, as in Ray 2.58 and later."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_names == _NAMES and any(constant is False for constant in code.co_consts)
