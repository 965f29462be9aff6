"""Loading of models (``@serve.multiplexed``): wraps the loading function that is passed to ``_ModelMultiplexWrapper``
(Ray 2.60 ``serve/multiplex.py``), and ``unload_model_lru``, which makes room for a model first.

One of the requests that need the model loads it, while the others wait for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.propagation import reference
from ray_tracing_hooks._ray.serve.spans import Templates, of_this_replica, traced
from ray_tracing_hooks._ray.templates import INTERNAL
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_SINCE = "_ray_tracing_hooks_since"
"""The attribute of Serve's wrapper with the time when it started to make room. It loads one model at a time."""

_templates = Templates(INTERNAL, names.SERVE_MULTIPLEXED)


def patch(patches: Patches) -> bool:
    """Wrap the loading of models; False if this Ray lacks the wrapped class."""
    from ray.serve.multiplex import _ModelMultiplexWrapper  # noqa: PLC0415

    patches.wrap(_ModelMultiplexWrapper, "unload_model_lru", _unload)
    return patches.wrap(_ModelMultiplexWrapper, "__init__", _init)


def _init(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, model_load_func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        original(self, _loading(self, model_load_func), *args, **kwargs)

    return init


def _unload(original: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    async def unload_model_lru(self: Any) -> None:
        if tracing.active is not None:
            vars(self)[_SINCE] = now_ns()
        try:
            await original(self)
        except BaseException as error:
            hide_frame(error)
            vars(self).pop(_SINCE, None)
            raise

    return unload_model_lru


def _loading(models: Any, load: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @wraps(load)
    def load_model(*args: Any) -> Coroutine[Any, Any, Any]:
        active = tracing.active
        begun = _begin(active, models, load, args[-1]) if active is not None else None
        try:
            loading = load(*args)
        except BaseException as error:  # before it is a coroutine, such as for a parameter that Serve does not pass
            hide_frame(error)
            if begun is not None:
                fail(begun[1], error)
            raise
        return loading if begun is None else traced(loading, *begun)

    return load_model


def _begin(
    active: Tracing, models: Any, load: Callable[..., Any], model_id: str
) -> tuple[Context, RecordedSpan] | None:
    try:
        since = vars(models).pop(_SINCE, None)
        context, recorder = get_current(), active.recorder
        parent = recorder.parent(context)
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        deployment, application, replica_id = of_this_replica()
        function = getattr(load, "__name__", "load_model")
        template = _templates.of(active, deployment, application, function, replica_id)
        if recording is None or template is None:
            return None
        limit = recorder.limits.value_length
        first = encode.attribute(names.RAY_SERVE_MULTIPLEXED_MODEL_ID, model_id[:limit]) + reference(context, parent)
        span = recording.start(template, trace_id, flags, parent, first, since)
        return Context({**context, SPAN_KEY: span}), span
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
        failed("tracing the loading of a model", error)
        return None
