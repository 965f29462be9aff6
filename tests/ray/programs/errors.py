"""The text of every error, as the user of the program reads it."""

import asyncio
import re
import threading

import harness
import ray


def deep(n):
    if n:
        return deep(n - 1)
    raise ValueError("deep")


@ray.remote(max_retries=0)
def plain():
    raise ValueError("plain")


@ray.remote(max_retries=0)
def nested():
    deep(3)


@ray.remote(max_retries=0)
def chained():
    try:
        deep(1)
    except ValueError as error:
        raise KeyError("outer") from error


@ray.remote(max_retries=0)
def of_another():
    return ray.get(chained.remote())


@ray.remote(max_retries=0)
def generator():
    yield 1
    raise KeyError("generator")


@ray.remote(num_returns=3, max_retries=0)
def too_few():
    return 1, 2


@ray.remote(max_retries=0)
def unpicklable():
    return threading.Lock()


@ray.remote
class Sync:
    def fails(self):
        raise KeyError("sync")

    def generator(self):
        yield 1
        raise KeyError("generator")

    @staticmethod
    def static():
        raise KeyError("static")


@ray.remote
class Async:
    async def fails(self):
        await asyncio.sleep(0)
        raise KeyError("async")

    def sync(self):
        raise KeyError("sync in async")

    async def generator(self):
        yield 1
        raise KeyError("async generator")


@ray.remote
class FailsInit:
    def __init__(self):
        raise OSError("no actor")

    def never(self):
        pass


def text(call):
    try:
        call()
    except Exception as error:
        # What differs from run to run: ids, addresses, and the line at which a thread waits for a result.
        shown = re.sub(r"pid=\d+|0x[0-9a-f]+|[0-9a-f]{32,56}|_base.py\", line \d+", "?", str(error))
        return [type(error).__name__, [cls.__name__ for cls in type(error).__mro__], shown]
    return "no error"


def drain(refs):
    for ref in refs:
        ray.get(ref)


def main():
    sync, asynchronous = Sync.remote(), Async.remote()
    return [
        text(lambda: ray.get(plain.remote())),
        text(lambda: ray.get(nested.remote())),
        text(lambda: ray.get(chained.remote())),
        text(lambda: ray.get(of_another.remote())),
        text(lambda: drain(generator.remote())),
        text(lambda: ray.get(too_few.remote())),
        text(lambda: ray.get(unpicklable.options(num_returns=1).remote())),
        text(lambda: ray.get(sync.fails.remote())),
        text(lambda: drain(sync.generator.remote())),
        text(lambda: ray.get(sync.static.remote())),
        text(lambda: ray.get(asynchronous.fails.remote())),
        text(lambda: ray.get(asynchronous.sync.remote())),
        text(lambda: drain(asynchronous.generator.remote())),
        text(lambda: ray.get((_actor := FailsInit.remote()).never.remote())),
        text(lambda: plain.remote(1)),
        text(lambda: sync.fails.remote(x=1)),
        text(lambda: Sync.remote(1)),
    ]


if __name__ == "__main__":
    harness.run(main)
