"""The attributes that the spans of a run share."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks import names


def of_run(run: Any) -> dict[str, Any]:
    """The attributes of a run, from Ray's ``TrainRunContext``."""
    attributes = {names.RAY_TRAIN_RUN_NAME: run.run_config.name, names.RAY_TRAIN_RUN_ID: getattr(run, "run_id", None)}
    return {key: value for key, value in attributes.items() if isinstance(value, str)}
