"""Actors that calls queue for: with one slot, threads or an event loop; and actors that start slowly or again."""

import asyncio
import os
import time

import ray

from corpus import burn, planted, spend
from corpus.running import main


@ray.remote(num_cpus=0)
class Ledger:
    def __init__(self, seconds):
        self.seconds = seconds

    def book(self, amount):
        spend(self.seconds)
        return amount


@planted("bottleneck-actor", says=("Ledger",), at_most={"scheduling": 0.2})
def one_ledger(run):
    """The driver itself submits forty calls of one actor at once."""
    ledger = Ledger.remote(run.seconds(0.1, 0.001))
    with run.costing():
        ray.get([ledger.book.remote(amount) for amount in range(run.times(40))])


@ray.remote(num_cpus=0)
class Shard:
    def __init__(self, seconds):
        self.seconds = seconds

    def query(self, number):
        return spend(self.seconds)


@planted(
    ("bottleneck-actor", "slow-actor", "slow-place"),
    says=("Shard",),
    at_most={"scheduling": 0.2},
    cluster={"num_cpus": 5},
)
def slow_actor_among_peers(run):
    """Four equal actors share the calls, and one is eight times slower."""
    shards = [Shard.remote(run.seconds(0.4, 0.05) if number == 2 else 0.05) for number in range(4)]
    refs = [shards[number % 4].query.remote(number) for number in range(run.times(40))]
    took = ray.get(refs)
    run.cost(sum(took[2::4]) - sum(took[1::4]))


@ray.remote(num_cpus=0)
class Replica:
    def __init__(self, pace):
        self.pace = pace

    def rank(self, size):
        return spend(size * self.pace)


@planted(("bottleneck-actor", "unequal-work"), says=("Replica",), at_most={"scheduling": 0.2})
def hot_key(run):
    """Keys are spread over three actors by hash, and most of the calls have the same key."""
    replicas = [Replica.remote(run.seconds(0.01)) for _ in range(3)]
    keys = list(range(36)) if run.mended else [1] * 30 + [0, 2] * 3
    refs = [(key % 3, replicas[key % 3].rank.remote(10)) for key in keys]
    took = [(key, ray.get(ref)) for key, ref in refs]
    run.cost(sum(seconds for key, seconds in took if key == 1))


@ray.remote(num_cpus=0, max_concurrency=4)
class Pool:
    def run(self, seconds):
        return spend(seconds)


@planted("bottleneck-actor", says=("Pool",), at_most={"scheduling": 0.1, "get": 0.3})
def threaded_actor_is_full(run):
    """Sixty calls at once for the four threads of an actor."""
    pool = Pool.options(max_concurrency=60).remote() if run.mended else Pool.remote()
    with run.costing():
        ray.get([pool.run.remote(run.seconds(0.2)) for _ in range(60)])


@ray.remote(num_cpus=0)
class Gateway:
    @ray.method(concurrency_group="io")
    def call(self, seconds):
        return spend(seconds)


@planted("bottleneck-actor", says=("Gateway",), at_most={"scheduling": 0.1, "get": 0.3})
def concurrency_group_is_full(run):
    """A concurrency group of two slots, which thirty calls wait for."""
    gateway = ray.remote(num_cpus=0, concurrency_groups={"io": 30 if run.mended else 2})(
        Gateway.__ray_metadata__.modified_class
    ).remote()
    with run.costing():
        ray.get([gateway.call.remote(run.seconds(0.2)) for _ in range(30)])


@ray.remote(num_cpus=0, max_concurrency=3)
class Proxy:
    async def forward(self, seconds):
        await asyncio.sleep(seconds)


@planted("bottleneck-actor", says=("Proxy",), at_most={"scheduling": 0.1, "get": 0.3}, never=("the event loop",))
def async_actor_is_full(run):
    """Coroutines that only await, in an async actor that runs three at a time."""
    proxy = Proxy.options(max_concurrency=36).remote() if run.mended else Proxy.remote()
    with run.costing():
        ray.get([proxy.forward.remote(run.seconds(0.4)) for _ in range(36)])


@ray.remote(num_cpus=0, max_concurrency=8)
class Limiter:
    def __init__(self, limit):
        self.turns = asyncio.Semaphore(limit)

    async def take(self, seconds):
        async with self.turns:
            await asyncio.sleep(seconds)


@ray.remote(num_cpus=0.1)
def consumer(limiter, calls, seconds):
    for _ in range(calls):
        ray.get(limiter.take.remote(seconds))


@planted(
    on_path="Limiter.take",
    beside=("get-in-loop", "bottleneck-actor"),
    never=("the event loop",),
    cluster={"num_cpus": 6},
)
def semaphore_in_async_actor(run):
    """An async actor whose coroutines take turns; nothing blocks its event loop."""
    limiter = Limiter.remote(4 if run.mended else 1)
    with run.costing():
        ray.get([consumer.remote(limiter, run.times(5), run.seconds(0.25)) for _ in range(4)])


@ray.remote(num_cpus=0)
class Parameters:
    async def push(self, seconds):
        time.sleep(seconds)  # noqa: ASYNC251  # the planted fault
        return seconds

    async def push_well(self, seconds):
        await asyncio.sleep(seconds)
        return seconds


@ray.remote(num_cpus=1)
def learner(parameters, calls, seconds, mended):
    for _ in range(calls):
        ray.get((parameters.push_well if mended else parameters.push).remote(seconds))
        spend(0.02)


@planted(
    "blocked-event-loop",
    says=("Parameters.push",),
    beside=("bottleneck-actor", "get-in-loop"),
    at_most={"scheduling": 0.1},
    cluster={"num_cpus": 5},
)
def blocked_event_loop(run):
    """Four learners; a coroutine of their async actor sleeps where it should await."""
    parameters = Parameters.remote()
    with run.costing():
        ray.get([learner.remote(parameters, run.times(14), run.seconds(0.06), run.mended) for _ in range(4)])


@ray.remote(num_cpus=0)
class Chat:
    async def tokenize(self, text):
        return burn(0.08)

    async def tokenize_short(self, text):
        return burn(0.001)

    async def ping(self):
        return True


@planted("blocked-event-loop", says=("Chat.tokenize",), beside=("bottleneck-actor",), at_most={"scheduling": 0.1})
def coroutine_computes(run):
    """A coroutine computes for a twelfth of a second, and the quick calls wait behind it."""
    chat = Chat.remote()
    with run.costing():
        refs = []
        for text in range(run.times(40)):
            refs += [(chat.tokenize_short if run.mended else chat.tokenize).remote(text), chat.ping.remote()]
        ray.get(refs)


@ray.remote(num_cpus=0, max_concurrency=4)
class Hasher:
    def work(self, seconds):
        begun = time.thread_time()
        while time.thread_time() - begun < seconds:
            sum(range(1000))


@planted("bottleneck-actor", says=("Hasher",), at_most={"scheduling": 0.15, "get": 0.4})
def threads_share_the_gil(run):
    """Pure Python on four threads of one actor, so that they run no faster than one."""
    hasher = Hasher.remote()
    with run.costing():
        ray.get([hasher.work.remote(run.seconds(0.2, 0.005)) for _ in range(16)])


@ray.remote(num_cpus=1)
class Model:
    def __init__(self, seconds):
        spend(seconds)

    def predict(self, number):
        return number


@planted(on_path="Model.__init__", beside=("worker-start",), at_most={"scheduling": 0.2})
def slow_constructor(run):
    """An actor loads its model for three seconds before its first call."""
    model = Model.remote(run.seconds(3, 0.05))
    with run.costing():
        ray.get([model.predict.remote(number) for number in range(8)])


@ray.remote(num_cpus=0)
class Session:
    def __init__(self, seconds):
        spend(seconds)

    def run(self):
        return spend(0.05)


@planted(on_path="Session.__init__", beside=("worker-start", "get-in-loop"), cluster={"num_cpus": 6})
def an_actor_for_each_call(run):
    """The driver makes a new actor for each piece of work, each of which takes long to construct."""
    for _ in range(run.times(5)):
        session = Session.remote(run.seconds(0.7, 0.01))
        with run.costing(less=0.05):
            ray.get(session.run.remote())


@ray.remote(num_cpus=1, max_restarts=3, max_task_retries=3)
class Fragile:
    def __init__(self, folder, seconds):
        spend(seconds)
        self.folder = folder

    def step(self, number, dies):
        path = os.path.join(self.folder, f"died-{number}")
        if dies and not os.path.exists(path):
            with open(path, "w"):
                pass
            spend(0.5)
            os._exit(1)
        return spend(0.1)


@planted(("killed-workers", "actor-restarts"), says=("Fragile",), beside=("worker-start",))
def actor_restarts(run):
    """An actor dies twice, and loads its state again for a second each time."""
    fragile = Fragile.remote(os.environ["CORPUS_FOLDER"], run.seconds(1))
    for number in range(8):
        begun = time.perf_counter()
        ray.get(fragile.step.remote(number, not run.mended and number in {2, 5}))
        if number in {2, 5}:
            run.cost(max(0, time.perf_counter() - begun - 0.1))


@ray.remote(num_cpus=1)
def look_up(seconds):
    return spend(seconds)


@ray.remote(num_cpus=0)
class Cache:
    async def get(self, seconds, mended):
        ref = look_up.remote(seconds)
        return await ref if mended else ray.get(ref)


@planted("blocked-event-loop", says=("Cache.get",), at_most={"scheduling": 0.3})
def blocking_get_in_async_actor(run):
    """A coroutine of an async actor waits for tasks with a blocking get."""
    cache = Cache.remote()
    with run.costing(less=0.1):
        ray.get([cache.get.remote(run.seconds(0.1), run.mended) for _ in range(24)])


@ray.remote(num_cpus=1)
class Job:
    def run(self, seconds):
        return spend(seconds)


@planted("worker-start", says=("Job", "one call each"), cluster={"num_cpus": 4})
def an_actor_for_each_item(run):
    """The driver makes an actor for each of twenty-four items, though actors can run many calls."""
    if run.mended:
        jobs = [Job.remote() for _ in range(4)]
        ray.get([jobs[number % 4].run.remote(0.05) for number in range(24)])
        return
    with run.costing(less=24 / 4 * 0.05):
        for _ in range(6):
            jobs = [Job.remote() for _ in range(4)]
            ray.get([job.run.remote(0.05) for job in jobs])
            del jobs


@planted("bottleneck-actor", "get-in-loop")
def queue_and_loop(run):
    """An actor that thirty calls wait for, and then another one whose calls are waited for one by one."""
    ledger = Ledger.remote(run.seconds(0.1, 0.001))
    with run.costing():
        ray.get([ledger.book.remote(amount) for amount in range(30)])
    shards = [Shard.remote(run.seconds(0.1)) for _ in range(3)]
    if run.mended:
        ray.get([shard.query.remote(number) for shard in shards for number in range(8)])
        return
    for number in range(24):
        with run.costing(1, less=0.1 / 3):
            ray.get(shards[number % 3].query.remote(number))


@planted("bottleneck-actor", "straggler")
def full_threads_and_straggler(run):
    """A threaded actor that is full, and afterwards one call of another one that takes far longer."""
    pool = Pool.options(max_concurrency=40).remote() if run.mended else Pool.remote()
    with run.costing():
        ray.get([pool.run.remote(run.seconds(0.25)) for _ in range(40)])
    shard = [Shard.remote(0.1) for _ in range(2)]
    slow = Shard.remote(run.seconds(2, 0.1))
    took = ray.get([*[each.query.remote(number) for each in shard for number in range(6)], slow.query.remote(0)])
    run.cost(took[-1] - 0.1, 1)


@ray.remote(num_cpus=0)
class Mailbox:
    def __init__(self):
        self.items = asyncio.Queue()

    async def put(self, item):
        await self.items.put(item)

    async def take(self):
        return await self.items.get()


@ray.remote(num_cpus=1)
def produce_items(mailbox, number, seconds):
    for item in range(number):
        spend(seconds)
        ray.get(mailbox.put.remote(item))


@planted("waits-in-actor", says=("Mailbox.take", "Mailbox.put"))
def item_of_a_queue(run):
    """Each item that the driver takes from a queue in an async actor comes late, by a task that puts it there."""
    mailbox, number = Mailbox.remote(), run.times(6)
    producing = produce_items.remote(mailbox, number, run.seconds(0.6, 0.02))
    for _ in range(number):
        with run.costing():
            ray.get(mailbox.take.remote())
        spend(0.01)
    ray.get(producing)


if __name__ == "__main__":
    main()
