"""Failures: raised, passed on, retried, cancelled; intended exits; calls that Ray refuses."""

import asyncio
import os
import signal
import sys
import time

import harness
import ray
from ray._private import state
from ray.exceptions import RayError


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("cannot be shown")


@ray.remote(max_retries=0)
def fails(a):
    raise ValueError(f"bad {a}")


@ray.remote(max_retries=0)
def passes_on():
    return ray.get(fails.remote("inner"))


@ray.remote(max_retries=0)
def chained():
    try:
        raise ValueError("first")
    except ValueError as error:
        raise KeyError("second") from error


@ray.remote(max_retries=2, retry_exceptions=True)
def retried(folder):
    attempt = len(os.listdir(folder))
    open(os.path.join(folder, str(attempt)), "w").close()
    if attempt < 2:
        raise OSError(f"attempt {attempt}")
    return attempt


@ray.remote(max_calls=1)
def once():
    return os.getpid()


@ray.remote(max_retries=0)
def odd():
    raise Odd


@ray.remote(max_retries=0)
def interrupted(started, reached):
    ray.get(started.set.remote())
    reach(reached)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.01)


@ray.remote(max_retries=0)
def killed(started, reached):
    ray.get(started.set.remote())
    reach(reached)
    harness.until_killed()


@ray.remote(max_retries=0)
def terminated():
    os.kill(os.getpid(), signal.SIGTERM)
    harness.until_killed()


@ray.remote(num_cpus=0)
class Signal:
    def __init__(self):
        self.event = asyncio.Event()
        self.value = None

    async def set(self, value=None):
        self.value = value
        self.event.set()

    async def wait(self):
        await self.event.wait()
        return self.value


@ray.remote(num_cpus=0)
class Actor:
    def fails(self):
        raise KeyError("method")

    def exits(self):
        ray.actor.exit_actor()

    def sys_exits(self):
        sys.exit(0)


@ray.remote(num_cpus=0)
class AsyncActor:
    async def fails(self):
        raise KeyError("async method")

    async def waits(self, started):
        await started.set.remote()
        await asyncio.sleep(60)

    async def exits(self):
        ray.actor.exit_actor()


@ray.remote(num_cpus=0)
class FailsInit:
    def __init__(self):
        raise RuntimeError("no actor")

    def never(self):
        pass


def reach(path):
    """Let the driver know that no call is on its way any more. That takes no further call."""
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".new", path)


def await_reached(path):
    """The process that has reached its place."""
    deadline = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with open(path) as file:
        return int(file.read())


@ray.remote(max_restarts=1)
class Restarts:
    def dies(self):
        os._exit(1)


def outcome(call):
    try:
        return call()
    except RayError as error:
        return type(error).__name__
    except TypeError as error:
        return str(error)


def until_restarted(actor):
    """Once the GCS says so, the worker has told it that the second ``__init__`` is done."""
    deadline = time.monotonic() + 60
    while True:
        known = state.actors(actor._actor_id.hex())
        if (int(known["NumRestarts"]), known["State"]) == (1, "ALIVE"):
            return
        assert time.monotonic() < deadline, known
        time.sleep(0.02)


def main():
    folder = sys.argv[1]
    actor, asynchronous = Actor.remote(), AsyncActor.remote()
    results = [
        outcome(lambda: ray.get(fails.remote(1))),
        outcome(lambda: ray.get(passes_on.remote())),
        outcome(lambda: ray.get(chained.remote())),
        outcome(lambda: ray.get(retried.remote(folder))),
        outcome(lambda: len({ray.get(once.remote()), ray.get(once.remote())})),
        outcome(lambda: ray.get(odd.remote())),
        outcome(lambda: ray.get(actor.fails.remote())),
        outcome(lambda: ray.get(asynchronous.fails.remote())),
        outcome(lambda: ray.get((_actor := FailsInit.remote()).never.remote())),
        outcome(lambda: ray.get(terminated.remote())),
        outcome(lambda: fails.remote()),
        outcome(lambda: fails.remote(1, unknown=2)),
        outcome(lambda: actor.fails.remote(1)),
        outcome(lambda: ray.get(actor.exits.remote())),
        outcome(lambda: ray.get((_actor := Actor.remote()).sys_exits.remote())),
        outcome(lambda: ray.get((_actor := AsyncActor.remote()).exits.remote())),
    ]
    started = Signal.remote()
    ref = asynchronous.waits.remote(started)
    ray.get(started.wait.remote())
    ray.cancel(ref)
    results.append(outcome(lambda: ray.get(ref)))

    reached = os.path.join(folder, "interrupted")
    ref = interrupted.remote(started, reached)
    await_reached(reached)
    ray.cancel(ref)
    results.append(outcome(lambda: ray.get(ref)))

    reached = os.path.join(folder, "killed")
    ref = killed.remote(started, reached)
    os.kill(await_reached(reached), signal.SIGKILL)
    results.append(outcome(lambda: ray.get(ref)))

    actor = Restarts.remote()
    results.append(outcome(lambda: ray.get(actor.dies.remote())).replace("Unavailable", "Died"))  # whichever is first
    until_restarted(actor)
    return results


if __name__ == "__main__":
    harness.run(main)
