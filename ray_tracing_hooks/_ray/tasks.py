"""Submission of tasks: wraps ``RemoteFunction._remote`` (Ray 2.60 ``remote_function.py``), which ``f.remote()``,
``f.options(...).remote()`` and DAG nodes all end in.
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.submission import Called, traced
from ray_tracing_hooks._ray.tracing import PRODUCER, Tracing


def patch(patches: Patches) -> bool:
    """Wrap the submission of tasks; False if this Ray has no such place."""
    from ray.remote_function import RemoteFunction  # noqa: PLC0415

    return patches.wrap(RemoteFunction, "_remote", traced(_describe))


def _describe(active: Tracing, task: Any, _rest: Any, options: dict[str, Any]) -> Called | None:
    if task._is_cross_language:  # noqa: SLF001  as Ray's own tracing
        return None
    # What a decorator returns may be anything.
    inherits = options.get("num_returns") != 0 and getattr(task, "_decorator", "unknown") is None
    key = task._function_name, inherits  # noqa: SLF001  as above
    try:
        return active.called[key]
    except KeyError:
        template = active.template(PRODUCER, "", key[0])
        limit = active.limit(template)
        called = active.called[key] = Called(template, inherits and limit is None, limit=limit)
        return called
