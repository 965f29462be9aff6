"""Calls a hook at every time at which a program could, for each cluster that it connects to in turn."""

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import ray


def call(hook):
    module, _, name = hook.partition(":")
    getattr(importlib.import_module(module), name)()


@ray.remote(num_cpus=0)
def nothing(hook=None):
    if hook:
        call(hook)
    return "nothing"


@ray.remote(num_cpus=0)
class Actor:
    def do(self, hook):
        call(hook)
        return "done"

    def nothing(self):
        return "nothing"


def main():
    hook, *addresses = sys.argv[1:]
    results = []
    call(hook)
    for address in addresses:
        ray.init(address=address, log_to_driver=False)
        actor = Actor.remote()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(call, [hook] * 8))
        results.append(ray.get([nothing.remote(), actor.do.remote(hook), actor.nothing.remote(), nothing.remote(hook)]))
        ray.shutdown()
        call(hook)
    print("RESULT " + json.dumps(results))


if __name__ == "__main__":
    main()
