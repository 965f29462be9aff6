"""Threads of drivers and tasks: some that the end waits for, and some that nobody waits for."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ray

from corpus import planted, spend
from corpus.running import main


@ray.remote
def watch(seconds):
    return spend(seconds)


@planted("driver-code", at_most={"get": 0.1, "scheduling": 0.1})
def background_wait(run):
    """The driver works for four seconds; meanwhile a thread waits for a task that nobody needs."""
    thread = threading.Thread(target=lambda: ray.get(watch.remote(run.seconds(2))), daemon=True)
    thread.start()
    run.cost(spend(run.seconds(4, 0.3)))


@ray.remote
def heartbeat():
    return spend(0.1)


@ray.remote
def train(seconds):
    return spend(seconds)


@planted(on_path="train", at_most={"scheduling": 0.2})
def background_polling(run):
    """A thread sends a heartbeat now and then, while the driver waits for a task that takes long."""
    done = threading.Event()

    def beat():
        while not done.wait(0.3):
            ray.get(heartbeat.remote())

    thread = threading.Thread(target=beat)
    thread.start()
    run.cost(ray.get(train.remote(run.seconds(3.5, 0.3))))
    done.set()
    thread.join()


@ray.remote
def page(number, seconds):
    return spend(seconds)


@planted(on_path="page", at_most={"scheduling": 0.2}, beside=("get-in-loop",))
def pool_of_threads(run):
    """Four threads of the driver that each wait for one task at a time, and all of the tasks take long."""
    with ThreadPoolExecutor(4) as threads, run.costing():
        list(threads.map(lambda number: ray.get(page.remote(number, run.seconds(0.4, 0.02))), range(run.times(32))))


@ray.remote
def slow_lookup(seconds):
    return spend(seconds)


@planted(on_path="slow_lookup", at_most={"scheduling": 0.2})
def joined_thread(run):
    """The driver starts a thread, works for a second, and then joins the thread, which waits for a task."""
    took = []
    thread = threading.Thread(target=lambda: took.append(ray.get(slow_lookup.remote(run.seconds(4, 0.1)))))
    thread.start()
    spend(1)
    thread.join()
    run.cost(max(0, took[0] - 1))


@ray.remote(num_cpus=1)
def prefetching(steps, seconds):
    """Works while a thread of it loads what comes next."""
    took = 0.0
    with ThreadPoolExecutor(1) as loader:
        following = loader.submit(lambda: ray.get(watch.remote(0.05)))
        for _ in range(steps):
            following.result()
            following = loader.submit(lambda: ray.get(watch.remote(0.05)))
            took += spend(seconds)
    return took


@planted(on_path="prefetching", at_most={"scheduling": 0.2, "get": 0.2})
def prefetching_task(run):
    """A task computes while a thread of it fetches the next piece, which takes far less."""
    run.cost(ray.get(prefetching.remote(run.times(8), run.seconds(0.5, 0.05))))


@planted("driver-code", at_most={"scheduling": 0.1})
def background_calls(run):
    """A thread logs by an actor of its own, one call after the other, while the driver works."""
    recorder = Recorder.remote()
    done = threading.Event()

    def log():
        while not done.is_set():
            ray.get(recorder.write.remote())

    thread = threading.Thread(target=log)
    thread.start()
    begun = time.perf_counter()
    spend(run.seconds(3.5, 0.3))
    run.cost(time.perf_counter() - begun)
    done.set()
    thread.join()


@ray.remote(num_cpus=0)
class Recorder:
    def write(self):
        return spend(0.1)


if __name__ == "__main__":
    main()
