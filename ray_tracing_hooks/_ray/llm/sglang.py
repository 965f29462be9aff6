"""Generations of SGLang: wraps ``Engine.async_generate`` and ``async_encode``, and uses only what is public of them:
their arguments, and ``meta_info`` of what they return (SGLang 0.5 ``srt/entrypoints/engine.py``).

A stream passes a generator, which keeps the last part of each completion.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from opentelemetry import propagate

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.generators import watched
from ray_tracing_hooks._ray.library_spans import begun, end_call
from ray_tracing_hooks._ray.llm import totals
from ray_tracing_hooks._ray.llm.engine import ABORTED, of_deployment, operation, usage_of
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame, is_a
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import Patches

_PROVIDER = "sglang"

_HEADERS = "external_trace_header"
"""The argument with the context, which SGLang uses if its own tracing is on."""

_PARAMETERS = {
    "temperature": names.GEN_AI_TEMPERATURE,
    "top_p": names.GEN_AI_TOP_P,
    "max_new_tokens": names.GEN_AI_MAX_TOKENS,
    "n": names.GEN_AI_CHOICES,
}


def patch(patches: Patches) -> bool:
    """Wrap the engine; False if this SGLang lacks one of the methods."""
    engine = sys.modules["sglang.srt.entrypoints.engine"].Engine
    generates = patches.wrap(engine, "async_generate", _traced("text_completion"))
    return patches.wrap(engine, "async_encode", _traced("embeddings")) and generates


def _traced(usual: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(original)

        @functools.wraps(original)
        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            active = tracing.active
            try:
                arguments = {**parameters.bind_partial(self, *args, **kwargs).arguments, **kwargs}
            except TypeError:  # which the call raises
                arguments = kwargs
            context, span = begun(_begin, active, self, usual, arguments, kwargs) or (None, None)
            asked = arguments.get("sampling_params")
            generation = _Generation(active, span, asked) if active is not None and span is not None else None
            token = attach(context) if context is not None else None
            try:
                result = await original(self, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                if generation is not None:
                    generation.end(error)
                raise
            finally:
                if token is not None:
                    detach(token)
            return result if generation is None else generation.of(result)

        return call

    return wrap


def _begin(active: Tracing, engine: Any, usual: str, arguments: dict[str, Any], kwargs: dict[str, Any]) -> Begun:
    settings = getattr(engine, "server_args", None)
    model = str(getattr(settings, "served_model_name", None) or getattr(settings, "model_path", ""))
    doing = operation.get() or usual
    attributes: dict[str, Any] = {names.GEN_AI_OPERATION: doing, names.GEN_AI_PROVIDER: _PROVIDER, **of_deployment()}
    if model:
        attributes[names.GEN_AI_REQUEST_MODEL] = model
    if usual != "embeddings":
        attributes[names.GEN_AI_STREAM] = bool(arguments.get("stream"))
    asked = arguments.get("sampling_params")
    if isinstance(asked, dict):
        attributes |= {key: asked[name] for name, key in _PARAMETERS.items() if asked.get(name) is not None}
    found = totals.begin(active, f"{doing} {model}".rstrip(), attributes)
    if getattr(settings, "enable_trace", False) and arguments.get(_HEADERS) is None:
        kwargs[_HEADERS] = {}
        propagate.inject(kwargs[_HEADERS], found[0])
    return found


class _Generation:
    def __init__(self, active: Tracing, span: RecordedSpan, asked: Any) -> None:
        self._active, self._span, self._asked = active, span, asked
        self.parts: dict[int, Any] = {}
        """The last part of each completion."""
        self._first = 0
        self._has_ended = False

    def of(self, result: Any) -> Any:
        """What the call has returned; if that is a stream, one that ends the span with it."""
        if hasattr(result, "aclose"):
            return watched(result, self._note, self.end)
        self.parts = dict(enumerate(result if isinstance(result, list) else [result]))
        self.end()
        return result

    def _note(self, part: Any) -> None:
        try:
            self._first = self._first or now_ns()
            self.parts[part.get("index", 0)] = part
        except Exception as fault:  # noqa: BLE001  SGLang may have changed, and the stream has to go on
            failed("reading a part of a generation", fault)

    def __del__(self) -> None:
        # Of a stream that nobody has read.
        self.end(GeneratorExit())

    def end(self, error: BaseException | None = None) -> None:
        """End the span, if it has not ended. Whoever stops early makes no error."""
        if self._has_ended:
            return
        self._has_ended = True
        is_aborted = is_a(error, GeneratorExit, asyncio.CancelledError)
        with guarded("describing a generation"):
            self._span.add_encoded(encode.attributes(self._described(is_aborted=is_aborted)))
        end_call(self._span, None if is_aborted else error)

    def _described(self, *, is_aborted: bool) -> dict[str, Any]:
        metas = [part.get("meta_info") or {} for part in self.parts.values()]
        usage = usage_of(self._active)
        # Several completions of one prompt each count it.
        count = (self._asked.get("n") if isinstance(self._asked, dict) else None) or 1
        found: dict[str, Any] = {}
        reasons = [each["finish_reason"]["type"] for each in metas if each.get("finish_reason")]
        if reasons or is_aborted:
            found[names.GEN_AI_FINISH_REASONS] = reasons or [ABORTED]
        if metas:
            found[names.GEN_AI_RESPONSE_ID] = metas[0].get("id")
            found[usage.input] = sum(each.get("prompt_tokens", 0) for each in metas) // count
            found[usage.output] = sum(each.get("completion_tokens", 0) for each in metas)
            found[usage.cached] = sum(each.get("cached_tokens", 0) for each in metas) // count or None
            found[names.RAY_LLM_PREEMPTIONS] = sum(each.get("num_retractions", 0) for each in metas) or None
            found[names.GEN_AI_QUEUE_TIME] = metas[0].get("queue_time")
        if self._first:
            found[names.GEN_AI_FIRST_CHUNK] = (self._first - self._span.start_time) / 1e9
        return {key: value for key, value in found.items() if value is not None}
