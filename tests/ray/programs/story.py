"""The program of a job in which everything happens that a trace can tell of."""

import os
import signal
import sys
import threading
import time

import harness
import ray
from opentelemetry import trace
from ray.exceptions import OutOfMemoryError, RayError

tracer = trace.get_tracer("story")


@ray.remote
def inner(number):
    with tracer.start_as_current_span("computes"):
        return number + 1


@ray.remote
def outer(number):
    return sum(ray.get([inner.remote(number), inner.remote(number)]))


@ray.remote
def starts_a_thread():
    thread = threading.Thread(target=lambda: ray.get(inner.remote(1)))
    thread.start()
    thread.join()


@ray.remote(max_retries=1, retry_exceptions=True)
def fails_once(marker):
    if not os.path.exists(marker):
        open(marker, "w").close()
        raise OSError("not there yet")


@ray.remote(max_retries=0)
def is_cancelled(marker):
    open(marker, "w").close()
    for _ in range(600):
        time.sleep(0.1)  # Ray interrupts between two of them


@ray.remote(max_retries=0)
def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


@ray.remote(max_retries=0, num_cpus=0, resources={"tight": 0.1})
def runs_out_of_memory(marker):
    # The raylet sends SIGTERM a moment before SIGKILL: without this, a worker that is quick has time to obey.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    open(marker, "w").close()
    harness.until_killed()


@ray.remote(max_restarts=1, max_task_retries=1)
class Restarts:
    def work(self, marker):
        if not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(1)
        return 1


@ray.remote
class Asynchronous:
    async def later(self, number):
        return await inner.remote(number)


def until_there(path):
    deadline = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.05)


def main(folder):
    def marker(name):
        return os.path.join(folder, name)

    stored = ray.put(1)
    assert ray.get(outer.remote(stored)) == 4
    ray.get(starts_a_thread.remote())
    ray.wait([fails_once.remote(marker("failed"))])
    restarts, asynchronous = Restarts.remote(), Asynchronous.remote()
    assert ray.get([restarts.work.remote(marker("died")), asynchronous.later.remote(2)]) == [1, 3]
    cancelled = is_cancelled.remote(marker("cancelled"))
    until_there(marker("cancelled"))
    ray.cancel(cancelled)
    for ref in (cancelled, is_killed.remote()):
        try:
            ray.get(ref)
        except RayError as error:
            print(type(error).__name__)
    for attempt in range(20):
        try:
            ray.get(runs_out_of_memory.remote(marker(f"memory {attempt}")))
        except OutOfMemoryError:
            # Some are killed before they have begun.
            if os.path.exists(marker(f"memory {attempt}")):
                return


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    main(sys.argv[1])
