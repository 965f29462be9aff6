"""A small program for tests of what is around it."""

import harness
import ray


@ray.remote
def double(a):
    return 2 * a


@ray.remote
class Actor:
    def add(self, a, b):
        return a + b


def main():
    actor = Actor.remote()
    return [ray.get(double.remote(1)), ray.get(actor.add.remote(1, 2))]


if __name__ == "__main__":
    harness.run(main)
