"""Calls into processes in which tracing cannot be set up: they find modules in the folder that the argument names."""

import os
import sys

import harness
import ray


@ray.remote(num_cpus=0)
class Actor:
    def __init__(self, a=1):
        self.a = a

    def nothing(self):
        return "nothing"

    def one(self, a):
        return [self.a, a]

    def keyword(self, *, k):
        return k


@ray.remote
def some(a=1, *, k=2):
    return [a, k]


def main():
    path = os.pathsep.join([sys.argv[1], os.environ["PYTHONPATH"]])
    broken = {"runtime_env": {"env_vars": {"PYTHONPATH": path}}}
    actors = [Actor.options(**broken).remote(), Actor.options(**broken).remote(a=2)]
    results = [
        call for actor in actors for call in (actor.nothing.remote(), actor.one.remote(3), actor.keyword.remote(k=4))
    ]
    task = some.options(**broken)
    return ray.get([*results, task.remote(), task.remote(5), task.remote(k=6)])


if __name__ == "__main__":
    harness.run(main)
