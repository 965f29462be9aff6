"""The loops of Ray's own microbenchmark (``ray._private.ray_perf``), and a few more, each with what it calls.

Each loop makes one round of calls and says how many. The names are those of ``ray microbenchmark``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray

BATCH = 300
Loop = Callable[[], int]


class Actor:
    def small(self) -> bytes:
        return b"ok"

    def take(self, _value: Any) -> bytes:
        return b"ok"

    def stream(self, count: int) -> Any:
        for _ in range(count):
            yield b"ok"

    def call_task(self, count: int) -> None:
        ray.get([small.remote() for _ in range(count)])


class AsyncActor:
    async def small(self) -> bytes:
        return b"ok"

    async def take(self, _value: Any) -> bytes:
        return b"ok"


class Client:
    def __init__(self, actors: list[Any]) -> None:
        self.actors = actors

    def call(self, count: int) -> None:
        ray.get([actor.small.remote() for actor in self.actors for _ in range(count)])


@ray.remote
def small() -> bytes:
    return b"ok"


@ray.remote
def take(_value: Any) -> bytes:
    return b"ok"


@ray.remote
def work(seconds: float) -> None:
    """Compute, not sleep: what else runs on the machine counts."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@ray.remote
def stream(count: int) -> Any:
    for _ in range(count):
        yield b"ok"


def _actor(cls: type, **options: Any) -> Any:
    actor = ray.remote(num_cpus=0)(cls).options(**options).remote()
    # It is there before the loop begins.
    ray.get(actor.small.remote())
    return actor


def _one(call: Callable[[], Any]) -> Loop:
    def loop() -> int:
        ray.get(call())
        return 1

    return loop


def _many(call: Callable[[], Any]) -> Loop:
    def loop() -> int:
        ray.get([call() for _ in range(BATCH)])
        return BATCH

    return loop


def tasks_sync() -> Loop:
    return _one(small.remote)


def tasks_async() -> Loop:
    return _many(small.remote)


def tasks_from_actors() -> Loop:
    actors = [ray.remote(num_cpus=0)(Actor).remote() for _ in range(2)]

    def loop() -> int:
        ray.get([actor.call_task.remote(BATCH) for actor in actors])
        return BATCH * len(actors)

    return loop


def actor_calls_sync() -> Loop:
    return _one(_actor(Actor).small.remote)


def actor_calls_async() -> Loop:
    return _many(_actor(Actor).small.remote)


def actor_calls_concurrent() -> Loop:
    return _many(_actor(Actor, max_concurrency=16).small.remote)


def n_to_n_actor_calls_async() -> Loop:
    clients = [ray.remote(num_cpus=0)(Client).remote([_actor(Actor)]) for _ in range(2)]

    def loop() -> int:
        ray.get([client.call.remote(BATCH) for client in clients])
        return BATCH * len(clients)

    return loop


def async_actor_calls_sync() -> Loop:
    return _one(_actor(AsyncActor).small.remote)


def async_actor_calls_async() -> Loop:
    return _many(_actor(AsyncActor).small.remote)


def async_actor_calls_with_argument() -> Loop:
    method = _actor(AsyncActor).take
    return _many(lambda: method.remote(1))


def actor_calls_with_argument() -> Loop:
    method = _actor(Actor).take
    return _many(lambda: method.remote(1))


def actor_calls_with_keyword() -> Loop:
    method = _actor(Actor).take
    return _many(lambda: method.remote(_value=1))


def tasks_with_ref() -> Loop:
    value = ray.put(0)
    return _many(lambda: take.remote(value))


def tasks_with_nested_refs() -> Loop:
    value = [ray.put(0) for _ in range(3)]
    return _many(lambda: take.remote(value))


def tasks_with_array() -> Loop:
    import numpy as np

    value = np.zeros(2**17)

    def loop() -> int:
        ray.get([take.remote(value) for _ in range(20)])
        return 20

    return loop


def streaming_generator() -> Loop:
    """Items a second."""

    def loop() -> int:
        for ref in stream.remote(BATCH):
            ray.get(ref)
        return BATCH

    return loop


def _job(seconds: float, count: int) -> Loop:
    def loop() -> int:
        ray.get([work.remote(seconds) for _ in range(count)])
        return count

    return loop


def tasks_of_1_ms() -> Loop:
    return _job(0.001, 200)


def tasks_of_10_ms() -> Loop:
    return _job(0.01, 40)


def tasks_of_100_ms() -> Loop:
    return _job(0.1, 8)


LOOPS: dict[str, Callable[[], Loop]] = {
    function.__name__.replace("_", " "): function
    for function in (
        tasks_sync,
        tasks_async,
        tasks_from_actors,
        actor_calls_sync,
        actor_calls_async,
        actor_calls_concurrent,
        n_to_n_actor_calls_async,
        async_actor_calls_sync,
        async_actor_calls_async,
        async_actor_calls_with_argument,
        actor_calls_with_argument,
        actor_calls_with_keyword,
        tasks_with_ref,
        tasks_with_nested_refs,
        tasks_with_array,
        streaming_generator,
        tasks_of_1_ms,
        tasks_of_10_ms,
        tasks_of_100_ms,
    )
}
