"""The loops of Ray's own microbenchmark (``ray._private.ray_perf``), and a few more, each with what it calls.

Each loop makes one round of calls and says how many. The names are those of ``ray microbenchmark``.
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import socket
import time
from collections.abc import Callable
from typing import Any

import ray

BATCH = 300
"""Calls of actors in flight at once."""

TASKS = 100
"""The same of tasks, which take longer."""

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

    def call_one_by_one(self, count: int) -> None:
        for _ in range(count):
            for actor in self.actors:
                ray.get(actor.small.remote())


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


def _many(call: Callable[[], Any], count: int = BATCH) -> Loop:
    def loop() -> int:
        ray.get([call() for _ in range(count)])
        return count

    return loop


def tasks_sync() -> Loop:
    return _one(small.remote)


def tasks_async() -> Loop:
    return _many(small.remote, TASKS)


def tasks_batched() -> Loop:
    """Few at a time: neither the driver nor a worker is always busy."""
    return _many(small.remote, 10)


def tasks_with_argument() -> Loop:
    return _many(lambda: take.remote(1), TASKS)


def tasks_from_actors() -> Loop:
    actors = [ray.remote(num_cpus=0)(Actor).remote() for _ in range(2)]

    def loop() -> int:
        ray.get([actor.call_task.remote(TASKS) for actor in actors])
        return TASKS * len(actors)

    return loop


def actor_calls_sync() -> Loop:
    return _one(_actor(Actor).small.remote)


def actor_calls_async() -> Loop:
    return _many(_actor(Actor).small.remote)


def actor_calls_concurrent() -> Loop:
    return _many(_actor(Actor, max_concurrency=16).small.remote)


def _clients() -> list[Any]:
    return [ray.remote(num_cpus=0)(Client).remote([_actor(Actor)]) for _ in range(2)]


def n_to_n_actor_calls_sync() -> Loop:
    clients = _clients()

    def loop() -> int:
        ray.get([client.call_one_by_one.remote(30) for client in clients])
        return 30 * len(clients)

    return loop


def n_to_n_actor_calls_async() -> Loop:
    clients = _clients()

    def loop() -> int:
        ray.get([client.call.remote(BATCH) for client in clients])
        return BATCH * len(clients)

    return loop


def calls_of_workers(count: int) -> Loop:
    """To each of so many actors in turn."""
    cls = ray.remote(num_cpus=0)(Actor)
    actors: list[Any] = []
    # In groups: Ray gives up on workers that take long to start.
    for begin in range(0, count, 10):
        group = [cls.remote() for _ in range(min(10, count - begin))]
        ray.get([actor.small.remote() for actor in group])
        actors += group

    def loop() -> int:
        ray.get([actors[number % count].small.remote() for number in range(BATCH)])
        return BATCH

    return loop


def async_actor_calls_sync() -> Loop:
    return _one(_actor(AsyncActor).small.remote)


def async_actor_calls_async() -> Loop:
    return _many(_actor(AsyncActor).small.remote)


def actor_calls_awaited() -> Loop:
    """All at once, each awaited by itself."""
    method = _actor(Actor).small
    loop = asyncio.new_event_loop()

    async def awaited() -> None:
        await asyncio.gather(*[method.remote() for _ in range(BATCH)])

    def run() -> int:
        loop.run_until_complete(awaited())
        return BATCH

    return run


def puts() -> Loop:
    """Of objects that stay in the process."""

    def loop() -> int:
        for _ in range(BATCH):
            ray.put(b"ok")
        return BATCH

    return loop


def gets() -> Loop:
    """Of objects that are there, one by one."""
    refs = [ray.put(b"ok") for _ in range(BATCH)]

    def loop() -> int:
        for ref in refs:
            ray.get(ref)
        return BATCH

    return loop


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
    return _many(lambda: take.remote(value), TASKS)


def tasks_with_nested_refs() -> Loop:
    value = [ray.put(0) for _ in range(3)]
    return _many(lambda: take.remote(value), TASKS)


def actor_calls_with_nested_refs() -> Loop:
    method = _actor(Actor).take
    value = [ray.put(0) for _ in range(3)]
    return _many(lambda: method.remote(value))


def _array() -> Any:
    """1 MiB."""
    import numpy as np

    return np.zeros(2**17)


def tasks_with_array() -> Loop:
    value = _array()
    return _many(lambda: take.remote(value), 20)


def actor_calls_with_array() -> Loop:
    method = _actor(Actor).take
    value = _array()
    return _many(lambda: method.remote(value), 20)


def _items(call: Callable[[int], Any]) -> Loop:
    def loop() -> int:
        for ref in call(BATCH):
            ray.get(ref)
        return BATCH

    return loop


def streaming_generator() -> Loop:
    """Items a second."""
    return _items(stream.remote)


def actor_streaming_generator() -> Loop:
    return _items(_actor(Actor).stream.remote)


def _job(seconds: float, count: int) -> Loop:
    def loop() -> int:
        ray.get([work.remote(seconds) for _ in range(count)])
        return count

    return loop


def tasks_of_1_ms() -> Loop:
    return _job(0.001, 100)


def tasks_of_10_ms() -> Loop:
    return _job(0.01, 20)


def tasks_of_100_ms() -> Loop:
    return _job(0.1, 4)


@functools.cache
def _served() -> tuple[Any, int]:
    """A deployment that does nothing: a handle, and its port. Serve stays up, and its controller is never idle."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})

    class Nothing:
        def __call__(self, *_: Any) -> str:
            return "ok"

    deployment = serve.deployment(Nothing, ray_actor_options={"num_cpus": 0})
    return serve.run(deployment.bind(), route_prefix="/"), port


def serve_requests_by_http() -> Loop:
    _, port = _served()
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def loop() -> int:
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read()
        if body != b"ok":
            raise RuntimeError(f"{answer.status}: {body[:200]!r}")
        return 1

    return loop


def serve_requests_by_handle() -> Loop:
    handle, _ = _served()

    def loop() -> int:
        handle.remote().result(timeout_s=30)
        return 1

    return loop


LOOPS: dict[str, Callable[[], Loop]] = {
    function.__name__.replace("_", " "): function
    for function in (
        tasks_sync,
        tasks_async,
        tasks_batched,
        tasks_from_actors,
        actor_calls_sync,
        actor_calls_async,
        actor_calls_concurrent,
        actor_calls_awaited,
        puts,
        gets,
        n_to_n_actor_calls_sync,
        n_to_n_actor_calls_async,
        async_actor_calls_sync,
        async_actor_calls_async,
        async_actor_calls_with_argument,
        actor_calls_with_argument,
        actor_calls_with_keyword,
        actor_calls_with_nested_refs,
        actor_calls_with_array,
        tasks_with_argument,
        tasks_with_ref,
        tasks_with_nested_refs,
        tasks_with_array,
        streaming_generator,
        actor_streaming_generator,
        tasks_of_1_ms,
        tasks_of_10_ms,
        tasks_of_100_ms,
        # The last, see `_served`.
        serve_requests_by_http,
        serve_requests_by_handle,
    )
}

CORE = [
    "tasks sync",
    "tasks async",
    "tasks from actors",
    "actor calls sync",
    "actor calls async",
    "actor calls with argument",
    "async actor calls async",
    "n to n actor calls sync",
    "n to n actor calls async",
]
"""What most programs do most of the time."""

SERVE = [name for name in LOOPS if name.startswith("serve ")]
"""Those that need more of Ray than its core."""

SCALE: dict[str, Callable[[], Loop]] = {
    f"{count} workers": functools.partial(calls_of_workers, count) for count in (1, 2, 5, 10, 20, 50, 100, 200)
}
"""Those of ``scale.py``."""
