"""What generic calls of Ray Train run: a function on a worker (``RayTrainWorker.execute``), or the validation of a
checkpoint (Ray 2.60 ``train/v2/_internal/execution/worker_group/worker.py`` and ``checkpoint/validation_manager.py``;
those of Train's first version are in ``train/_internal/worker_group.py``).
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._ray.labels import CallLabel, CallLabeler, name_of

_OWN = ("ray.train._internal.", "ray.train.v2._internal.")

_EXECUTE = {"execute", "_RayTrainWorker__execute"}


def labeler_for(_module: str, class_name: str, function: str) -> CallLabeler | None:
    """The naming of a function or method of ``ray.train``."""
    if class_name == "RayTrainWorker" and function in _EXECUTE:
        return _OF_WORKER
    return _OF_VALIDATION if function == "run_validation_fn" and not class_name else None


def _executed(args: Any, kwargs: Any) -> CallLabel | None:
    function = args[0] if args else kwargs.get("fn") or kwargs.get("func")
    name = name_of(function)
    # What Ray Train itself runs to manage its workers makes no spans, as the rest of its calls.
    if not name or str(getattr(function, "__module__", "")).startswith(_OWN):
        return None
    return CallLabel(f"RayTrainWorker.{name}")


def _validated(args: Any, kwargs: Any) -> CallLabel | None:
    config = args[0] if args else kwargs["validation_config"]
    function = name_of(config.fn)
    return CallLabel(f"{config.fn.__module__}.{function}") if function else None


_OF_WORKER, _OF_VALIDATION = CallLabeler(_executed), CallLabeler(_validated)
