"""What the times of a streaming response cost each of its items, in nanoseconds.

    python tests/benchmarks/stream_cost.py

Contenders take turns in one process, and the fastest of all rounds counts, less what a bare call takes. Items and parts
pass a function, as they do in a replica whose code has an event loop of its own; otherwise they pass a generator.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.serve import streaming
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.sampling import from_environment
from ray_tracing_hooks._spool.writer import SpoolWriter

ITEMS, ROUNDS = 20_000, 60
PART = {"type": "http.response.body", "body": b"x", "more_body": True}


def hand_on(_: Any) -> None:
    """What takes an item."""


async def generator() -> AsyncGenerator[int, None]:
    for item in range(ITEMS):
        yield item


async def making() -> AsyncGenerator[int, None]:
    return generator()


def by_function(take: Callable[[Any], Any], item: Any) -> float:
    start = time.perf_counter()
    for _ in range(ITEMS):
        take(item)
    return time.perf_counter() - start


async def drained(body: Coroutine[Any, Any, AsyncGenerator[int, None]]) -> float:
    items = await body
    start = time.perf_counter()
    async for _ in items:
        pass
    return time.perf_counter() - start


def main() -> None:
    sampler = from_environment({})
    assert sampler is not None
    with tempfile.TemporaryDirectory() as folder:
        spool = SpoolWriter(folder)
        recorder = Recorder(spool, resource=b"", scope=encode.scope("bench"), sampler=sampler, limits=SpanLimits())
        span = recorder.start(Template("Model.stream serve.replica", 5, {}), bytes(range(16)), 3, None)
        contenders: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
            "items": (lambda: by_function(streaming.items(hand_on, span), 1), lambda: by_function(hand_on, 1)),
            "parts": (lambda: by_function(streaming.parts(hand_on, span), PART), lambda: by_function(hand_on, PART)),
            "generator": (
                lambda: asyncio.run(drained(streaming.generated(making(), span))),
                lambda: asyncio.run(drained(making())),
            ),
        }
        best: dict[str, list[float]] = {name: [1.0, 1.0] for name in contenders}
        for _ in range(ROUNDS):
            for name, pair in contenders.items():
                best[name] = [min(known, run()) for known, run in zip(best[name], pair, strict=True)]
    for name, (ours, bare) in best.items():
        print(
            f"{name:<10}{(ours - bare) / ITEMS * 1e9:6.0f} ns an item more than the {bare / ITEMS * 1e9:.0f} ns without"
        )


if __name__ == "__main__":
    main()
