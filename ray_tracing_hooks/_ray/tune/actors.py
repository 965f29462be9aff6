"""The creation of the actor of a trial is part of the trial: wraps ``AcquiredResources.annotate_remote_entities`` (Ray
2.60 ``air/execution/resources/request.py``), which Ray Tune calls for each actor before it creates it
(``RayActorManager``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.library_calls import within
from ray_tracing_hooks._ray.tune.trials import trial_of
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_TRIAL_INFO = "__trial_info__"
"""The key of a trial in the configuration of its actor (``tune/result.py``)."""


def patch(patches: Patches) -> bool:
    """Wrap the creation of actors; False if this Ray lacks the wrapped method."""
    from ray.air.execution.resources.request import AcquiredResources  # noqa: PLC0415  imported by now

    return patches.wrap(AcquiredResources, "annotate_remote_entities", _annotate)


class _Created:
    """A class of actors that is created in the context of the trial in its configuration."""

    def __init__(self, annotated: Any) -> None:
        self._annotated = annotated
        self.remote = within(_context_of, "tracing the actor of a trial")(annotated.remote)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._annotated, name)


def _context_of(*_args: Any, **kwargs: Any) -> Any:
    info = (kwargs.get("config") or {}).get(_TRIAL_INFO)
    trial = trial_of(info.trial_id) if info is not None else None
    return trial.context if trial is not None else None


def _annotate(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def annotate(resources: Any, entities: Any) -> Any:
        try:
            annotated = original(resources, entities)
        except BaseException as error:
            hide_frame(error)
            raise
        if tracing.active is None:
            return annotated
        try:
            return [_Created(each) for each in annotated]
        except Exception as error:  # noqa: BLE001  the actor must be created whatever fails here
            failed("tracing the actor of a trial", error)
            return annotated

    return annotate
