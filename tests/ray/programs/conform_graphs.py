"""Graphs of calls: bound, executed, and compiled."""

import asyncio

import ray
import scenarios
from ray.dag import InputNode, MultiOutputNode
from scenarios import attempt, scenario


@ray.remote
def add(a, b=1):
    return a + b


@ray.remote
def fail(a):
    raise ValueError(f"no {a}")


@ray.remote
def below(a):
    return ray.get(add.bind(a, 100).execute())


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.total = start

    def add(self, a, b=0):
        self.total += a + b
        return self.total

    def fail(self, a):
        raise KeyError(a)

    def read(self):
        return self.total

    def items(self, count):
        yield from range(count)

    @ray.method(num_returns=2)
    def pair(self, a):
        return a, a + 1

    async def later(self, a):
        return a


def compile_small(graph, **options):
    """Compile with little room in the object store, which else would have to make some for ten results of each call."""
    return graph.experimental_compile(_buffer_size_bytes=10_000, **options)


@scenario
def graphs_of_tasks():
    with InputNode() as given:
        graph = add.bind(add.bind(given, 2), b=3)
    with InputNode() as given:
        parts = add.bind(given[0], given.key)
    with InputNode() as given:
        several = MultiOutputNode([add.bind(given), add.bind(given, 2)])
    with InputNode() as given:
        broken = add.bind(fail.bind(given))
    return [
        ray.get(add.bind(1).execute()),
        ray.get(add.options(num_cpus=0.5).bind(1, b=2).execute()),
        [ray.get(graph.execute(i)) for i in range(3)],
        ray.get(parts.execute(1, key=2)),
        ray.get(several.execute(1)),
        attempt(lambda: ray.get(broken.execute(1))),
        attempt(lambda: ray.get(add.bind(1, 2, 3).execute())),
        attempt(lambda: ray.get(graph.execute(1, 2))),
        attempt(lambda: type(add.bind(1)()).__name__),
        ray.get(below.bind(1).execute()),
        ray.get(add.bind(ray.put(1)).execute()),
    ]


@scenario
def graphs_of_actors():
    with InputNode() as given:
        graph = Counter.bind(10).add.bind(given, b=1)
    handle = Counter.remote(10)
    with InputNode() as given:
        existing = add.bind(handle.add.bind(given), 1000)
    pair = handle.pair.bind(1)
    return [
        ray.get(graph.execute(1)),
        [ray.get(existing.execute(i)) for i in range(3)],
        attempt(lambda: ray.get(handle.fail.bind("key").execute())),
        [ray.get(part.execute()) for part in pair],
        ray.get(handle.later.bind(2).execute()),
        attempt(lambda: handle.items.bind(3)),
        attempt(lambda: Counter.bind(given)),
        attempt(lambda: ray.get(handle.add.bind(1, 2, 3, 4).execute())),
        ray.get(handle.read.remote()),
    ]


@scenario
def a_compiled_graph():
    first, second = Counter.remote(), Counter.remote()
    with InputNode() as given:
        graph = second.add.bind(first.add.bind(given, b=1))
    compiled = compile_small(graph)
    try:
        results = [ray.get(compiled.execute(i)) for i in range(5)]
        refs = [compiled.execute(i) for i in range(2)]
        results.append([ray.get(ref) for ref in refs])
        again = attempt(lambda: ray.get(refs[0]))
        wrong = attempt(lambda: ray.get(compiled.execute(1, 2)))
    finally:
        compiled.teardown()
    after = attempt(lambda: ray.get(compiled.execute(1)))
    return [results, again, wrong, after, ray.get([first.read.remote(), second.read.remote()])]


@scenario
def a_compiled_graph_with_several_outputs_and_errors():
    first, second = Counter.remote(), Counter.remote()
    with InputNode() as given:
        graph = MultiOutputNode([first.add.bind(given.a), second.fail.bind(given.b)])
    compiled = compile_small(graph)
    try:
        refs = compiled.execute(a=1, b="x")
        results = [attempt(lambda ref=ref: ray.get(ref)) for ref in refs]
        results.append(attempt(lambda: ray.get(compiled.execute(a=1, b="x"))))
    finally:
        compiled.teardown()
    # An actor is free again once its graph has been torn down.
    with InputNode() as given:
        compiled = compile_small(first.fail.bind(first.add.bind(given)))
    try:
        results.append(attempt(lambda: ray.get(compiled.execute(1))))
        # the graph is usable after a failure
        results.append(attempt(lambda: ray.get(compiled.execute(2))))
    finally:
        compiled.teardown()
    return [results, ray.get(first.read.remote())]


@scenario
def a_compiled_graph_in_an_event_loop():
    actor = Counter.remote()
    with InputNode() as given:
        graph = actor.add.bind(given)

    async def use():
        compiled = compile_small(graph, enable_asyncio=True)
        try:
            futures = [await compiled.execute_async(i) for i in range(3)]
            return [await future for future in futures]
        finally:
            compiled.teardown()  # before the loop ends, which waits for the graph's reading thread

    return asyncio.run(use())


if __name__ == "__main__":
    scenarios.run()
