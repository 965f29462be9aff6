"""A job with a bottleneck: all of its tasks save their records in one actor.

Run it as it is, and after the advice, with an async actor:

    ray-tracing-hooks run --output before examples/slow_job.py
    ray-tracing-hooks run --output after examples/slow_job.py mended
    ray-tracing-hooks compare before --to after

You see a finding that names the actor, and then that it is gone.
"""

import asyncio
import sys
import time

import ray


@ray.remote(num_cpus=0)
class Store:
    def save(self, record):
        time.sleep(0.02)  # the answer of a database
        return record


@ray.remote(num_cpus=0)
class AsyncStore:
    async def save(self, record):
        await asyncio.sleep(0.02)
        return record


@ray.remote
def convert(part, store):
    """Converts one part of the data, and saves its records."""
    return len(ray.get([store.save.remote(f"{part}:{number}") for number in range(40)]))


if __name__ == "__main__":
    store = AsyncStore.remote() if "mended" in sys.argv else Store.remote()
    print("saved records:", sum(ray.get([convert.remote(part, store) for part in range(4)])))
