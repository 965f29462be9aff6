"""A driver that waits for requests to Ray Serve, one after the other, with recorded waits."""

import asyncio

import harness
from ray import serve

REQUESTS = 3


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Words:
    async def count(self, text):
        await asyncio.sleep(0.1)
        return len(text.split())


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Front:
    def __init__(self, words):
        self._words = words

    async def __call__(self, text):
        return await self._words.count.remote(text)


def main():
    serve.start(http_options={"location": "NoServer"})
    handle = serve.run(Front.bind(Words.bind()), name="waits", route_prefix=None)
    try:
        return [handle.remote("a b c").result() for _ in range(REQUESTS)]
    finally:
        serve.shutdown()  # other programs begin it anew in this cluster


if __name__ == "__main__":
    harness.run(main)
