"""Calls actors that another program has left, and new ones, in every way that Ray passes arguments.

Workers find modules in the folder ``MIXED_PATH`` first. With ``MIXED_ALONE`` no actors have been left.
"""

import importlib
import os
import sys

import harness
import ray


@ray.remote(num_cpus=0)
class New:
    def __init__(self, a=1):
        self.a = a

    def nothing(self):
        return "nothing"

    def one(self, a):
        return [self.a, a]

    def call_old(self):
        old = ray.get_actor("old", namespace="mixed")
        return ray.get([old.nothing.remote(), old.one.remote(1), old.every.remote(1, k="k")])


@ray.remote
def nothing():
    return "nothing"


@ray.remote
def some(a=1, *rest, k=2):
    return [a, rest, k]


def main():
    for hook in sys.argv[1:]:
        module, _, name = hook.partition(":")
        getattr(importlib.import_module(module), name)()
    new = New.remote()
    large = b"x" * 200_000
    by_position, by_name = New.remote(2), New.remote(a=3)
    results = [new.nothing.remote(), by_position.one.remote(3), by_name.one.remote(a=4)]
    results += [nothing.remote(), some.remote(), some.remote(5), some.remote(k=6), some.remote(7, "8", k=9)]
    results += [some.remote(ray.put(1), k=ray.put(2))]
    if not os.environ.get("MIXED_ALONE"):
        old, old_async = (ray.get_actor(name, namespace="mixed") for name in ("old", "async"))
        results += [old.nothing.remote(), old.optional.remote(), old.optional.remote(5), old.one.remote(ray.put(6))]
        results += [old.keyword.remote(k=7), old.every.remote(), old.every.remote("1", a=2), old.every.remote(a="2")]
        results += [old.every.remote(a=1, b=2), old.static.remote(8)]
        # One after the other: each waits for the other actor.
        results += [ray.put(ray.get(old.call.remote(new))), ray.put(ray.get(new.call_old.remote()))]
        results += [old_async.nothing.remote(), old_async.one.remote(1, k=2), old_async.one.remote(k=2, a=1)]
        results += [ray.put(large == ray.get(old.one.remote(large)))]
        results += [next(old.items.remote(2)), next(old_async.items.remote(n=2))]
    return ray.get(results)


if __name__ == "__main__":
    path = os.environ.get("MIXED_PATH")
    variables = {"PYTHONPATH": os.pathsep.join([path, os.environ["PYTHONPATH"]])} if path else {}
    harness.run(main, **({"runtime_env": {"env_vars": variables}} if path else {}))
