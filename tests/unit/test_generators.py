"""Generators of tasks, with whatever keeps the current context."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path

import pytest
from opentelemetry.context import Context, get_current

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.generators import traced, traced_async, traced_from_first_step, watched
from ray_tracing_hooks._record import ids, sampling
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import NEW_TRACE, SAMPLED, Recorder, Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._spool.writer import SpoolWriter

RUNTIME = """
import threading
from opentelemetry.context.context import Context, _RuntimeContext

class ThreadLocal(_RuntimeContext):
    def __init__(self):
        self.local = threading.local()

    def get_current(self):
        return getattr(self.local, "context", None) or Context()

    def attach(self, context):
        before, self.local.context = self.get_current(), context
        return before

    def detach(self, token):
        self.local.context = token
"""
PROGRAM = """
import json
from opentelemetry import context
from ray_tracing_hooks._ray import generators

def now():
    return dict(context.get_current())

def body():
    seen.append(now())
    yield 1
    token = context.attach(context.set_value("inner", 1))
    yield 2
    seen.append(now())
    context.detach(token)
    yield 3
    seen.append(now())

seen, outside = [], []
for _ in generators.traced(body(), context.set_value("task", 1), None):
    outside.append(now())
outside.append(now())
print(json.dumps([seen, outside, type(context._RUNTIME_CONTEXT).__name__]))
"""


@pytest.mark.parametrize("runtime", ["ContextVarsRuntimeContext", "ThreadLocal"])
def test_the_context_of_a_generator_holds_inside_of_it_alone(runtime: str, tmp_path: Path) -> None:
    """At each step, with what the body has attached across a yield; nothing of it is left in the worker's thread."""
    info = tmp_path / "local-1.dist-info"
    info.mkdir()
    (tmp_path / "local.py").write_text(RUNTIME)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: local\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[opentelemetry_context]\nThreadLocal = local:ThreadLocal\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])),
            **({"OTEL_PYTHON_CONTEXT": runtime} if runtime == "ThreadLocal" else {}),
        },
    )
    seen, outside, found = json.loads(done.stdout)
    assert found == runtime
    assert seen == [{"task": 1}, {"task": 1, "inner": 1}, {"task": 1}]
    assert outside == [{}] * 4


@pytest.fixture
def span(tmp_path: Path) -> Iterator[RecordedSpan]:
    """An open span."""
    writer = SpoolWriter(str(tmp_path))
    sampler = sampling.from_environment({})
    assert sampler is not None
    recorder = Recorder(
        writer, resource=encode.resource({}), scope=encode.scope("test"), sampler=sampler, limits=SpanLimits()
    )
    yield recorder.start(Template("task", 5, {}), ids.new_trace_id(), NEW_TRACE | SAMPLED, None, b"", time.time_ns())
    writer.close()


async def body() -> AsyncGenerator[int, None]:
    yield 1


@pytest.mark.parametrize("has_loop", [True, False])
def test_an_async_generator_that_is_dropped_before_its_first_step_ends_its_span(
    has_loop: bool, span: RecordedSpan
) -> None:
    """At once: its worker may live on for days, and its end would then look like that of the task."""

    async def drop() -> None:
        steps = traced_async(body(), Context(), span)
        assert span.end_time is None
        del steps
        assert span.end_time is not None

    if has_loop:
        asyncio.run(drop())
        return
    with pytest.raises(StopIteration):
        drop().send(None)


@pytest.mark.parametrize("how", ["aclose", "athrow"])
def test_an_async_generator_that_is_closed_before_its_first_step_ends_its_span(how: str, span: RecordedSpan) -> None:
    """Whoever closes it, and with whatever error."""

    async def close() -> None:
        steps = traced_async(body(), Context(), span)
        if how == "aclose":
            await steps.aclose()
        else:
            with pytest.raises(KeyError):
                await steps.athrow(KeyError())
        del steps

    asyncio.run(close())
    assert span.end_time is not None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken out of a traceback there")
@pytest.mark.parametrize("is_async", [True, False])
def test_an_error_that_is_thrown_into_a_generator_has_no_line_of_ours(is_async: bool, span: RecordedSpan) -> None:
    def items() -> Generator[int, None, None]:
        yield 1

    def throw() -> None:
        steps = traced(items(), Context(), span)
        next(steps)
        steps.throw(KeyError("thrown"))

    async def throw_async() -> None:
        steps = traced_async(body(), Context(), span)
        await steps.__anext__()
        await steps.athrow(KeyError("thrown"))

    with pytest.raises(KeyError) as caught:
        asyncio.run(throw_async()) if is_async else throw()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == (["throw_async", "body"] if is_async else ["throw", "items"])


def test_an_async_generator_may_begin_its_span_with_its_first_step(span: RecordedSpan) -> None:
    """In the context of whoever makes that step. Without one, it runs as it is."""
    context, seen = Context({"key": "value"}), []

    async def reads() -> AsyncGenerator[object, None]:
        seen.append(get_current().get("key"))
        yield 1

    async def drain(begun: tuple[Context, RecordedSpan] | None) -> list[object]:
        calls: list[int] = []

        def begin() -> tuple[Context, RecordedSpan] | None:
            calls.append(1)
            return begun

        steps = traced_from_first_step(reads(), begin)
        assert not calls
        return [item async for item in steps]

    assert asyncio.run(drain(None)) == [1]
    assert asyncio.run(drain((context, span))) == [1]
    assert seen == [None, "value"]
    assert span.end_time is not None


def test_what_is_thrown_into_a_watched_stream_reaches_it() -> None:
    """As Serve throws a cancellation into the stream of a client that has left."""
    seen: list[object] = []

    async def body() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        stream = watched(body(), seen.append, seen.append)
        assert await stream.__anext__() == 1
        with pytest.raises(asyncio.CancelledError):
            await stream.athrow(asyncio.CancelledError())

    asyncio.run(main())
    assert seen[:2] == [1, "cancelled"]
    assert isinstance(seen[2], asyncio.CancelledError)


def test_a_watched_stream_passes_on_all_else() -> None:
    seen: list[object] = []

    async def body() -> AsyncGenerator[object, object]:
        sent = yield "first"
        try:
            yield sent
        finally:
            seen.append("closed")

    async def main() -> None:
        stream = watched(body(), seen.append)
        assert await stream.__anext__() == "first"
        assert await stream.asend("sent") == "sent"
        await stream.aclose()
        assert [each async for each in watched(body(), seen.append, seen.append)] == ["first", None]

    asyncio.run(main())
    assert seen == ["first", "sent", "closed", "first", None, "closed", None]
