"""Calls of each kind in known numbers: from the driver and from tasks, retried, failed, cut off; and an actor."""

import os
import time

import harness
import ray


@ray.remote
def square(number):
    return number * number


@ray.remote
def outer(count):
    return sum(ray.get([square.remote(number) for number in range(count)]))


@ray.remote(max_retries=2, retry_exceptions=True)
def flaky(folder):
    path = os.path.join(folder, "tried")
    if not os.path.exists(path):
        open(path, "w").close()
        raise FileNotFoundError(path)
    return "at last"


@ray.remote(max_retries=0)
def failing():
    raise ValueError("as expected")


@ray.remote(max_retries=0)
def dying():
    os._exit(1)


@ray.remote
class Worker:
    def work(self, seconds):
        time.sleep(seconds)
        return seconds

    async def wait(self):
        return 1


def main():
    results = ray.get([square.remote(number) for number in range(20)])
    results.append(ray.get(outer.remote(3)))
    results.append(ray.get(flaky.remote(os.environ["RTH_FOLDER"])))
    for task in (failing, dying):
        try:
            ray.get(task.remote())
        except (ValueError, ray.exceptions.WorkerCrashedError):
            results.append("failed")
    worker = Worker.remote()
    results += ray.get([worker.work.remote(0.02) for _ in range(5)])
    return [*results, ray.get(worker.wait.remote())]


if __name__ == "__main__":
    harness.run(main)
