"""Many calls of one asynchronous actor at once, each of which says which task it is, and in which span it runs."""

import asyncio

import harness
import ray
from opentelemetry import trace

CALLS = 10


def seen(kind):
    span = trace.get_current_span().get_span_context()
    return [kind, ray.get_runtime_context().get_task_id(), f"{span.span_id:016x}"]


@ray.remote(num_cpus=0, max_concurrency=3 * CALLS)
class Crowded:
    async def coroutine(self, _argument):
        await asyncio.sleep(0)
        return seen("coroutine")

    def function(self, _argument):
        return seen("function")

    async def generator(self, _argument):
        for _ in range(2):
            await asyncio.sleep(0)
            yield seen("generator")


def main():
    actor = Crowded.remote()
    refs, generators = [], []
    for number in range(CALLS):
        # Ray awaits arguments that are objects, and begins other calls meanwhile.
        argument = ray.put(number)
        refs += [actor.coroutine.remote(argument), actor.function.remote(argument)]
        generators.append(actor.generator.options(num_returns="streaming").remote(argument))
    return ray.get([*refs, *(ref for refs in generators for ref in refs)])


harness.run(main)
