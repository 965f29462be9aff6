"""Queues, pools of processes and the joblib backend: libraries of Ray that are actors underneath."""

import asyncio
import importlib.util
import multiprocessing

import ray
import scenarios
from ray.util import queue
from ray.util.multiprocessing import Pool
from scenarios import attempt, described, scenario


def square(x):
    return x * x


def add(a, b=10):
    return a + b


def fail_at_two(x):
    if x == 2:
        raise ValueError(f"no {x}")
    return x


def shown(value):
    """``imap`` returns the failure of an item as Ray wraps it, and does not raise it."""
    return value if isinstance(value, int) else [type(value).__name__, described(value.underlying)]


@ray.remote
def produce(q, items):
    for item in items:
        q.put(item)
    return q.qsize() <= len(items)


@ray.remote
def consume(q, count):
    return [q.get(timeout=30) for _ in range(count)]


@scenario
def a_queue_of_bounded_size():
    q = queue.Queue(maxsize=2)
    q.put(1)
    q.put_nowait("two")
    return [
        len(q),
        q.full(),
        attempt(lambda: q.put(3, block=False)),
        attempt(lambda: q.put(3, timeout=0.05)),
        attempt(lambda: q.put(3, timeout=-1)),
        attempt(lambda: q.put_nowait_batch([3, 4])),
        attempt(lambda: q.put_nowait_batch(3)),
        q.get(),
        q.get_nowait_batch(1),
        q.empty(),
        attempt(lambda: q.get(block=False)),
        attempt(lambda: q.get(timeout=0.05)),
        attempt(lambda: q.get(timeout=-1)),
        attempt(lambda: q.get_nowait_batch(1)),
        attempt(lambda: q.get_nowait_batch("x")),
    ]


@scenario
def a_queue_between_tasks():
    q = queue.Queue(maxsize=3, actor_options={"num_cpus": 0, "name": "conform-queue"})
    took = consume.remote(q, 20)
    made = produce.remote(q, list(range(20)))
    actor = ray.get_actor("conform-queue")
    result = [ray.get(made), ray.get(took), ray.get(actor.qsize.remote())]
    q.shutdown(force=True)
    return [*result, attempt(q.size)]


@scenario
def a_queue_in_an_event_loop():
    q = queue.Queue(maxsize=1)

    async def both():
        taken = asyncio.gather(*(q.get_async(timeout=30) for _ in range(3)))
        for item in "abc":
            await q.put_async(item)
        return sorted(await taken)

    async def empty():
        await q.get_async(block=False)

    return [asyncio.run(both()), attempt(lambda: asyncio.run(empty()))]


@scenario
def every_way_to_map():
    with Pool(2) as pool:
        later = pool.map_async(square, range(4))
        return [
            pool.map(square, range(5), chunksize=2),
            pool.starmap(add, [(1, 2), (3,)]),
            list(pool.imap(square, range(4), chunksize=3)),
            sorted(pool.imap_unordered(square, range(4))),
            pool.apply(add, (1,), {"b": 5}),
            pool.apply_async(add, (1,)).get(timeout=60),
            [later.get(), later.ready(), later.successful()],
            pool.starmap_async(add, [(1, 1)]).get(),
        ]


@scenario
def failures_in_a_pool():
    failures = []
    with Pool(2) as pool:
        later = pool.apply_async(fail_at_two, (2,), error_callback=failures.append)
        later.wait()
        steps = pool.imap(fail_at_two, range(1, 4))
        return [
            attempt(lambda: pool.map(fail_at_two, range(4))),
            attempt(lambda: pool.apply(fail_at_two, (2,))),
            [attempt(lambda: shown(next(steps))) for _ in range(4)],
            attempt(lambda: pool.apply(square, (1, 2))),
            later.successful(),
            attempt(later.get),
            [shown(failure) for failure in failures],
        ]


@scenario
def a_pool_that_is_closed():
    pool = Pool(1, initializer=list, initargs=((),))
    first = pool.apply(square, (3,))
    early = attempt(pool.join)
    pool.close()
    refused = attempt(lambda: pool.apply(square, (3,)))
    pool.join()
    return [first, early, refused]


@scenario
def a_time_out_in_a_pool():
    with Pool(1) as pool:
        q = queue.Queue()
        later = pool.apply_async(q.get)
        out = attempt(lambda: later.get(timeout=0.05))
        q.put("late")
        return [isinstance(out, list) and out[0], multiprocessing.TimeoutError.__name__, later.get(timeout=60)]


if importlib.util.find_spec("joblib"):

    @scenario
    def joblib_on_ray():
        import joblib
        from ray.util.joblib import register_ray

        register_ray()
        with joblib.parallel_backend("ray", n_jobs=2):
            good = joblib.Parallel()(joblib.delayed(square)(i) for i in range(8))
            bad = attempt(lambda: joblib.Parallel()(joblib.delayed(fail_at_two)(i) for i in range(4)))
        return [good, bad]


if __name__ == "__main__":
    scenarios.run()
