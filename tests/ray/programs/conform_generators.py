"""Generators in all forms: tasks and methods; drained, waited for, left early, cancelled, failing, retried."""

import asyncio
import functools
import threading
import types

import numpy as np
import ray
import scenarios
import shared
from ray import ObjectRefGenerator
from scenarios import attempt, scenario
from shared import eventually, signals


@ray.remote
def count(n, start=0, *, step=1):
    for number in range(start, n, step):
        yield number


@ray.remote(max_retries=0)
def fails_after(n):
    for number in range(n):
        yield number
    raise ValueError("in the middle")


@ray.remote
def plain(value):
    return value


def passing(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@ray.remote(num_cpus=0)
class Sync:
    def count(self, n, *, start=0):
        for number in range(start, n):
            yield number

    def fails_after(self, n):
        for number in range(n):
            yield number
        raise KeyError("in a method")

    @passing
    def decorated(self, n):
        for number in range(n):
            yield number

    @staticmethod
    def static(n):
        for number in range(n):
            yield number

    @classmethod
    def of_class(cls, n):
        yield cls.__name__
        for number in range(n):
            yield number

    @ray.method(num_returns=2)
    def two(self):
        yield 1
        yield 2

    @ray.method(num_returns="streaming")
    def streaming(self):
        yield from [1, 2]

    def returns_generator(self, n):
        return (number for number in range(n))

    def leaves_variable(self):
        yield shared.variable.get()
        shared.variable.set("by a generator")
        yield shared.variable.get()

    def variable(self):
        return shared.variable.get()

    def set_variable(self, value):
        shared.variable.set(value)

    def threads(self):
        first = threading.get_ident()
        yield first == threading.main_thread().ident
        yield first == threading.get_ident()

    def after(self):
        return "still there"


@ray.remote(num_cpus=0)
class Async:
    def __init__(self, telling=None):
        self.telling = telling
        self.step = asyncio.Event()

    async def count(self, n, *, start=0):
        for number in range(start, n):
            await asyncio.sleep(0)
            yield number

    async def fails_after(self, n):
        for number in range(n):
            yield number
        raise KeyError("in an async method")

    def sync_count(self, n):
        for number in range(n):
            yield number

    async def turns(self, name):
        """Two of these take turns."""
        for number in range(3):
            await self.telling.tell.remote("turns", None)
            await asyncio.sleep(0)
            yield [name, number]

    async def waits(self, name):
        try:
            yield 1
            await self.telling.send.remote(name)
            await asyncio.sleep(600)
        except BaseException as error:
            await self.telling.tell.remote(name, [type(error).__name__, str(error)])
            raise
        finally:
            await self.telling.tell.remote(name, "finally")

    async def context(self):
        seen = shared.variable.get()
        shared.variable.set("async")
        yield seen
        yield shared.variable.get()

    async def variable(self):
        return shared.variable.get()

    async def task_names(self):
        yield asyncio.current_task().get_coro().__name__
        yield type(asyncio.current_task()).__name__

    async def nested(self, n):
        async for ref in Async.count_of(n):
            yield await ref

    @staticmethod
    def count_of(n):
        return count.remote(n)

    async def after(self):
        return "still there"


@functools.cache
def sync():
    return Sync.remote()


@functools.cache
def an_async():
    return Async.remote(signals())


def drain(refs):
    """All that comes out, and how it ends."""
    out = []
    for _ in range(100):
        try:
            ref = next(refs)
        except StopIteration as stop:
            return [*out, "StopIteration", stop.value]
        except Exception as error:
            return [*out, "next", scenarios.described(error)]
        out.append(attempt(lambda ref=ref: ray.get(ref)))
    return out


def every_count():
    return [count, sync().count, an_async().count]


@scenario
def types_of_what_is_returned():
    out = []
    for call in every_count():
        generator = call.remote(2)
        first = next(generator)
        out.append(
            [
                type(generator).__name__,
                isinstance(generator, ObjectRefGenerator),
                isinstance(generator, types.GeneratorType),
                hasattr(generator, "__aiter__"),
                iter(generator) is generator,
                type(first).__name__,
                ray.get(first),
                drain(generator),
                drain(generator),
                ray.get(generator.completed()),
                generator.is_finished() if hasattr(generator, "is_finished") else None,
                generator.next_ready() if hasattr(generator, "next_ready") else None,
                attempt(lambda generator=generator: len(generator)),
                attempt(lambda generator=generator: type(ray.get(generator)).__name__),
                attempt(lambda generator=generator: plain.remote(generator)),
                attempt(lambda generator=generator: plain.remote([generator])),
                attempt(lambda generator=generator: ray.put(generator)),
            ]
        )
    return out


@scenario
def items_of_every_kind():
    @ray.remote
    def of(*values, **more):
        for value in (*values, *more.items()):
            yield value
        return "lost"

    @ray.remote
    def arrays(n):
        for number in range(n):
            yield np.full(50_000, number)

    given = [None, 1, "s", b"b", [1], {"a": 1}, (), ValueError("an item")]
    out = [repr(ray.get(ref)) for ref in of.remote(*given, key="word")]
    fetched = [ray.get(ref) for ref in arrays.remote(3)]
    return [
        out,
        [[int(array[0]), bool(array.flags.writeable), bool(array.flags.owndata)] for array in fetched],
        drain(of.remote()),
        [drain(call.remote(3, start=1)) for call in every_count()],
        drain(of.remote(ray.put(1), plain.remote(2))),
    ]


@scenario
def numbers_of_returns():
    return [
        ray.get(count.options(num_returns=2).remote(2)),
        [attempt(lambda ref=ref: ray.get(ref)) for ref in count.options(num_returns=3, max_retries=0).remote(2)],
        [attempt(lambda ref=ref: ray.get(ref)) for ref in count.options(num_returns=2, max_retries=0).remote(3)],
        [attempt(lambda ref=ref: ray.get(ref)) for ref in fails_after.options(num_returns=2).remote(1)],
        attempt(lambda: ray.get(count.options(num_returns=1, max_retries=0).remote(2))),
        count.options(num_returns=0).remote(2),
        drain(count.options(num_returns="streaming").remote(2)),
        ray.get(sync().two.remote()),
        attempt(lambda: ray.get(sync().count.options(num_returns=2).remote(2))),
        [attempt(lambda ref=ref: ray.get(ref)) for ref in sync().fails_after.options(num_returns=2).remote(1)],
        attempt(lambda: drain(an_async().count.options(num_returns=2).remote(2))),
        attempt(lambda: count.options(num_returns="many").remote(2)),
    ]


@scenario
def dynamic_returns():
    dynamic = count.options(num_returns="dynamic")
    ref = dynamic.remote(3)
    generator = ray.get(ref)
    failing = ray.get(fails_after.options(num_returns="dynamic").remote(2))
    return [
        type(ref).__name__,
        type(generator).__name__,
        len(generator),
        [type(one).__name__ for one in generator],
        [ray.get(one) for one in generator],
        [ray.get(one) for one in ray.get(dynamic.remote(0))],
        [attempt(lambda one=one: ray.get(one)) for one in failing],
        attempt(lambda: [ray.get(one) for one in ray.get(sync().count.options(num_returns="dynamic").remote(2))]),
        ray.get(plain.remote(ray.get(dynamic.remote(1)))).__class__.__name__,
    ]


@scenario
def functions_that_return_iterators():
    @ray.remote(max_retries=0)
    def give(kind):
        return {
            "list": [1, 2],
            "iterator": iter([1, 2]),
            "expression": (number for number in range(2)),
            "map": map(abs, [1]),
            "none": None,
        }[kind]

    @ray.remote(max_retries=0)
    def give_generator():
        return (number for number in range(2))

    @ray.remote
    @passing
    def decorated(n):
        for number in range(n):
            yield number

    return [
        *[
            attempt(lambda kind=kind: drain(give.options(num_returns="streaming").remote(kind)))
            for kind in ("list", "iterator", "expression", "map", "none")
        ],
        attempt(lambda: ray.get(give_generator.remote())),
        attempt(lambda: drain(decorated.remote(2))),
        attempt(lambda: drain(ray.remote(functools.partial(count._function, 2)).remote())),
        attempt(lambda: drain(ray.remote(lambda: (yield 1)).remote())),
        attempt(lambda: drain(sync().decorated.remote(2))),
        attempt(lambda: drain(sync().static.remote(2))),
        attempt(lambda: drain(sync().of_class.remote(1))),
        attempt(lambda: drain(sync().streaming.remote())),
        attempt(lambda: ray.get(sync().returns_generator.remote(2))),
        attempt(lambda: drain(sync().returns_generator.options(num_returns="streaming").remote(2))),
        attempt(lambda: drain(sync().after.options(num_returns="streaming").remote())),
        attempt(lambda: drain(an_async().sync_count.remote(2))),
        ray.get(an_async().after.remote()),
    ]


@scenario
def what_is_sent_in():
    """Ray sends something in: a generator that hands it on to an iterator which takes nothing fails."""

    @ray.remote(max_retries=0)
    def keep():
        sent = yield 1
        sent = yield type(sent).__name__
        yield type(sent).__name__

    @ray.remote(max_retries=0)
    def hand_on():
        yield from [1, 2]

    @ray.remote(num_cpus=0)
    class Actor:
        def keep(self):
            yield from keep._function()

        def hand_on(self):
            yield from (1, 2)

    @ray.remote(num_cpus=0)
    class AsyncActor:
        async def keep(self):
            sent = yield 1
            sent = yield type(sent).__name__
            yield type(sent).__name__

    actor, asynchronous = Actor.remote(), AsyncActor.remote()
    calls = [keep, hand_on, actor.keep, actor.hand_on, asynchronous.keep]
    return [drain(call.remote()) for call in calls]


@scenario
def errors_in_the_middle():
    return [
        *[drain(fails_after.remote(n)) for n in (0, 1, 3)],
        *[drain(sync().fails_after.remote(n)) for n in (0, 2)],
        *[drain(an_async().fails_after.remote(n)) for n in (0, 2)],
        attempt(lambda: ray.get(fails_after.remote(1).completed())),
        ray.get(sync().after.remote()),
        ray.get(an_async().after.remote()),
    ]


@scenario
def items_that_cannot_be_serialized():
    @ray.remote(max_retries=0)
    def locks():
        yield 1
        yield threading.Lock()
        yield 2

    @ray.remote(max_retries=0)
    def caught():
        try:
            yield 1
            yield threading.Lock()
        except TypeError as error:
            yield type(error).__name__

    return [drain(locks.remote()), drain(caught.remote())]


@scenario
def retried():
    @ray.remote(max_retries=2, retry_exceptions=[KeyError])
    def flaky(telling):
        yield "first"
        if ray.get(telling.tell.remote("attempts", None)) < 2:
            raise KeyError("again")
        yield "last"

    return [drain(flaky.remote(signals())), len(ray.get(signals().told.remote("attempts")))]


@scenario
def waited_for():
    held = signals()

    @ray.remote
    def waits(telling, name):
        yield 1
        ray.get(telling.wait.remote(name))
        yield 2

    first, second = waits.remote(held, "go"), waits.remote(held, "go")
    ready, left = ray.wait([first, second], num_returns=2, timeout=30)
    out = [len(ready), len(left), [type(one).__name__ for one in ready], ready[0] is first or ready[0] is second]
    out += [ray.get(next(first)), ray.get(next(second))]
    out.append([len(part) for part in ray.wait([first, second], num_returns=2, timeout=0.2)])
    out.append([len(part) for part in ray.wait([first, plain.remote(1)], num_returns=1, timeout=30)])
    out.append(first._next_sync(timeout_s=0.05).is_nil())
    ray.get(held.send.remote("go"))
    out += [drain(first), drain(second)]
    out.append(attempt(lambda: ray.wait([first, first])))
    out.append([len(part) for part in ray.wait([first], timeout=5)])
    return out


@scenario
def iterated_by_asyncio():
    async def all_of(generator):
        out = []
        try:
            async for ref in generator:
                out.append(await ref)
        except Exception as error:
            out.append(scenarios.described(error)[:3])
        return out

    async def main():
        together = await asyncio.gather(*[all_of(call.remote(3)) for call in every_count()])
        failing = await asyncio.gather(
            all_of(fails_after.remote(1)),
            all_of(sync().fails_after.remote(1)),
            all_of(an_async().fails_after.remote(1)),
        )
        one = count.remote(2)
        first = await (await anext(one))
        return [
            together,
            failing,
            first,
            await all_of(one),
            await all_of(one),
            await asyncio.wait_for(one.completed(), 30),
        ]

    return asyncio.run(main())


@scenario
def consumed_in_a_task():
    @ray.remote
    def total(n):
        return sum(ray.get(ref) for ref in count.remote(n))

    @ray.remote
    def relay(n):
        for ref in count.remote(n):
            yield ray.get(ref)

    @ray.remote
    def recursive(depth):
        yield depth
        if depth:
            for ref in recursive.options(num_cpus=0).remote(depth - 1):
                yield ray.get(ref)

    return [
        ray.get(total.remote(4)),
        drain(relay.remote(3)),
        drain(recursive.options(num_cpus=0).remote(2)),
        drain(an_async().nested.remote(3)),
    ]


@scenario
def held_back_until_consumed():
    held = signals()

    @ray.remote(_generator_backpressure_num_objects=2)
    def produce(telling, n):
        for number in range(n):
            ray.get(telling.tell.remote("produced", number))
            yield number

    generator = produce.remote(held, 6)
    ray.get(held.told.remote("produced", 2))
    early = len(ray.get(held.told.remote("produced")))
    out = [early <= 3, drain(generator), ray.get(held.told.remote("produced"))]
    out.append(attempt(lambda: count.options(_generator_backpressure_num_objects=0).remote(1)))
    return out


@scenario
def left_early():
    held = signals()

    @ray.remote(_generator_backpressure_num_objects=1)
    def endless(telling, name):
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            ray.get(telling.tell.remote(name, "finally"))

    generator = endless.remote(held, "cancelled")
    out = [ray.get(next(generator)), ray.get(next(generator))]
    ray.cancel(generator, recursive=False)  # its last call is still made
    rest = drain(generator)
    out += [
        rest[-1][:2] if isinstance(rest[-1], list) else rest[-2:],
        ray.get(held.told.remote("cancelled", 1), timeout=60),
    ]
    generator = endless.remote(held, "dropped")
    out.append(ray.get(next(generator)))
    del generator
    # The worker is free again.
    out.append(ray.get([plain.remote(number) for number in range(4)]))
    return out


@scenario
def async_ones_take_turns():
    actor = an_async()
    first, second = actor.turns.remote("a"), actor.turns.remote("b")
    return [drain(first), drain(second)]


@scenario
def async_one_is_cancelled():
    actor, held = an_async(), signals()
    generator = actor.waits.remote("async cancelled")
    out = [ray.get(next(generator))]
    ray.get(held.wait.remote("async cancelled"))
    ray.cancel(generator, recursive=False)  # otherwise Ray may cancel the calls that it makes at its end
    out.append(drain(generator))
    out.append(ray.get(held.told.remote("async cancelled", 2), timeout=60))
    out.append(ray.get(actor.after.remote()))
    return out


@scenario
def context_variables_and_threads():
    actor, asynchronous = sync(), an_async()
    out = [ray.get(actor.variable.remote())]
    out += [drain(actor.leaves_variable.remote()), ray.get(actor.variable.remote())]
    ray.get(actor.set_variable.remote("by a method"))
    out += [drain(actor.leaves_variable.remote()), ray.get(actor.variable.remote())]
    out += [drain(actor.threads.remote())]
    out += [drain(asynchronous.context.remote()), ray.get(asynchronous.variable.remote())]
    out += [drain(asynchronous.task_names.remote())]
    return out


@scenario
def ended_by_its_actor():
    @ray.remote(num_cpus=0, max_restarts=0)
    class Exits:
        def exits(self):
            yield 1
            ray.actor.exit_actor()

        async def unused(self):
            pass

        async def async_exits(self):
            yield 1
            ray.actor.exit_actor()

    def short(outcome):
        return [one[:2] if isinstance(one, list) else one for one in outcome]

    actor = Exits.remote()
    return [
        short(drain(actor.async_exits.remote())),
        eventually(lambda: attempt(lambda: ray.get(actor.unused.remote()))),
    ]


if __name__ == "__main__":
    scenarios.run()
