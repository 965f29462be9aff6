"""Savings in Ray's own code, which are no part of tracing; ``RAY_TRACING_SHORTCUTS=0`` switches them off.

There is one. Before each task, Ray examines the resources of its worker for every kind of accelerator, at 60 to 100 us
(Ray 2.60 ``_private/utils.py``, ``set_visible_accelerator_ids``). Without accelerators that has no effect unless a
variable asks for it, and :mod:`ray_tracing_hooks._ray.resources` already knows what the task holds.

Others were measured and left out, since they gave less than 2 % of a call: see ``docs/ray-proposals.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_KNOWN = ("2.58.", "2.59.", "2.60.")
"""The versions of Ray whose function was read. Before them, tasks without accelerators had theirs hidden."""


def without_effect(ray_version: str) -> Callable[[Mapping[str, Any]], Callable[[], bool]]:
    """Tells for which tasks Ray's ``set_visible_accelerator_ids`` has no effect.

    The result takes the resources that a worker holds, and returns a function to be called before each task that holds
    them. In an unknown version of Ray this always returns False.
    """
    if not ray_version.startswith(_KNOWN):
        return nothing_is
    from ray._private import accelerators  # noqa: PLC0415  the hook's module must be importable without Ray
    from ray._private.ray_constants import env_bool  # noqa: PLC0415

    kinds = accelerators.get_all_accelerator_resource_names()
    groups = tuple(f"{kind}_group_" for kind in kinds)
    variable = accelerators.RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR

    def of(resources: Mapping[str, Any]) -> Callable[[], bool]:
        if any(name in kinds or name.startswith(groups) for name in resources):
            return _never
        return lambda: not env_bool(variable, False)

    return of


def nothing_is(_resources: Mapping[str, Any]) -> Callable[[], bool]:
    """The same where Ray's function is always called."""
    return _never


def _never() -> bool:
    return False
