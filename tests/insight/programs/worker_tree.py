"""A small job with varied traces: a tree of workers, an async actor, a generator, a failing task, custom spans."""

from __future__ import annotations

import asyncio
import time

import ray
from opentelemetry import trace

tracer = trace.get_tracer("worker_tree")


@ray.remote(num_cpus=0)
class Worker:
    """A node in a tree of workers. It creates its children, and each call to it calls all of them."""

    def __init__(self, depth: int, slow: bool = False) -> None:
        self.slow = slow
        self.children = [Worker.remote(depth - 1, slow=index == 1) for index in range(2)] if depth else []

    def process(self, batch: int) -> int:
        with tracer.start_as_current_span("compute") as span:
            span.set_attribute("batch", batch)
            time.sleep(0.05 if self.slow else 0.01)
        return 1 + sum(ray.get([child.process.remote(batch) for child in self.children]))


@ray.remote(num_cpus=0)
class Cache:
    """An async actor: its calls overlap."""

    async def lookup(self, key: str) -> str:
        await asyncio.sleep(0.02)
        return key.upper()


@ray.remote(num_cpus=0)
def numbers(count: int):
    for number in range(count):
        time.sleep(0.005)
        yield number


@ray.remote(num_cpus=0)
def square(number: int) -> int:
    return number * number


@ray.remote(num_cpus=0)
def sum_of_squares(count: int) -> int:
    """A task that calls tasks."""
    return sum(ray.get([square.remote(number) for number in range(count)]))


@ray.remote(num_cpus=0, max_retries=1, retry_exceptions=True)
def flaky(path: str) -> str:
    raise FileNotFoundError(path)


def main() -> None:
    # "local": a cluster of its own, whatever else runs on this machine.
    ray.init("local", num_cpus=2, include_dashboard=False, _tracing_startup_hook="ray_tracing_hooks.local:setup")

    with tracer.start_as_current_span("tree of workers"):
        root = Worker.remote(depth=2)
        results = ray.get([root.process.remote(batch) for batch in range(2)])
    print("workers that processed each batch:", results)

    with tracer.start_as_current_span("lookups"):
        cache = Cache.remote()
        print("lookups:", ray.get([cache.lookup.remote(key) for key in ("a", "b", "c")]))

    print("sum of squares:", ray.get(sum_of_squares.remote(20)))
    print("generated:", [ray.get(number) for number in numbers.remote(3)])

    try:
        ray.get(flaky.remote("no/such/file"))
    except FileNotFoundError as error:
        print("failed, as it should:", type(error).__name__)

    ray.shutdown()


if __name__ == "__main__":
    main()
