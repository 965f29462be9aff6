"""A job with a bottleneck: all of its tasks save their records in one actor.

ray-tracing-hooks run examples/slow_job.py           # names the actor
ray-tracing-hooks run examples/slow_job.py mended    # the same job after the advice: an async actor
"""

from __future__ import annotations

import asyncio
import sys
import time

import ray


@ray.remote(num_cpus=0)
class Store:
    def save(self, record: str) -> str:
        time.sleep(0.02)  # the answer of a database
        return record


@ray.remote(num_cpus=0)
class AsyncStore:
    async def save(self, record: str) -> str:
        await asyncio.sleep(0.02)
        return record


@ray.remote
def convert(part: int, store: ray.actor.ActorHandle) -> int:
    """Converts one part of the data, and saves its records."""
    return len(ray.get([store.save.remote(f"{part}:{number}") for number in range(40)]))


if __name__ == "__main__":
    store = AsyncStore.remote() if "mended" in sys.argv else Store.remote()
    print("saved records:", sum(ray.get([convert.remote(part, store) for part in range(4)])))
