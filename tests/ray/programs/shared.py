"""What the tasks of a program share: an actor by which they wait for each other and tell what happened in them."""

import asyncio
import collections
import contextvars
import functools
import time

import ray

variable = contextvars.ContextVar("variable", default="unset")
"""Of a module, since a context variable cannot be pickled."""


@ray.remote(num_cpus=0)
class Signals:
    def __init__(self):
        self._events = collections.defaultdict(asyncio.Event)
        self._told = collections.defaultdict(list)

    async def send(self, name):
        self._events[name].set()

    async def wait(self, name):
        await self._events[name].wait()

    async def tell(self, name, value):
        """Append to what is told under a name; how much that was before."""
        self._told[name].append(value)
        return len(self._told[name]) - 1

    async def told(self, name, count=0):
        while len(self._told[name]) < count:
            await asyncio.sleep(0.01)
        return self._told[name]


@functools.cache
def signals():
    return Signals.remote()


def eventually(condition, timeout=30):
    """Whether a condition becomes true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
