"""Programs in which nothing is wrong, although some of it looks like something that often is."""

import asyncio
import time

import ray

from corpus import healthy, spend
from corpus.running import main


@ray.remote(num_cpus=1)
def work(seconds):
    return spend(seconds)


@ray.remote(num_cpus=1)
def combine(*parts):
    return spend(0.15)


@healthy(at_most={"scheduling": 0.2})
def two_stages(run):
    """Two stages that keep all four workers busy, the second fed by the first."""
    loaded = [work.remote(0.4) for _ in range(24)]
    ray.get([combine.remote(*loaded[first : first + 3]) for first in range(0, 24, 3)])


@ray.remote(num_cpus=0)
class Server:
    def answer(self, number):
        return spend(0.05)


@healthy(at_most={"scheduling": 0.2})
def balanced_actors(run):
    """Four actors share equal calls, one at a time each."""
    servers = [Server.remote() for _ in range(4)]
    pending = {server.answer.remote(0): server for server in servers}
    for number in range(120):
        (done,), _ = ray.wait(list(pending), num_returns=1)
        server = pending.pop(done)
        pending[server.answer.remote(number)] = server
    ray.get(list(pending))


@ray.remote(num_cpus=0)
class Tally:
    def add(self, number):
        return number


@ray.remote(num_cpus=1.25)
def produce(tally, number):
    spend(0.3)
    return ray.get(tally.add.remote(number))


@healthy(at_most={"scheduling": 0.2, "actor queue": 0.1}, cluster={"num_cpus": 5})
def shared_but_quick_actor(run):
    """All tasks call one actor, which takes no time."""
    tally = Tally.remote()
    ray.get([produce.remote(tally, number) for number in range(40)])


@ray.remote(num_cpus=0, max_concurrency=20)
class Waiter:
    async def fetch(self, seconds):
        await asyncio.sleep(seconds)


@healthy(at_most={"scheduling": 0.2}, never=("the event loop",))
def concurrent_coroutines(run):
    """An async actor with twenty slots serves rounds of twenty calls that await for long."""
    waiter = Waiter.remote()
    for _ in range(4):
        ray.get([waiter.fetch.remote(0.8) for _ in range(20)])


@ray.remote(num_cpus=0, max_concurrency=4)
class Threaded:
    def query(self, seconds):
        return spend(seconds)


@ray.remote(num_cpus=1)
def ask(threaded, rounds):
    for _ in range(rounds):
        spend(0.3)
        ray.get(threaded.query.remote(0.02))


# Each task does wait for one call before it goes on, which is an eighth of its time.
@healthy(at_most={"scheduling": 0.2}, cluster={"num_cpus": 5}, beside=("get-in-loop",))
def threaded_actor_has_room(run):
    """Four tasks that now and then ask a threaded actor with four slots."""
    threaded = Threaded.remote()
    ray.get([ask.remote(threaded, 10) for _ in range(4)])


@healthy(at_most={"scheduling": 0.2, "waiting": 0.3})
def windowed_submission(run):
    """The driver keeps eight tasks in flight, with ray.wait."""
    pending = [work.remote(0.2) for _ in range(8)]
    for _ in range(56):
        done, pending = ray.wait(pending, num_returns=1)
        ray.get(done)
        pending.append(work.remote(0.2))
    ray.get(pending)


@ray.remote(num_cpus=1)
def map_part(number):
    spend(0.5)
    return list(range(number))


@ray.remote(num_cpus=1)
def reduce_parts(*parts):
    spend(0.5)
    return sum(map(len, parts))


@healthy(at_most={"scheduling": 0.2})
def map_reduce(run):
    """Sixteen maps and four reduces, all of equal length."""
    parts = [map_part.remote(number) for number in range(16)]
    ray.get([reduce_parts.remote(*parts[number::4]) for number in range(4)])


@ray.remote(num_cpus=0)
class Stage:
    def __init__(self, seconds):
        self.seconds = seconds

    def process(self, item):
        spend(self.seconds)
        return item


@healthy(at_most={"scheduling": 0.2})
def pipeline_of_actors(run):
    """Three stages of one actor each, equally fast, through which items flow."""
    stages = [Stage.remote(0.12) for _ in range(3)]
    refs = []
    for item in range(30):
        given = item
        for stage in stages:
            given = stage.process.remote(given)
        refs.append(given)
    ray.get(refs)


@ray.remote
def make_items(number):
    for item in range(number):
        spend(0.02)
        yield item


@ray.remote(num_cpus=1)
def use_item(item):
    return spend(0.4)


@healthy(at_most={"scheduling": 0.2})
def streamed_items(run):
    """A generator makes items far faster than the tasks that use them."""
    ray.get([use_item.remote(item) for item in make_items.remote(36)])


@healthy(at_most={"scheduling": 0.3})
def driver_works_meanwhile(run):
    """The driver prepares the next round while the workers run this one, and is done before them."""
    refs = []
    for _ in range(8):
        refs += [work.remote(0.45) for _ in range(4)]
        spend(0.2)
    ray.get(refs)


@healthy(at_most={"scheduling": 0.2})
def errors_that_are_handled(run):
    """A result that the driver gives up early, with a timeout that is part of its protocol, and that comes later."""
    refs = [work.remote(0.5) for _ in range(20)]
    begun = time.perf_counter()
    while refs and time.perf_counter() - begun < 60:
        _, refs = ray.wait(refs, num_returns=len(refs), timeout=0.4)


if __name__ == "__main__":
    main()
