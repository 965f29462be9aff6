"""Goes untraced for a while, in the driver and in an actor, by calling what its arguments name."""

import importlib
import sys

import harness
import ray


def call(path):
    module, _, name = path.partition(":")
    getattr(importlib.import_module(module), name)()


@ray.remote(num_cpus=0)
class Actor:
    def nothing(self):
        return "nothing"

    def later(self):
        return "later"

    def one(self, a):
        return a

    def keyword(self, *, k):
        return k

    def do(self, path):
        call(path)


@ray.remote(num_cpus=0)
class AsyncActor:
    async def nothing(self):
        return "nothing"

    async def later(self, a=1):
        return a

    async def do(self, path):
        call(path)


@ray.remote
def nothing():
    return "nothing"


def calls(actor, other):
    mine = [actor.nothing.remote(), actor.one.remote(1), actor.keyword.remote(k=2)]
    return ray.get([*mine, other.nothing.remote(), nothing.remote()])


def main():
    setup, stop = sys.argv[1:]
    actor, other = Actor.remote(), AsyncActor.remote()
    results = [calls(actor, other)]
    ray.get([actor.do.remote(stop), other.do.remote(stop)])  # traced driver, untraced actors
    results += [calls(actor, other), ray.get([actor.later.remote(), other.later.remote(2)])]
    ray.get([actor.do.remote(setup), other.do.remote(setup)])
    results += [calls(actor, other)]
    call(stop)  # untraced driver, traced actors
    results += [calls(actor, other), calls(Actor.remote(), AsyncActor.remote())]
    call(setup)
    results += [calls(actor, other)]
    return results


if __name__ == "__main__":
    harness.run(main)
