"""Small programs, each with one fault planted in it, or none: what the summary has to find, and not to find.

Each runs as ``planted.py NAME``. Work is sleep (``spend``), so that they show the same on any machine.
"""

import socket
import sys
import time

import ray


def spend(milliseconds):
    """Be at work for so long: what is recorded and measured is the time itself, so there is nothing to await."""
    time.sleep(milliseconds / 1000)


@ray.remote(num_cpus=1)
def start_up(port):
    """Hold a worker until the driver lets go, so that no worker starts up twice."""
    with socket.create_connection(("127.0.0.1", port)) as held:
        held.recv(1)


def start_all(tasks):
    """Have one worker started by each of these ``start_up``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        started = [task.remote(server.getsockname()[1]) for task in tasks]
        for held in [server.accept()[0] for _ in tasks]:
            held.close()
        ray.get(started)


@ray.remote(num_cpus=0)
class Store:
    def __init__(self):
        self.values = {}

    def update(self, key):
        spend(20)
        self.values[key] = self.values.get(key, 0) + 1
        return key


@ray.remote(num_cpus=1)
def client(store, number):
    spend(5)
    return ray.get([store.update.remote((number, count)) for count in range(8)])


def bottleneck():
    """Eight clients that all need the one actor."""
    store = Store.remote()
    ray.get(store.update.remote("first"))
    return ray.get([client.remote(store, number) for number in range(8)])


@ray.remote(num_cpus=0)
class Worker:
    """The tree of actors of Flow Insight's example, 200 times as fast: each process() calls each child ten times."""

    def __init__(self, depth, path="0"):
        self.depth = depth
        self.is_bottleneck = path == "01"
        count = {2: 2, 1: 1, 0: 0}[depth]
        self.children = [Worker.remote(depth - 1, f"{path}{index}") for index in range(count)]

    def process(self):
        futures = []
        for child in self.children:
            for _ in range(10):
                if self.is_bottleneck and self.depth - 1 <= 0:
                    spend(150)
                spend(25)
                futures.append(child.process.remote())
        ray.get(futures)


def tree():
    """Flow Insight's example."""
    root = Worker.remote(2)
    return ray.get(root.process.remote())


def serving():
    """A Serve application that answers two hundred and forty requests, eight at a time."""
    from ray import serve

    @serve.deployment(num_replicas=2, max_ongoing_requests=4, ray_actor_options={"num_cpus": 0})
    class Scorer:
        def score(self, value):
            spend(300)
            return value * 2

    @serve.deployment(max_ongoing_requests=8, ray_actor_options={"num_cpus": 0})
    class Front:
        def __init__(self, scorer):
            self.scorer = scorer

        async def __call__(self, value):
            return await self.scorer.score.remote(value)

    handle = serve.run(Front.bind(Scorer.bind()), route_prefix=None)
    total = 0
    for first in range(0, 240, 8):
        total += sum(response.result() for response in [handle.remote(first + number) for number in range(8)])
    serve.shutdown()
    return total


def waiting_requests():
    """Sixty requests over HTTP, eight at a time, to an application whose only scorer takes one at a time. One fails."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor
    from urllib.error import HTTPError
    from urllib.request import urlopen

    from ray import serve

    @serve.deployment(max_ongoing_requests=1, ray_actor_options={"num_cpus": 0})
    class Scorer:
        def score(self, value):
            spend(40)
            return value * 2

    @serve.deployment(num_replicas=2, max_ongoing_requests=8, ray_actor_options={"num_cpus": 0})
    class Words:
        @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.02)
        async def embed(self, values):
            await asyncio.sleep(0.03)
            return values

        async def __call__(self, value):
            return await self.embed(value)

    @serve.deployment(max_ongoing_requests=8, ray_actor_options={"num_cpus": 0})
    class Shop:
        def __init__(self, scorer, words):
            self.scorer, self.words = scorer, words

        async def __call__(self, request):
            value = int(request.query_params["value"])
            if value == 13:
                raise ValueError(value)
            embedded = await self.words.remote(value)
            return await self.scorer.score.remote(embedded)

    def request(value):
        try:
            with urlopen(f"http://127.0.0.1:{port}/shop?value={value}") as answer:
                return int(answer.read())
        except HTTPError:
            return 0

    port = free_port()
    serve.start(http_options={"port": port})
    serve.run(Shop.bind(Scorer.bind(), Words.bind()), name="shop", route_prefix="/shop")
    with ThreadPoolExecutor(8) as threads:
        total = sum(threads.map(request, range(60)))
    serve.shutdown()
    return total


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Embedder:
    """A model that is loaded once, in an actor, and embeds a batch at a time."""

    def __init__(self):
        spend(50)

    def __call__(self, batch):
        spend(400)
        return {"embedding": batch["text"]}


def clean(row):
    spend(1)
    return {"text": row["id"] * 2}


def data_pipeline():
    """A dataset is cleaned by tasks, embedded by a single actor, which is what all wait for, and counted."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    read = ray.data.range(400, override_num_blocks=20).map(clean)
    embedded = read.map_batches(Embedder, batch_size=20, concurrency=1, num_cpus=0)
    return sum(len(batch["embedding"]) for batch in embedded.iter_batches(batch_size=None))


HOOK = "ray_tracing_hooks.local:setup"


def main():
    name = sys.argv[1]
    ray.init("local", num_cpus=4, include_dashboard=False, _tracing_startup_hook=HOOK)
    # Ray Data has three actors of its own.
    start_all([start_up.options(num_cpus=0.5)] * 8 if name == "data_pipeline" else [start_up] * 4)
    print(name, globals()[name]())
    ray.shutdown()


if __name__ == "__main__":
    main()
