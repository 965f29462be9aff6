"""Threads that a task starts, in every way that programs do, and what they call."""

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import harness
import ray
from library import in_a_child
from opentelemetry import trace

tracer = trace.get_tracer("threads")


@ray.remote
def called():
    return 1


def work(name):
    with tracer.start_as_current_span(name):
        return ray.get(called.remote())


@ray.remote
def starts_threads():
    thread = threading.Thread(target=work, args=("thread",))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, "pool").result()
        list(pool.map(work, ["map"]))
    timer = threading.Timer(0.01, work, ["timer"])
    timer.start()
    timer.join()
    return 1


@ray.remote
def forks():
    with tracer.start_as_current_span("around the pool"), multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(in_a_child, [1])[0]


@ray.remote
class Asynchronous:
    async def starts_threads(self):
        await asyncio.to_thread(work, "to_thread")
        with ThreadPoolExecutor(1) as pool:
            await asyncio.get_running_loop().run_in_executor(pool, work, "run_in_executor")
        return 1


def main():
    actor = Asynchronous.remote()
    return ray.get([starts_threads.remote(), actor.starts_threads.remote(), forks.remote()])


if __name__ == "__main__":
    harness.run(main)
