"""Runs the hook in actors that have started without it, where Ray lets one: in those with a name, such as Serve's.

Every actor has a method ``__ray_call__`` that runs a function (Ray 2.60 ``actor.py``, ``_modify_class``). It waits for
its turn like any other call, so an actor that is busy may not run it in time: it is cancelled then, unless it has
begun.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ray_tracing_hooks._guard import describe

_OWN = "_ray_internal_"
"""How the namespaces of Ray's own actors begin."""


def run_hook(hook: str, timeout: float) -> dict[str, str]:
    """Run the hook in each named actor within ``timeout`` seconds; returns what failed in each, or an empty text."""
    import ray  # noqa: PLC0415  only where a cluster is asked

    found: dict[str, str] = {}
    asked: dict[Any, str] = {}
    for each in ray.util.list_named_actors(all_namespaces=True):
        namespace, name = each["namespace"], each["name"]
        if namespace.startswith(_OWN):
            continue
        try:
            actor: Any = ray.get_actor(name, namespace=namespace)
            asked[actor.__ray_call__.remote(_run, hook)] = f"{namespace}:{name}"
        except Exception as error:  # noqa: BLE001  it has just ended, or takes no more calls
            found[f"{namespace}:{name}"] = describe(error)
    done, left = ray.wait(list(asked), num_returns=len(asked), timeout=timeout) if asked else ([], [])
    for reference in done:
        try:
            ray.get(reference)
            found[asked[reference]] = ""
        except Exception as error:  # noqa: BLE001  whatever Ray raises; or the hook cannot be imported there
            found[asked[reference]] = describe(getattr(error, "cause", None) or error)
    for reference in left:
        ray.cancel(reference, recursive=False)
        found[asked[reference]] = f"it was busy for {timeout:g} s"
    return found


def _run(_actor: Any, hook: str) -> None:
    """Runs in the actor."""
    startup = sys.modules.get("ray_tracing_hooks._startup")
    if startup is None or not startup.is_called():
        module, _, name = hook.partition(":")
        getattr(importlib.import_module(module), name)()
