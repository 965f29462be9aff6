"""What env runners and learners of RLlib run: their calls go through ``apply``, with a function (Ray 2.60
``rllib/utils/actor_manager.py``). A learner has a class that Ray makes (``train/_internal/worker_group.py``).
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._ray.dispatch import Naming, Shown
from ray_tracing_hooks._ray.function_names import name_of

PART = "rllib"

_OF_LEARNERS = {"_WrappedExecutable": "Learner"}


def of(_module: str, class_name: str, function: str) -> Naming | None:
    """The naming of a method of one of these actors."""
    if function != "apply" or not class_name:
        return None
    short = class_name.rpartition(".")[2]
    shown = _OF_LEARNERS.get(short, short)

    def by(args: Any, kwargs: Any) -> Shown | None:
        name = name_of(args[0] if args else kwargs.get("func"))
        return Shown(f"{shown}.{name}") if name else None

    return Naming(PART, by)
