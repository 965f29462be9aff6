"""Submission of tasks: wraps ``RemoteFunction._remote`` (Ray 2.60 ``remote_function.py``), which ``f.remote()``,
``f.options(...).remote()`` and DAG nodes all end in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.arguments import arguments, outgoing
from ray_tracing_hooks._ray.errors import hide_frame
from ray_tracing_hooks._ray.tracing import PRODUCER, Called, Tracing


def patch(patches: Patches) -> bool:
    """Wrap the submission of tasks; False if this Ray has no such place."""
    from ray.remote_function import RemoteFunction  # noqa: PLC0415

    return patches.wrap(RemoteFunction, "_remote", _remote)


def _remote(original: Callable[..., Any]) -> Callable[..., Any]:
    def _remote(self: Any, args: Any = None, kwargs: Any = None, *rest: Any, **task_options: Any) -> Any:
        active = tracing.active
        call = active.submission(_describe, active, self, task_options) if active is not None else None
        before = outgoing.carried
        try:
            if call is None:
                return original(self, args, kwargs, *rest, **task_options)
            outgoing.carried = call.carried
            result = original(self, arguments(args, call.carried), kwargs, *rest, **task_options)
        except BaseException as error:
            hide_frame(error)
            if call is not None:
                call.refused(error)
            raise
        finally:
            outgoing.carried = before
        call.submitted(task_id_of(result))
        return result

    return _remote


def _describe(active: Tracing, task: Any, options: dict[str, Any]) -> Called | None:
    if task._is_cross_language:  # noqa: SLF001  as Ray's own tracing
        return None
    # What a decorator returns may be anything.
    inherits = options.get("num_returns") != 0 and getattr(task, "_decorator", "unknown") is None
    return Called(active.template(PRODUCER, "", task._function_name), inherits)  # noqa: SLF001


def task_id_of(result: Any) -> bytes:
    """The id of the task whose submission returned ``result``, or nothing if it returned nothing that tells it."""
    if isinstance(result, list):
        if not result:
            return b""
        result = result[0]
    ref = getattr(result, "_generator_ref", result)
    task_id = getattr(ref, "task_id", None)
    return bytes(task_id().binary()) if task_id is not None else b""
