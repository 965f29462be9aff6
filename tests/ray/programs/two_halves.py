"""Calls an actor for some time in two halves, between which it waits for the file that RTH_STEP names."""

import os
import time

import harness
import ray


@ray.remote(num_cpus=0)
class Actor:
    def add(self, a, b):
        return a + b


def half(actor):
    """How many calls were made in a second and a half, and at least 500."""
    calls = 0
    until = time.monotonic() + 1.5
    while calls < 500 or time.monotonic() < until:
        assert ray.get([actor.add.remote(number, 1) for number in range(100)]) == list(range(1, 101))
        calls += 100
        time.sleep(0.01)
    return calls


def main():
    actor = Actor.remote()
    step = os.environ["RTH_STEP"]
    calls = half(actor)
    with open(step + ".half", "w") as file:
        file.write(str(calls))
    os.rename(step + ".half", step + ".reached")
    while not os.path.exists(step):
        time.sleep(0.01)
    return calls + half(actor)


if __name__ == "__main__":
    harness.run(main)
