"""What a replica of Ray Serve LLM knows of its requests, and the engine does not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.llm import content, engine, server
from ray_tracing_hooks._record.current import REQUEST
from ray_tracing_hooks._safety.patching import Patches

MODULE = "ray.llm._internal.serve.core.server.llm_server"


class ErrorResponse:
    """How Ray Serve LLM answers a request that its engine refuses."""

    def __init__(self, code: int) -> None:
        self.error = SimpleNamespace(type="BadRequestError", message="too long", code=code)


class LLMServer:
    """The server, with a batcher that hands on what has come in the meantime."""

    def __init__(self, items: list[Any]) -> None:
        self._llm_config = SimpleNamespace(model_id="tiny")
        self.engine = SimpleNamespace(_engine_client=Client())
        self._items = items
        self.closed = False
        self.operation = ""
        self.messages: Any = None

    def _get_batch_interval_ms(self) -> int:
        return 50

    async def _engine(self) -> AsyncGenerator[Any, None]:
        self.operation, self.messages = engine.operation.get(), content.messages.get()
        try:
            for item in self._items:
                yield item
        finally:
            self.closed = True

    async def _batch_output_stream(self, generator: Any) -> AsyncGenerator[list[Any], None]:
        items = [item async for item in generator]
        await asyncio.sleep(0.01)
        yield items[:1]
        yield items[1:]

    async def _run_request(self, request: Any, *, engine_method: str, batch_output_stream: bool = False) -> Any:
        body = self._engine()
        return self._batch_output_stream(body) if batch_output_stream else body


class Client:
    """An engine of vLLM."""

    def __init__(self) -> None:
        self.output_processor = Processor()


class Processor:
    """Its output processor."""


Ask = Callable[[LLMServer], Coroutine[Any, Any, Any]]


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[LLMServer, Ask], trace_pb2.Span]:
    """Asks a server whose replica is traced, and returns the replica's span."""
    traced = type("LLMServer", (LLMServer,), dict(vars(LLMServer)))
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(LLMServer=traced))
    active, patches = tracing_of(tmp_path), Patches()
    monkeypatch.setattr(tracing, "active", active)

    def ask(made: LLMServer, call: Ask) -> trace_pb2.Span:
        async def within() -> None:
            span = active.recorder.start(active.templates.of_waiting("replica"), bytes(range(16)), 3, None)
            REQUEST.set(span)
            await call(traced_of(made))
            span.end()

        def traced_of(made: LLMServer) -> LLMServer:
            made.__class__ = traced
            return made

        assert server.patch(patches)
        try:
            asyncio.run(within())
        finally:
            patches.undo()
        (span,) = spooled_spans(tmp_path)
        return span

    return ask


def told(span: trace_pb2.Span) -> dict[str, Any]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}


RequestOf = Callable[[LLMServer, Ask], trace_pb2.Span]


@pytest.mark.parametrize("is_captured", [True, False])
def test_the_engine_gets_the_messages_of_a_chat_only_where_they_are_recorded(
    request_of: RequestOf, monkeypatch: pytest.MonkeyPatch, is_captured: bool
) -> None:
    """What it begins with its first request keeps its context for good."""
    monkeypatch.setenv(content.CAPTURE, str(is_captured))
    made, chat = LLMServer(["one"]), [{"role": "user", "content": "Hello"}]

    async def ask(made: LLMServer) -> None:
        async for _ in await made._run_request(SimpleNamespace(messages=chat), engine_method="chat"):
            pass

    request_of(made, ask)
    assert made.messages == (chat if is_captured else None)


async def everything(made: LLMServer, **options: Any) -> list[Any]:
    return [item async for item in await made._run_request(None, **{"engine_method": "completions", **options})]


@pytest.mark.parametrize(
    ("method", "operation"), [("chat", "chat"), ("completions", "text_completion"), ("embeddings", "embeddings")]
)
def test_the_operation_and_the_model_are_told_to_the_engines_side(
    request_of: RequestOf, method: str, operation: str
) -> None:
    made = LLMServer(["a"])

    async def ask(made: LLMServer) -> None:
        assert await everything(made, engine_method=method) == ["a"]

    request_of(made, ask)
    assert made.operation == operation
    assert engine._models[made.engine._engine_client.output_processor] == "tiny"


def test_how_long_the_batcher_held_the_first_part_is_told(request_of: RequestOf) -> None:
    async def ask(made: LLMServer) -> None:
        assert await everything(made, batch_output_stream=True) == [["a"], ["b", "c"]]

    found = told(request_of(LLMServer(["a", "b", "c"]), ask))
    assert 0.01 <= found[names.RAY_LLM_CHUNK_HELD] < 60
    assert found[names.RAY_LLM_BATCHING_INTERVAL] == 0.05


@pytest.mark.parametrize("is_batched", [True, False])
@pytest.mark.parametrize(("code", "status"), [(400, 0), (500, 2)])
def test_an_error_that_is_an_item_is_told_and_fails_the_span_if_it_is_the_servers(
    request_of: RequestOf, is_batched: bool, code: int, status: int
) -> None:
    async def ask(made: LLMServer) -> None:
        await everything(made, batch_output_stream=is_batched)

    span = request_of(LLMServer([ErrorResponse(code)]), ask)
    assert told(span)[names.ERROR_TYPE] == "BadRequestError"
    assert span.status.code == status
    (event,) = span.events
    assert [(each.key, each.value.string_value) for each in event.attributes] == [
        (names.EXCEPTION_TYPE, "BadRequestError"),
        (names.EXCEPTION_MESSAGE, "too long"),
    ]


def test_a_response_that_is_closed_early_closes_that_of_the_engine(request_of: RequestOf) -> None:
    async def ask(made: LLMServer) -> None:
        body = await made._run_request(None, engine_method="chat")
        assert await body.__anext__() == "a"
        await body.aclose()
        assert made.closed

    assert names.RAY_LLM_CHUNK_HELD not in told(request_of(LLMServer(["a", "b"]), ask))


def test_another_server_than_is_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(LLMServer=object))
    assert not server.patch(Patches())
