"""Actors: every kind of method, inherited and decorated, async, threaded, named, passed around, looked up by another
driver.
"""

import asyncio
import functools
import sys
import threading

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("actors")


def logged(method):
    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        return method(self, *args, **kwargs)

    return wrapper


class Base:
    def inherited(self):
        return "inherited"

    async def unused(self):
        """A plain class may be sync and async."""


class PlainBase:
    def inherited(self):
        return "inherited"

    def overridden(self):
        return "base"


@ray.remote
class Plain(PlainBase):
    def __init__(self, value=0):
        self.value = value

    def add(self, more, *, twice=False):
        self.value += more * (2 if twice else 1)
        return self.value

    def none(self):
        return None

    def overridden(self):
        return "derived " + super().overridden()

    @logged
    def decorated(self, a):
        return a

    @staticmethod
    def static(a):
        return a

    @classmethod
    def of_class(cls, a):
        return a

    @ray.method(num_returns=2)
    def two(self):
        return 1, 2

    def call(self, other):
        return ray.get(other.add.remote(1))

    def execute_batch(self, name, *args):
        """A generic method, as frameworks have it: its call is named by what it runs."""
        return getattr(self, name)(*args)

    def spans(self):
        with tracer.start_as_current_span("in actor"):
            return threading.current_thread() is threading.main_thread()


class Outer:
    @ray.remote
    class NoInit:
        """A class within a class."""

        def hello(self):
            return "hello"


@ray.remote
class Async(Base):
    def __init__(self, n):
        self.n = n
        self.arrived = asyncio.Event()

    async def work(self, name):
        """The spans of calls that overlap do not mix."""
        with tracer.start_as_current_span(f"work {name}"):
            await self.arrived.wait()
            trace.get_current_span().set_attribute("who", name)
            return name

    async def arrive(self):
        self.arrived.set()

    def sync(self):
        return self.n

    async def calls(self, other):
        return await other.add.remote(10)


@ray.remote(concurrency_groups={"io": 2, "compute": 1})
class Grouped:
    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=20)

    @ray.method(concurrency_group="io")
    def meet(self):
        self.barrier.wait()
        trace.get_current_span().set_attribute("who", "met")
        return "met"

    @ray.method(concurrency_group="compute")
    def compute(self):
        return 1


@ray.remote(max_concurrency=3)
class Threaded:
    def __init__(self):
        self.barrier = threading.Barrier(3, timeout=20)

    def meet(self, name):
        with tracer.start_as_current_span(f"meet {name}"):
            self.barrier.wait()
            trace.get_current_span().set_attribute("who", name)
            return name


@ray.remote
def use(actor):
    return ray.get(actor.add.remote(100))


def create():
    Plain.options(name="shared", lifetime="detached", namespace="tests").remote(5)
    again = Plain.options(name="shared", namespace="tests", get_if_exists=True, lifetime="detached").remote(7)
    return ray.get(again.add.remote(1))


def lookup():
    actor = ray.get_actor("shared", namespace="tests")
    return ray.get(actor.add.remote(1))


def main():
    if len(sys.argv) > 1:
        return {"create": create, "lookup": lookup}[sys.argv[1]]()
    plain, other = Plain.remote(), Plain.remote(value=10)
    results = [
        ray.get(plain.add.remote(1)),
        ray.get(plain.add.remote(1, twice=True)),
        ray.get(plain.add.options(name="named call").remote(more=1)),
        ray.get(plain.add._remote(args=[1])),
        ray.get(plain.none.remote()),
        ray.get(plain.inherited.remote()),
        ray.get(plain.overridden.remote()),
        ray.get(plain.decorated.remote(1)),
        ray.get(plain.static.remote(2)),
        ray.get(plain.of_class.remote(3)),
        ray.get(plain.two.remote()),
        ray.get(plain.call.remote(other)),
        ray.get(plain.execute_batch.remote("add", 1)),
        ray.get(plain.spans.remote()),
        ray.get(use.remote(other)),
        ray.get((_no_init := Outer.NoInit.remote()).hello.remote()),
        ray.get((_plain := Plain._remote(args=[3])).add.remote(0)),
        ray.get((_optioned := Plain.options(num_cpus=0).remote(4)).add.remote(0)),
    ]
    asynchronous = Async.remote(7)
    working = [asynchronous.work.remote(name) for name in "ab"]
    ray.get(asynchronous.arrive.remote())
    results += [
        ray.get(working),
        ray.get(asynchronous.sync.remote()),
        ray.get(asynchronous.inherited.remote()),
        ray.get(asynchronous.calls.remote(plain)),
    ]
    grouped, threaded = Grouped.options(num_cpus=0).remote(), Threaded.options(num_cpus=0).remote()
    results += [
        ray.get([grouped.meet.remote(), grouped.meet.options(concurrency_group="io").remote()]),
        ray.get(grouped.compute.remote()),
        ray.get([threaded.meet.remote(name) for name in "abc"]),
    ]
    return results


if __name__ == "__main__":
    harness.run(main)
