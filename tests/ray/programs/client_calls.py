"""A program that uses a cluster from outside, through a Ray Client server: nothing of Ray runs in its process."""

import asyncio
import os
import tempfile
import threading

import ray
import scenarios
from scenarios import attempt, scenario


@ray.remote
def add(a, b=1, *rest, c=0):
    return a + b + sum(rest) + c


@ray.remote
def fail(text):
    raise ValueError(text)


@ray.remote
def below(a):
    return ray.get([add.remote(a, i) for i in range(3)])


@ray.remote(num_returns=2)
def two():
    return 1, 2


@ray.remote
def count(n):
    for i in range(n):
        yield i


@ray.remote
def environment():
    import client_module

    return [client_module.NAME, os.environ["CLIENT_VARIABLE"]]


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.total = start

    def add(self, n=1):
        self.total += n
        return self.total

    def fail(self):
        raise KeyError("no")

    def add_below(self, n):
        return ray.get(add.remote(self.total, n))

    async def later(self, value):
        return value

    def items(self, n):
        for i in range(n):
            yield i

    def hold(self):
        threading.Event().wait()


@scenario
def tasks():
    ref = ray.put(5)
    ready, waiting = ray.wait([add.remote(1), add.remote(2)], num_returns=2)
    return [
        ray.get(add.remote(1)),
        ray.get(add.remote(1, 2, 3, c=4)),
        ray.get(add.remote(a=1, b=ref)),
        ray.get(add.options(num_cpus=0.5).remote(ref, ref)),
        ray.get(below.remote(1)),
        ray.get(two.remote()),
        [len(ready), len(waiting)],
        ray.get(environment.remote()),
    ]


@scenario
def errors():
    return [
        attempt(lambda: ray.get(fail.remote("text"))),
        attempt(lambda: add.remote()),
        attempt(lambda: ray.get(add.remote(1, unknown=2))),
        attempt(lambda: ray.get(add.remote("a"), timeout=60)),
        attempt(lambda: ray.get_actor("no such actor")),
        attempt(lambda: add(1)),
    ]


@scenario
def actors():
    counter = Counter.options(name="client-counter").remote(10)
    found = ray.get_actor("client-counter")
    again = Counter.options(name="client-counter", get_if_exists=True).remote(99)
    result = [
        ray.get(counter.add.remote()),
        ray.get(found.add.remote(n=5)),
        ray.get(again.add.remote(0)),
        ray.get(counter.add_below.remote(1)),
        ray.get(counter.later.remote([1])),
        attempt(lambda: ray.get(counter.fail.remote())),
        attempt(lambda: ray.get(Counter.options(name="client-counter").remote().add.remote())),
    ]
    # What waits for the actor when it is killed fails as soon as its death is known to whoever submits.
    held = counter.hold.remote()
    ray.kill(counter)
    result.append(attempt(lambda: ray.get(held))[0])
    return [*result, attempt(lambda: ray.get(found.add.remote()))[0]]


@scenario
def awaited():
    async def both():
        return await asyncio.gather(add.remote(1, 2), fail.remote("text"), return_exceptions=True)

    result, error = asyncio.run(both())
    return [result, type(error).__name__]


@scenario
def generators():
    counter = Counter.remote()
    return [
        attempt(lambda: [ray.get(item) for item in count.remote(3)]),
        attempt(lambda: [ray.get(item) for item in counter.items.remote(3)]),
    ]


@scenario
def what_a_client_knows():
    context = ray.get_runtime_context()
    return [
        ray.is_initialized(),
        ray.util.client.ray.is_connected(),
        context.namespace,
        len(context.get_job_id()),
        len(ray.nodes()),
        min(ray.cluster_resources()),
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "client_module.py"), "w") as file:
            file.write("NAME = __name__\n")
        scenarios.run(
            namespace="client", runtime_env={"working_dir": folder, "env_vars": {"CLIENT_VARIABLE": "of the client"}}
        )
