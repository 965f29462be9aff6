"""Loading of models (``@serve.multiplexed``): wraps ``_ModelMultiplexWrapper.load_model`` (Ray 2.60
``serve/multiplex.py``), for a request whose model the replica has not loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.serve.spans import Templates, of_this_replica, traced
from ray_tracing_hooks._ray.tracing import INTERNAL, Tracing
from ray_tracing_hooks._record import wire
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.span import RecordedSpan

MODULE = "ray.serve.multiplex"

_templates = Templates(INTERNAL, names.SERVE_MULTIPLEXED)


def patch(patches: Patches) -> bool:
    """Wrap the loading of models; False if this Ray has no such place."""
    from ray.serve.multiplex import _ModelMultiplexWrapper  # noqa: PLC0415

    return patches.wrap(_ModelMultiplexWrapper, "load_model", _load_model)


def _load_model(original: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    def load(self: Any, model_id: Any) -> Coroutine[Any, Any, Any]:
        active = tracing.active
        begun = _begin(active, self, model_id) if active is not None else None
        return original(self, model_id) if begun is None else traced(original(self, model_id), *begun)

    return load


def _begin(active: Tracing, models: Any, model_id: Any) -> tuple[Context, RecordedSpan] | None:
    try:
        if not isinstance(model_id, str) or model_id in models.models:
            return None
        context, recorder = get_current(), active.recorder
        parent = recorder.parent(context)
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        deployment, application, replica_id = of_this_replica()
        function = getattr(models._func, "__name__", "load_model")  # noqa: SLF001  as its own messages
        template = _templates.of(active, deployment, application, function, replica_id)
        if recording is None or template is None:
            return None
        limit = recorder.limits.value_length
        first = wire.attribute(names.RAY_SERVE_MULTIPLEXED_MODEL_ID, model_id[:limit])
        span = recording.start(template, trace_id, flags, parent, first)
        return Context({**context, SPAN_KEY: span}), span
    except Exception as error:  # noqa: BLE001  the request is the user's, the fault would be ours
        failed("tracing the loading of a model", error)
        return None
