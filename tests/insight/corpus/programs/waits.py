"""Drivers and tasks that wait in one way or another: in order, with timeouts, by futures, with ``await``."""

import asyncio
import time
from contextlib import suppress

import ray
from ray.util.queue import Queue

from corpus import planted, spend
from corpus.running import main


@ray.remote
def download(number, seconds):
    return spend(seconds)


@planted("straggler", says=("download",), beside=("driver-code",))
def results_in_order(run):
    """Results are used in the order of their submission, and the first one is the last to come."""
    refs = [download.remote(number, run.seconds(3, 0.1) if number == 0 else 0.1) for number in range(24)]
    with run.costing(less=0.1):
        ray.get(refs[0])
    for ref in refs:
        ray.get(ref)
        spend(0.05)


@ray.remote
def crawl(site, seconds):
    return spend(seconds)


@planted(on_path="crawl", at_most={"scheduling": 0.2, "waiting": 0.2})
def polling(run):
    """The driver asks every tenth of a second whether a task has ended."""
    for site in range(run.times(2)):
        pending = [crawl.remote(site, run.seconds(2, 0.1))]
        while pending:
            done, pending = ray.wait(pending, timeout=0.1)
        run.cost(ray.get(done[0]))


@ray.remote
def solve(number, seconds):
    return spend(seconds)


@planted(on_path="solve", never=("Exact: waiting was recorded",), at_most={"run": 1.0})
def futures(run):
    """The driver waits for tasks by ``future().result()``, which makes no spans."""
    for number in range(run.times(4)):
        run.cost(solve.remote(number, run.seconds(1, 0.05)).future().result())


@ray.remote
def translate(text, seconds):
    return spend(seconds)


@planted(on_path="translate", at_most={"scheduling": 0.2})
def awaits(run):
    """A coroutine of the driver awaits tasks, one after the other, since each needs the one before."""

    async def chain():
        for text in range(run.times(4)):
            run.cost(await translate.remote(text, run.seconds(1, 0.05)))

    asyncio.run(chain())


@ray.remote
def never_ready(seconds):
    return spend(seconds)


@planted("timed-out", says=("never_ready",), beside=("killed-workers",), at_most={"scheduling": 0.3})
def gets_with_timeouts(run):
    """The driver gives up on a result after three seconds, and goes on without it."""
    ref = never_ready.remote(run.seconds(6, 0.1))
    begun = time.perf_counter()
    try:
        ray.get(ref, timeout=run.seconds(3))
    except ray.exceptions.GetTimeoutError:
        run.cost(time.perf_counter() - begun)
    ray.cancel(ref, force=True)


@ray.remote(num_cpus=0)
class Caller:
    def __init__(self):
        self.other = None

    def know(self, other):
        self.other = other

    def ask(self):
        return ray.get(self.other.answer.remote(ray.get_runtime_context().current_actor))

    def answer(self, asker):
        return ray.get(asker.answer_now.remote())

    def answer_now(self):
        return 42


@planted(("deadlock", "unfinished", "failed-driver"), beside=("killed-workers",), parts="+get,wait")
def deadlock(run):
    """Two actors wait for each other; the driver gives up after four seconds."""
    one, other = Caller.remote(), Caller.remote()
    ray.get(one.know.remote(other))
    with run.costing(), suppress(ray.exceptions.GetTimeoutError):
        ray.get((one.answer_now if run.mended else one.ask).remote(), timeout=run.seconds(4))


@ray.remote
def generate(number, seconds):
    for item in range(number):
        spend(seconds)
        yield item


@planted(on_path="generate", at_most={"scheduling": 0.2, "get": 0.4})
def slow_generator(run):
    """The driver uses the items of a generator as they come, and each takes a quarter of a second."""
    with run.costing():
        for item in generate.remote(run.times(14), run.seconds(0.25, 0.01)):
            ray.get(item)


@ray.remote
def vote(number, seconds):
    return spend(seconds)


@planted("straggler", says=("2 calls of vote",))
def two_barriers(run):
    """Two rounds; in each of them one task takes two seconds longer than the others."""
    for slow in (3, 8):
        took = ray.get([vote.remote(number, run.seconds(2, 0.2) if number == slow else 0.2) for number in range(12)])
        run.cost(max(took) - 0.2)


@ray.remote(num_cpus=1)
def walk(walker, step, seconds, before=None):
    return spend(seconds)


@planted("barrier", says=("walk",))
def barrier_in_each_round(run):
    """Four walkers take six steps. All wait for the one that is slow at a step, which is another one each time."""
    slow, quick, rounds = run.seconds(0.9), run.seconds(0.15), range(6)
    run.cost(6 * slow - (2 * slow + 4 * quick))
    before = [None] * 4
    for step in rounds:
        took = [slow if walker == step % 4 else quick for walker in range(4)]
        before = [walk.remote(walker, step, took[walker], before[walker]) for walker in range(4)]
        if not run.mended:
            ray.get(before)
    ray.get(before)


@ray.remote(num_cpus=1)
def lookup(number, seconds):
    return spend(seconds)


@planted("results-in-order", says=("lookup",), beside=("driver-code",), cluster={"num_cpus": 12})
def slowest_first(run):
    """The driver uses twelve results in the order of their submission, and they come in the opposite order."""
    refs = [lookup.remote(number, run.seconds(3 - 0.2 * number)) for number in range(12)]
    run.cost(run.seconds(2.2))
    while refs:
        done, refs = ray.wait(refs) if run.mended else (refs[:1], refs[1:])
        ray.get(done[0])
        spend(run.seconds(0.25))


@ray.remote(num_cpus=1)
def scan(number, seconds):
    return spend(seconds)


@planted("get-in-loop", says=("scan",))
def one_pending_call(run):
    """The driver submits the next call when ray.wait has found the one before."""
    pending, done, number = [], [], run.times(16)
    with run.costing(less=number * run.seconds(0.25) / 4):
        while number or pending:
            while number and len(pending) < (4 if run.mended else 1):
                pending.append(scan.remote(number, run.seconds(0.25)))
                number -= 1
            done, pending = ray.wait(pending)
            ray.get(done)


@planted("few-at-once", says=("scan",))
def small_window(run):
    """Four tasks have run at once, and then the driver keeps two of sixteen others under way."""
    ray.get([lookup.remote(number, run.seconds(0.3)) for number in range(4)])
    pending, number = [], run.times(16)
    with run.costing(less=number * run.seconds(0.4) / 4):
        while number or pending:
            while number and len(pending) < (4 if run.mended else 2):
                pending.append(scan.remote(number, run.seconds(0.4)))
                number -= 1
            done, pending = ray.wait(pending)
            ray.get(done)


@ray.remote
def fetch(number, seconds):
    return spend(seconds)


@ray.remote
def gather(times, seconds, *, asks):
    """Keeps its processor while it sleeps, so that its calls have only the other one."""
    pending = [fetch.remote(number, seconds) for number in range(times)]
    begun = time.perf_counter()
    while pending and asks:
        _, pending = ray.wait(pending, num_returns=len(pending), timeout=0)
        time.sleep(0.1)
    ray.get(pending)
    return time.perf_counter() - begun


@planted("polling", says=("gather", "ray.wait"), beside=("worker-start",))
def task_that_polls(run):
    """A task asks again and again whether its calls have ended."""
    run.cost(ray.get(gather.remote(run.times(10), run.seconds(0.5), asks=not run.mended)))


@ray.remote
def answer(requests, answers, times):
    for _ in range(times):
        answers.put(requests.get() + spend(0.05))


@planted("polling", says=("Queue",), beside=("worker-start", "waits-in-actor"))
def queue_that_is_polled(run):
    """The driver asks every half a second whether a queue has an answer, which is there at once."""
    times = run.times(8)
    requests, answers = Queue(), Queue()
    serving = answer.remote(requests, answers, times)
    for number in range(times):
        requests.put(number)
        while not run.mended and answers.empty():
            run.cost(spend(run.seconds(0.5)))
        answers.get()
    ray.get(serving)


@ray.remote(num_returns="streaming", _generator_backpressure_num_objects=2)
def read(part, items, seconds):
    for _ in range(items):
        yield spend(seconds)


@planted("held-generators", says=("read",), beside=("worker-start",), cluster={"num_cpus": 4})
def streams_one_by_one(run):
    """The streams of generators that may be two items ahead are read one after the other."""
    items, seconds = run.times(8), run.seconds(0.3)
    streams = [read.remote(part, items, seconds) for part in range(3)]
    begun = time.perf_counter()
    if run.mended:
        for _ in range(items):
            for stream in streams:
                ray.get(next(stream))
    else:
        for stream in streams:
            for item in stream:
                ray.get(item)
    run.cost(time.perf_counter() - begun - items * seconds)


if __name__ == "__main__":
    main()
