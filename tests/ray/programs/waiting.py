"""Waiting for objects in every way, and storing some."""

import asyncio
import inspect

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("waiting")


@ray.remote
def number(value):
    return value


@ray.remote
def fails():
    raise KeyError("no such key")


@ray.remote
def waits(ref):
    return ray.get(ref[0])


@ray.remote
class Slow:
    def never(self):
        harness.until_killed()


@ray.remote
class Awaiting:
    async def sum(self, refs):
        with tracer.start_as_current_span("gathering"):
            return sum(await asyncio.gather(*refs))


@ray.remote
def count(most):
    for number in range(most):
        yield number


async def awaits(never):
    """Awaits in each way that there is."""
    results = [await number.remote(4), len(await ray.put(b"raw"))]
    for awaitable in (fails.remote(), asyncio.wait_for(never, 0.1)):
        try:
            results.append(await awaitable)
        except Exception as error:
            results.append(type(error).__name__)
    done, _ = await asyncio.wait([asyncio.ensure_future(number.remote(6))])
    results += [task.result() for task in done]
    results.append(await asyncio.wrap_future(number.remote(7).future()))
    with tracer.start_as_current_span("iterating"):
        results.append([await item async for item in count.remote(3)])
    handled = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: handled.append(context["message"]))
    unseen = fails.remote().as_future()
    await asyncio.wait([unseen])
    del unseen
    return [*results, handled]


abandoned = []


async def unfinished(ref):
    return await ref


def told(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def main():
    refs = [number.remote(value) for value in range(3)]
    slow = Slow.remote()
    never = slow.never.remote()
    items = count.remote(2)
    results = [
        ray.get(refs[0]),
        ray.get(refs, timeout=60),
        told(lambda: ray.get(fails.remote())),
        told(lambda: ray.get(never, timeout=0.1)),
        [len(side) for side in ray.wait([refs[0], never], num_returns=1, timeout=60)],
        [len(side) for side in ray.wait([never], timeout=0.01)],
        [len(side) for side in ray.wait([items], timeout=60)],
        len(ray.get(ray.put(bytearray(1_000_000)))),
        ray.get(waits.remote([refs[2]])),
        told(lambda: ray.get("nothing")),
        told(lambda: ray.wait("nothing")),
        str(inspect.signature(ray.get)) == str(inspect.signature(inspect.unwrap(ray.get))),
    ]
    results.append(asyncio.run(awaits(never)))
    awaiting = Awaiting.remote()
    results.append(ray.get(awaiting.sum.remote([number.remote(8), number.remote(9)])))
    loop = asyncio.new_event_loop()
    abandoned.append(loop.create_task(unfinished(never)))
    loop.run_until_complete(asyncio.sleep(0.01))
    ray.kill(slow)
    return results


if __name__ == "__main__":
    harness.run(main)
