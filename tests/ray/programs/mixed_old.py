"""Leaves two actors behind."""

import harness
import ray


@ray.remote(num_cpus=0)
class Old:
    def nothing(self):
        return "nothing"

    def optional(self, a=1):
        return a

    def one(self, a):
        return a

    def keyword(self, *, k):
        return k

    def every(self, *args, **kwargs):
        return [args, kwargs]

    def items(self, n):
        for i in range(n):
            yield i

    @staticmethod
    def static(a):
        return a

    def call(self, handle):
        return ray.get([handle.nothing.remote(), handle.one.remote(1)])


@ray.remote(num_cpus=0)
class OldAsync:
    async def nothing(self):
        return "nothing"

    async def one(self, a, **kwargs):
        return [a, kwargs]

    async def items(self, n):
        for i in range(n):
            yield i


def main():
    kept = {"lifetime": "detached", "namespace": "mixed"}
    old, old_async = Old.options(name="old", **kept).remote(), OldAsync.options(name="async", **kept).remote()
    return ray.get([old.nothing.remote(), old_async.nothing.remote()])


if __name__ == "__main__":
    harness.run(main)
