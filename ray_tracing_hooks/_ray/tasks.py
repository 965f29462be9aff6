"""Submission of tasks: wraps ``RemoteFunction._remote`` (Ray 2.60 ``remote_function.py``), which ``f.remote()``,
``f.options(...).remote()`` and DAG nodes all call.
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.arguments import place_in
from ray_tracing_hooks._ray.calls import Called, Calls
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.submission import traced
from ray_tracing_hooks._ray.templates import PRODUCER


def patch(patches: Patches, cluster: Cluster) -> bool:
    """Wrap the submission of tasks to ``cluster``; False if this Ray lacks the wrapped method."""
    from ray.remote_function import RemoteFunction  # noqa: PLC0415

    return patches.wrap_within(RemoteFunction, "_remote", traced(_describe, with_place=place_in(cluster)))


def _describe(calls: Calls, task: Any, _rest: Any, options: dict[str, Any]) -> Called | None:
    if task._is_cross_language:  # noqa: SLF001  as Ray's own tracing
        return None
    # A decorator may return anything.
    inherits = options.get("num_returns") != 0 and getattr(task, "_decorator", "unknown") is None
    key = task._function_name, inherits  # noqa: SLF001  as above
    try:
        called = calls.called[key]
    except KeyError:
        template = calls.templates.of(PRODUCER, "", key[0])
        limit = calls.limit(template)
        called = calls.called[key] = Called(template, inherits and limit is None, limit=limit)
    return called.named(options["name"]) if "name" in options and called is not None else called
