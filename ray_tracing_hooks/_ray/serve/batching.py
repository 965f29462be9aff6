"""Batches of requests (``@serve.batch``): wraps the method that adds requests to a batch and those that run one (Ray
2.60 ``serve/batching.py``, ``_BatchQueue.put``, ``_assign_func_results`` and ``_consume_func_generator``).

A batch works for many requests, each with its own trace. So a batch has its own trace too, and links in both directions
connect it with the requests. If all requests of a batch come from one span, the batch is a child of that.

Loading of models (``@serve.multiplexed``): wraps the loading function that is passed to ``_ModelMultiplexWrapper``
(Ray 2.60 ``serve/multiplex.py``), and ``unload_model_lru``, which makes room for a model first.

One of the requests that need the model loads it, while the others wait for the result.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import generators, library_spans, tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.library_spans import preceded_by
from ray_tracing_hooks._ray.propagation import reference, unrecorded_span
from ray_tracing_hooks._ray.serve.spans import Templates, of_this_replica, traced
from ray_tracing_hooks._ray.templates import INTERNAL
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.recorder import NEW_TRACE, SAMPLED
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame, hide_frame
from ray_tracing_hooks._safety.guard import guarded

_MOST_LINKS = 128
"""Most links of a batch, as in the SDK: of larger batches, the first requests are linked."""

_templates = Templates(INTERNAL, names.SERVE_BATCH)

_waiting: WeakKeyDictionary[Any, tuple[Context, int]] = WeakKeyDictionary()
"""The contexts of waiting requests, and since when they wait, by the future of the result."""


def _note_waiting(_queue: Any, request: Any) -> None:
    _waiting[request.future] = get_current(), now_ns()


def _running(trace_body: Callable[[Any, Context, RecordedSpan | None], Any]) -> Callable[..., Any]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, body: Any, futures: Iterable[Any], *rest: Any, **options: Any) -> Any:
            active = tracing.active
            begun = _begin(active, body, futures) if active is not None else None
            if begun is None:
                return original(self, body, futures, *rest, **options)
            running = original(self, trace_body(body, *begun), futures, *rest, **options)
            return running if begun[1] is None else _ending(running, begun[1])

        return run

    return wrap


async def _ending(running: Coroutine[Any, Any, None], span: RecordedSpan) -> None:
    """``running``, and the end of ``span`` with it: where a generator yields fewer or more results than there are
    requests, Serve leaves it open, and its error holds it until Python collects garbage.
    """
    try:
        with hidden_frame:
            await running
    finally:
        span.end()


@guarded("tracing a batch of requests")
def _begin(
    active: Tracing, body: Coroutine[Any, Any, Any] | AsyncGenerator[Any, Any], futures: Iterable[Any]
) -> tuple[Context, RecordedSpan | None] | None:
    waited = [_waiting.pop(future, None) for future in futures]
    requests = [each for each in waited if each is not None]
    if not requests:
        return None
    now, recorder = now_ns(), active.recorder
    parents = [recorder.parent(context) for context, _ in requests]
    first, parent = requests[0][0], parents[0]
    is_one = all(each == parent for each in parents)
    if is_one:
        trace_id, flags = recorder.decide(parent)
    else:
        # Sampled if one of the requests is.
        trace_id, parent = ids.new_trace_id(), None
        flags = NEW_TRACE | (SAMPLED if any(each and each.flags & SAMPLED for each in parents) else 0)
    recording = recorder.of(flags)
    deployment, application, replica_id = of_this_replica()
    template = _templates.of(active, deployment, application, getattr(body, "__name__", "batch"), replica_id)
    around = first if is_one else Context()
    if recording is None or template is None:
        known = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
        return Context({**around, SPAN_KEY: unrecorded_span(known)}), None
    longest = (now - min(since for _, since in requests)) / 1e9
    size = encode.attribute(names.RAY_SERVE_BATCH_SIZE, len(waited))
    more = encode.attribute(names.RAY_SERVE_BATCH_WAIT, longest) + reference(around, parent)
    span = recording.start(template, trace_id, flags, parent, size + more, now)
    if not is_one:
        _link(span, requests, len(waited), now)
    return Context({**around, SPAN_KEY: span}), span


def _link(span: RecordedSpan, requests: list[tuple[Context, int]], size: int, now: int) -> None:
    """Add links in both directions; those of requests have the wait until the batch began and the batch size."""
    batch = span.get_span_context()
    for context, since in requests[:_MOST_LINKS]:
        request = trace.get_current_span(context)
        attributes = {names.RAY_SERVE_BATCH_WAIT: (now - since) / 1e9}
        if request.get_span_context().is_valid:
            span.add_link(request.get_span_context(), attributes)
        request.add_link(batch, {**attributes, names.RAY_SERVE_BATCH_SIZE: size})


_SINCE = "_ray_tracing_hooks_since"
"""The attribute of Serve's wrapper with the time when it started to make room. It loads one model at a time."""

_load_templates = Templates(INTERNAL, names.SERVE_MULTIPLEXED)


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
        begun = _begin_load(active, models, load, args[-1]) if active is not None else None
        try:
            loading = load(*args)
        except BaseException as error:  # before it is a coroutine, such as for a parameter that Serve does not pass
            hide_frame(error)
            if begun is not None and begun[1] is not None:
                fail(begun[1], error)
            raise
        return loading if begun is None else traced(loading, *begun)

    return load_model


@guarded("tracing the loading of a model")
def _begin_load(
    active: Tracing, models: Any, load: Callable[..., Any], model_id: str
) -> tuple[Context, RecordedSpan | None] | None:
    since = vars(models).pop(_SINCE, None)
    deployment, application, replica_id = of_this_replica()
    function = getattr(load, "__name__", "load_model")
    template = _load_templates.of(active, deployment, application, function, replica_id)
    if template is None:
        return None
    attributes = {names.RAY_SERVE_MULTIPLEXED_MODEL_ID: model_id[: active.recorder.limits.value_length]}
    return library_spans.begin(active, template, get_current(), attributes, start_time=since)


WRAPPERS = {
    "_BatchQueue.put": preceded_by(_note_waiting, "recording a batched request"),
    "_BatchQueue._assign_func_results": _running(traced),
    "_BatchQueue._consume_func_generator": _running(generators.traced_async),
}

MULTIPLEXING = {"_ModelMultiplexWrapper.unload_model_lru?": _unload, "_ModelMultiplexWrapper.__init__": _init}
