"""Generations of SGLang, against a stand-in with its arguments and results: SGLang itself needs a GPU."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.llm import sglang
from ray_tracing_hooks._ray.rates import RateLimits
from ray_tracing_hooks._safety.patching import Patches

MODULE = "sglang.srt.entrypoints.engine"


def part(tokens: int, reason: str | None = None, index: int = 0) -> dict[str, Any]:
    """A part of an answer: SGLang counts what has been generated so far."""
    finish = {"type": reason, "length": tokens} if reason else None
    counts = {"prompt_tokens": 7, "completion_tokens": tokens, "cached_tokens": 4, "num_retractions": 0}
    return {"text": "x" * tokens, "index": index, "meta_info": {"id": "abc", "finish_reason": finish, **counts}}


class Engine:
    """SGLang's engine."""

    def __init__(self, *, enable_trace: bool = False) -> None:
        self.server_args = SimpleNamespace(served_model_name="tiny", model_path="/tiny", enable_trace=enable_trace)
        self.header: Any = None
        self.closed = False

    async def async_generate(
        self,
        prompt: Any = None,
        sampling_params: Any = None,
        *,
        stream: bool = False,
        external_trace_header: Any = None,
    ) -> Any:
        self.header = external_trace_header
        if prompt == "refused":
            raise ValueError("too long")
        count = sampling_params.get("n", 1) if isinstance(sampling_params, dict) else 1
        if not stream:
            made = [part(3, "length", index) for index in range(count)]
            return made if count > 1 else made[0]
        return self._parts(count)

    async def _parts(self, count: int) -> AsyncGenerator[Any, None]:
        try:
            for tokens, reason in ((1, None), (2, None), (3, "stop")):
                for index in range(count):
                    yield part(tokens, reason, index)
        finally:
            self.closed = True

    async def async_encode(self, prompt: Any) -> Any:
        return [{"embedding": [0.5], "meta_info": {"id": "abc", "prompt_tokens": 7}} for _ in prompt]


@pytest.fixture
def patches() -> Iterator[Patches]:
    made = Patches()
    yield made
    made.undo()


@pytest.fixture
def generation_of(
    tmp_path: Path, patches: Patches, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Engine, Callable[[Engine], Awaitable[Any]]], trace_pb2.Span]:
    """Asks an engine that is traced, and returns the one span."""
    traced = type("Engine", (Engine,), dict(vars(Engine)))
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(Engine=traced))
    monkeypatch.setattr(tracing, "active", tracing_of(tmp_path))
    assert sglang.patch(patches)

    def ask(made: Engine, call: Callable[[Engine], Awaitable[Any]]) -> trace_pb2.Span:
        made.__class__ = traced

        async def run() -> None:
            await call(made)

        asyncio.run(run())
        (span,) = spooled_spans(tmp_path)
        return span

    return ask


GenerationOf = Callable[[Engine, Callable[[Engine], Awaitable[Any]]], trace_pb2.Span]


def told(span: trace_pb2.Span) -> dict[str, Any]:
    return {
        each.key: [value.string_value for value in each.value.array_value.values]
        or getattr(each.value, str(each.value.WhichOneof("value")))
        for each in span.attributes
        if each.key.startswith(("gen_ai.", "ray.llm"))
    }


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_a_generation_has_what_the_last_parts_say(generation_of: GenerationOf, is_streamed: bool, count: int) -> None:
    async def ask(engine: Engine) -> None:
        asked = {"temperature": 0.5, "n": count}
        made = await engine.async_generate("prompt", sampling_params=asked, stream=is_streamed)
        if is_streamed:
            assert len([part async for part in made]) == 3 * count

    span = generation_of(Engine(), ask)
    found = told(span)
    assert (span.name, span.status.code) == ("text_completion tiny", 0)
    assert (names.GEN_AI_FIRST_CHUNK in found) is is_streamed
    found.pop(names.GEN_AI_FIRST_CHUNK, None)
    assert found == {
        names.GEN_AI_OPERATION: "text_completion",
        names.GEN_AI_PROVIDER: "sglang",
        names.GEN_AI_REQUEST_MODEL: "tiny",
        names.GEN_AI_STREAM: is_streamed,
        names.GEN_AI_TEMPERATURE: 0.5,
        names.GEN_AI_CHOICES: count,
        names.GEN_AI_FINISH_REASONS: ["stop" if is_streamed else "length"] * count,
        names.GEN_AI_RESPONSE_ID: "abc",
        names.GEN_AI_INPUT_TOKENS: 7,
        names.GEN_AI_OUTPUT_TOKENS: 3 * count,
        names.GEN_AI_CACHED_TOKENS: 4,
    }


def test_a_limit_leaves_out_generations(
    generation_of: GenerationOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = RateLimits([("text_completion *", 1)])
    monkeypatch.setattr(tracing, "active", tracing_of(tmp_path, rate_limits=limits))

    async def ask(engine: Engine) -> None:
        for _ in range(3):
            assert (await engine.async_generate("prompt"))["text"] == "xxx"

    assert generation_of(Engine(), ask).name == "text_completion tiny"
    assert limits.unreported() == {"text_completion tiny": 2}


def test_a_caller_that_stops_early_is_no_error(generation_of: GenerationOf) -> None:
    async def ask(engine: Engine) -> None:
        stream = await engine.async_generate("prompt", stream=True)
        await stream.__anext__()
        await stream.aclose()
        assert engine.closed

    span = generation_of(Engine(), ask)
    assert (span.status.code, told(span)[names.GEN_AI_FINISH_REASONS]) == (0, ["abort"])
    assert told(span)[names.GEN_AI_OUTPUT_TOKENS] == 1


def test_errors_stay_as_they_are_and_fail_the_span(generation_of: GenerationOf) -> None:
    async def ask(engine: Engine) -> None:
        with pytest.raises(ValueError, match="too long"):
            await engine.async_generate("refused")

    assert generation_of(Engine(), ask).status.code == 2


@pytest.mark.parametrize("is_on", [True, False])
def test_only_who_switched_on_the_engines_own_tracing_gets_headers(generation_of: GenerationOf, is_on: bool) -> None:
    engine = Engine(enable_trace=is_on)
    span = generation_of(engine, lambda engine: engine.async_generate("prompt"))
    expected = {"traceparent": f"00-{span.trace_id.hex()}-{span.span_id.hex()}-03"} if is_on else None
    assert engine.header == expected


def test_each_prompt_of_a_list_may_have_parameters_of_its_own(generation_of: GenerationOf) -> None:
    span = generation_of(Engine(), lambda engine: engine.async_generate(["a"], sampling_params=[{"n": 1}]))
    assert told(span)[names.GEN_AI_INPUT_TOKENS] == 7


def test_embeddings_of_several_texts_are_one_span(generation_of: GenerationOf) -> None:
    span = generation_of(Engine(), lambda engine: engine.async_encode(["a", "b"]))
    assert (span.name, told(span)[names.GEN_AI_INPUT_TOKENS]) == ("embeddings tiny", 14)


def test_another_engine_than_is_known_is_told(patches: Patches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(Engine=object))
    assert not sglang.patch(patches)


def test_arguments_may_come_by_their_place(generation_of: GenerationOf) -> None:
    async def ask(engine: Engine) -> None:
        made = await engine.async_generate("prompt", {"temperature": 0.25, "n": 2, "max_new_tokens": None}, stream=True)
        assert len([part async for part in made]) == 6

    found = told(generation_of(Engine(), ask))
    assert (found[names.GEN_AI_TEMPERATURE], found[names.GEN_AI_INPUT_TOKENS]) == (0.25, 7)
    assert names.GEN_AI_MAX_TOKENS not in found


def test_a_stream_that_nobody_reads_ends_its_span(generation_of: GenerationOf) -> None:
    async def ask(engine: Engine) -> None:
        await engine.async_generate("prompt", stream=True)

    span = generation_of(Engine(), ask)
    assert (span.status.code, told(span)[names.GEN_AI_FINISH_REASONS]) == (0, ["abort"])


@pytest.mark.parametrize("strange", ["text", {"index": []}])
def test_parts_that_are_not_known_come_through(
    generation_of: GenerationOf, strange: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "part", lambda *_: strange)

    async def ask(engine: Engine) -> None:
        made = await engine.async_generate("prompt", stream=True)
        assert [each async for each in made] == [strange] * 3

    assert generation_of(Engine(), ask).status.code == 0
