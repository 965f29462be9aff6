"""The loops of Ray's own microbenchmark (``ray._private.ray_perf``), and a few more, each with what it calls.

Each loop makes one round of calls and says how many. The names are those of ``ray microbenchmark``.
"""

from __future__ import annotations

import functools
import http.client
import socket
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

    def call_task(self, count: int) -> None:
        ray.get([small.remote() for _ in range(count)])


class AsyncActor:
    async def small(self) -> bytes:
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


def _actor(cls: type) -> Any:
    actor = ray.remote(num_cpus=0)(cls).remote()
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


def async_actor_calls_async() -> Loop:
    return _many(_actor(AsyncActor).small.remote)


def actor_calls_with_argument() -> Loop:
    method = _actor(Actor).take
    return _many(lambda: method.remote(1))


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


CORE: dict[str, Callable[[], Loop]] = {
    function.__name__.replace("_", " "): function
    for function in (
        tasks_sync,
        tasks_async,
        tasks_from_actors,
        actor_calls_sync,
        actor_calls_async,
        actor_calls_with_argument,
        async_actor_calls_async,
        n_to_n_actor_calls_sync,
        n_to_n_actor_calls_async,
    )
}
"""What most programs do most of the time."""
