"""Generations of vLLM: wraps the methods of its ``OutputProcessor`` with which the front end begins and ends one (vLLM
0.29 ``v1/engine/output_processor.py``), and the constructors of its engines, which know the model.

``add_request`` runs in the task or thread of the caller, so the current span is the parent. What ends a generation runs
in a task of the engine that has the context of its first request, so nothing there asks for the current span.

The engine core has times of its own, by the monotonic clock of its machine. Their differences hold on any machine.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.library_spans import followed_by, preceded_by
from ray_tracing_hooks._ray.llm import content, totals
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import guarded
from ray_tracing_hooks._safety.patching import Patches

_PROCESSOR = "vllm.v1.engine.output_processor"

_PROVIDER = "vllm"

_OPERATIONS = {
    "chatcmpl": "chat",
    "cmpl": "text_completion",
    "embd": "embeddings",
    "score": "score",
    "pool": "pooling",
    "classify": "classify",
}
"""By how vLLM's servers begin the ids of their requests."""

_CUMULATIVE, _DELTA = 0, 1
"""Kinds of output: with the first one, only the caller knows whether it streams."""

ABORTED = "abort"

_HEADERS = "traceparent", "tracestate"
"""What vLLM's own tracing reads."""

operation: ContextVar[str] = ContextVar("ray_tracing_hooks_llm_operation", default="")
"""The operation of the request that this code serves, where a server knows it."""

_models: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The names of models, by the output processors of their engines."""

_open: WeakKeyDictionary[Any, dict[str, Generation]] = WeakKeyDictionary()
"""The generations of an output processor that have not ended, by the ids of their requests to the engine."""


def patch(patches: Patches) -> bool:
    """Wrap the output processor; False if this vLLM lacks one of the methods. No generation begins then."""
    processor = sys.modules[_PROCESSOR].OutputProcessor
    patches.on_undo(_open.clear)
    ends = [
        patches.wrap(processor, "_update_stats_from_finished", preceded_by(_finished, "ending a generation")),
        patches.wrap(processor, "abort_requests", followed_by(_aborted, "ending an aborted generation")),
        patches.wrap(processor, "propagate_error", preceded_by(_died, "ending the generations of a dead engine")),
    ]
    return all(ends) and patches.wrap(processor, "add_request", _add_request)


def _made(_: None, engine: Any, *_args: Any, **_kwargs: Any) -> None:
    named = engine.vllm_config.model_config.served_model_name
    note_model(engine, named if isinstance(named, str) else named[0])


_noting_model = followed_by(_made, "reading the model of an engine")
ASYNC_ENGINE, SYNC_ENGINE = {"AsyncLLM.__init__": _noting_model}, {"LLMEngine.__init__": _noting_model}


def note_model(engine: Any, name: str) -> None:
    _models[engine.output_processor] = name


class Times(NamedTuple):
    """The times of a generation by the clock of the engine core, in seconds; 0 if it did not come to that."""

    queued: float
    scheduled: float
    first: float
    last: float

    @classmethod
    def of(cls, every: list[Any]) -> Times:
        """Those of one generation with these ``stats``: several requests to the engine run at the same time."""
        queued, scheduled, first = (
            min(filter(None, (getattr(each, name) for each in every)), default=0.0)
            for name in ("queued_ts", "scheduled_ts", "first_token_ts")
        )
        # What has generated no tokens, such as embeddings, has only been prefilled.
        last = max(each.last_token_ts if each.num_generation_tokens else 0.0 for each in every)
        return cls(queued, scheduled, first, last)

    def phases(self) -> list[tuple[str, str, float, float]]:
        """The phases that are over: the name and the attribute of each, and when it began and ended."""
        moments = [
            ("queue", names.GEN_AI_QUEUE_TIME, self.queued, self.scheduled),
            ("prefill", names.GEN_AI_PREFILL_TIME, self.scheduled, self.first),
            ("decode", names.GEN_AI_DECODE_TIME, self.first, self.last),
        ]
        return [each for each in moments if each[2] and each[3]]


class Generation:
    """One request of a client, as one or more requests to the engine, and its span."""

    def __init__(
        self, active: Tracing, context: Context, span: RecordedSpan, usage: Usage, count: int, arrival: float
    ) -> None:
        self._active, self._span, self._usage, self._arrival = active, span, usage, arrival
        self.context = context
        """That inside of its span."""
        self._missing = count
        """Requests to the engine that have not been made."""
        self.parent_id = ""
        """The id of what several requests to the engine are for, if there are several."""
        self.totals: totals.Totals | None = None
        """Those of the call that it is in, if any."""
        self._has_ended = False
        self._running: set[str] = set()
        self._states: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}
        self.has_content = False
        """Whether the span has what was asked and answered."""

    def add(self, request_id: str, state: Any) -> None:
        """Note a request to the engine, with vLLM's state of it."""
        self._missing -= 1
        self._running.add(request_id)
        self._states[request_id] = state

    @property
    def is_running(self) -> bool:
        """Whether the engine has a request of it that has not ended."""
        return bool(self._running)

    def finished(self, request_id: str, reason: str | None) -> bool:
        """Note the end of a request to the engine; returns whether that is the end of all."""
        self._running.discard(request_id)
        if reason is not None:
            self._reasons[request_id] = reason
        is_last = not self._running and (self._missing <= 0 or reason == ABORTED)
        if is_last:
            self.end()
        return is_last

    def end(self, error: BaseException | None = None) -> None:
        """End the span, if it has not ended."""
        if self._has_ended:
            return
        self._has_ended = True
        span, end_time = self._span, now_ns()
        with guarded("describing a generation"):
            self._describe()
            if "error" in self._reasons.values():
                span.set_status(trace.StatusCode.ERROR)
                span.set_attribute(names.ERROR_TYPE, "error")
        if error is not None:
            fail(span, error)
        else:
            span.end(end_time)

    def _describe(self) -> None:
        found: dict[str, Any] = {}
        states = list(self._states.values())
        if self._reasons:
            found[names.GEN_AI_FINISH_REASONS] = list(self._reasons.values())
        if not states:
            self._span.add_encoded(encode.attributes(found))
            return
        first = states[0]
        if first.lora_name:
            found[names.GEN_AI_RESPONSE_MODEL] = first.lora_name
        stats = [each.stats for each in states if each.stats is not None]
        found[self._usage.input] = first.prompt_len
        if first.num_cached_tokens:
            found[self._usage.cached] = first.num_cached_tokens
        writers = [each.detokenizer for each in states if getattr(each, "detokenizer", None) is not None]
        if self.has_content and writers:
            reasons = (self._reasons.get(each, "error") for each in self._states)
            texts = (getattr(each, "output_text", "") for each in writers)
            completions = zip(texts, reasons, strict=False)
            content.note(self._span, self._active, names.GEN_AI_OUTPUT_MESSAGES, lambda: content.answered(completions))
        if not stats and writers:
            found[self._usage.output] = sum(each.num_output_tokens() for each in writers)
        if stats:
            found[self._usage.output] = sum(each.num_generation_tokens for each in stats)
            latencies = [each.first_token_latency for each in stats if each.num_generation_tokens]
            if latencies:
                found[names.GEN_AI_FIRST_CHUNK] = min(latencies)
            preemptions = sum(getattr(each, "num_preemptions", 0) for each in stats)
            if preemptions:
                found[names.RAY_LLM_PREEMPTIONS] = preemptions
            self._add_times(Times.of(stats), found)
        if self.totals is not None:
            self.totals.add(found)
        self._span.add_encoded(encode.attributes(found))

    def _add_times(self, times: Times, found: dict[str, Any]) -> None:
        phases = times.phases()
        for _, key, begin, end in phases:
            found[key] = end - begin
        if not times.queued:
            return
        # Where both clocks are of one machine, the request was queued between its arrival and now.
        # The monotonic clock is read first: a pause between both makes the shift too large, and never too small.
        before, now = monotonic(), now_ns() / 1e9
        shift = now - before
        is_here = self._arrival <= times.queued + shift <= now
        if is_here:
            found[names.RAY_LLM_TIME_TO_QUEUE] = times.queued + shift - self._arrival
        if self._active.llm.phases and self._span.is_recording():
            start = times.queued + shift if is_here else self._arrival
            self._record(phases, int((start - times.queued) * 1e9))

    def _record(self, phases: list[tuple[str, str, float, float]], shift: int) -> None:
        """Record the phases as spans; ``shift`` nanoseconds are between their clock and the epoch."""
        parent = self._span.as_parent()
        recorder = self._active.recorder.of(parent.flags)
        if recorder is None:
            return
        for name, _, begin, end in phases:
            identity = encode.identity_of(parent.trace_id, ids.new_span_id(), parent)
            template = self._active.templates.of_waiting(name)
            recorder.record(template, identity, int(begin * 1e9) + shift, int(end * 1e9) + shift, b"")


class Usage(NamedTuple):
    """The attributes with counts of tokens."""

    input: str
    output: str
    cached: str


_STANDARD = Usage(names.GEN_AI_INPUT_TOKENS, names.GEN_AI_OUTPUT_TOKENS, names.GEN_AI_CACHED_TOKENS)
_OURS = Usage(names.RAY_LLM_INPUT_TOKENS, names.RAY_LLM_OUTPUT_TOKENS, names.RAY_LLM_CACHED_TOKENS)
_PREFILL = Usage(
    names.RAY_LLM_PREFILL_INPUT_TOKENS, names.RAY_LLM_PREFILL_OUTPUT_TOKENS, names.RAY_LLM_PREFILL_CACHED_TOKENS
)
"""The same tokens are counted for the decoding part."""


def of_deployment() -> dict[str, str]:
    """The attribute with the deployment of Ray Serve in whose replica this is; empty elsewhere."""
    find = getattr(sys.modules.get("ray.serve.context"), "_get_internal_replica_context", None)
    name = getattr(find(), "deployment", "") if find is not None else ""
    return {names.RAY_SERVE_DEPLOYMENT: name} if name else {}


def usage_of(active: Tracing) -> Usage:
    """What tokens are counted as."""
    return _STANDARD if active.llm.usage else _OURS


def _add_request(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        active = tracing.active
        parent = kwargs.get("parent_req", args[1] if len(args) > 1 else None)
        generation = None
        if active is not None:
            prompt = kwargs.get("prompt", args[0] if args else None)
            generation = _begin(active, self, request, parent, prompt)
        try:
            original(self, request, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            if generation is not None:
                generation.end(error)
            raise
        if active is not None:
            _opened(self, generation, request, parent)

    return add_request


def _begin(active: Tracing, processor: Any, request: Any, parent: Any, prompt: Any) -> Generation | None:
    known: Generation | None = None
    with guarded("tracing a generation"):
        if request.request_id in processor.request_states:
            return None  # more input for that one
        known = _open.get(processor, {}).get(parent.request_id) if parent is not None else None
        if known is None:
            known, context = _new(active, processor, request, parent, prompt)
        else:
            context = known.context
        if getattr(processor, "tracing_enabled", False):
            carried: dict[str, str] = {}
            propagate.inject(carried, context)
            request.trace_headers = {key: value for key, value in carried.items() if key in _HEADERS}
    return known


def _new(active: Tracing, processor: Any, request: Any, parent: Any, prompt: Any) -> tuple[Generation | None, Context]:
    asked = request.sampling_params if parent is None else parent.sampling_params
    # Before the engine gives each request an id of its own, this is the one that the client knows.
    identity = getattr(request, "external_req_id", None) or request.request_id
    model = _models.get(processor, "")
    usage = usage_of(active)
    if _is_prefill(asked):
        doing, attributes, usage = names.LLM_PREFILL, {}, _PREFILL
    else:
        doing = operation.get() or _OPERATIONS.get(identity.partition("-")[0], "")
        doing = doing or ("embeddings" if asked is None else "text_completion")
        attributes = {names.GEN_AI_OPERATION: doing}
    attributes |= {names.GEN_AI_PROVIDER: _PROVIDER, names.GEN_AI_RESPONSE_ID: identity, **of_deployment()}
    if model:
        attributes[names.GEN_AI_REQUEST_MODEL] = model
    if asked is not None:
        attributes |= _parameters(asked)
    name, of_call, count = f"{doing} {model}".rstrip(), totals.around(), asked.n if parent is not None else 1
    context, span = totals.begin(active, name, attributes, int(request.arrival_time * 1e9))
    # Of several requests to the engine, the first one decides for all.
    if span is None and of_call is None and parent is None:
        return None, context
    recorded = span or cast("RecordedSpan", totals.NoSpan())
    generation = Generation(active, context, recorded, usage, count, request.arrival_time)
    generation.totals = of_call if usage is not _PREFILL else None
    if span is not None and asked is not None and usage is not _PREFILL and content.is_captured():
        generation.has_content = True
        content.note(span, active, names.GEN_AI_INPUT_MESSAGES, lambda: content.asked(prompt))
    return generation, context


def _is_prefill(asked: Any) -> bool:
    """Whether another engine decodes what this request has prefilled."""
    extra = getattr(asked, "extra_args", None) or {}
    return bool((extra.get("kv_transfer_params") or {}).get("do_remote_decode"))


def _parameters(asked: Any) -> dict[str, Any]:
    kind = getattr(getattr(asked, "output_kind", None), "value", _CUMULATIVE)
    found = {
        names.GEN_AI_TEMPERATURE: _float(asked.temperature),
        names.GEN_AI_TOP_P: _float(asked.top_p),
        names.GEN_AI_MAX_TOKENS: asked.max_tokens,
        names.GEN_AI_SEED: asked.seed,
        names.GEN_AI_CHOICES: asked.n if asked.n != 1 else None,
        names.GEN_AI_STREAM: kind == _DELTA if kind != _CUMULATIVE else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


@guarded("tracing a generation")
def _opened(processor: Any, generation: Generation | None, request: Any, parent: Any) -> None:
    request_id = request.request_id
    state = processor.request_states.get(request_id)
    if generation is not None:
        opened = _open.setdefault(processor, {})
        opened[request_id] = generation
        if parent is not None:
            opened[parent.request_id] = generation
            generation.parent_id = parent.request_id
        generation.add(request_id, state)
    elif state is None:
        _ended(processor, request_id, None)  # that was the end of its input, after all of its output


def _ended(processor: Any, request_id: str, reason: str | None) -> None:
    opened = _open.get(processor)
    generation = opened.pop(request_id, None) if opened else None
    if opened is not None and generation is not None and generation.finished(request_id, reason):
        opened.pop(generation.parent_id, None)


def _finished(processor: Any, req_state: Any, finish_reason: Any, *_args: Any, **_kwargs: Any) -> None:
    _ended(processor, req_state.request_id, str(finish_reason))


def _aborted(gone: list[str], processor: Any, request_ids: Any = (), *_args: Any, **_kwargs: Any) -> None:
    for request_id in gone:
        _ended(processor, request_id, ABORTED)
    opened = _open.get(processor, {})
    for request_id in request_ids if isinstance(request_ids, (list, tuple, set)) else ():
        generation = opened.get(request_id)
        if generation is not None and not generation.is_running:
            # Not all of its requests to the engine were made, and those that were have ended.
            del opened[request_id]
            generation.end()


def _died(processor: Any, error: BaseException, *_args: Any, **_kwargs: Any) -> None:
    for generation in set(_open.pop(processor, {}).values()):
        generation.end(error)
