"""Calls an actor for some time in two halves, between which it waits for the file that RTH_STEP names."""

import os
import time

import harness
import ray


@ray.remote(num_cpus=0)
class Actor:
    def add(self, a, b):
        return a + b


def half(actor, *, at_once, pause):
    """How many calls were made in a second and a half, and at least five times as many as are made at once."""
    calls = 0
    until = time.monotonic() + 1.5
    while calls < 5 * at_once or time.monotonic() < until:
        made = ray.get([actor.add.remote(number, 1) for number in range(at_once)])
        assert made == list(range(1, at_once + 1))
        calls += at_once
        time.sleep(pause)
    return calls


def main():
    actor = Actor.remote()
    step = os.environ["RTH_STEP"]
    calls = half(actor, at_once=100, pause=0.01)
    with open(step + ".half", "w") as file:
        file.write(str(calls))
    os.rename(step + ".half", step + ".reached")
    while not os.path.exists(step):
        time.sleep(0.01)
    # So few that a small disk takes them all, however long it is until they are delivered.
    return calls + half(actor, at_once=10, pause=0.1)


if __name__ == "__main__":
    harness.run(main)
