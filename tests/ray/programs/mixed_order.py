"""Connects to one cluster after the other in one process, and tells of each whether there is a root span."""

import json
import os
import sys

import lean
import ray
from opentelemetry import trace


@ray.remote(num_cpus=0)
class Actor:
    def __init__(self, a=1):
        self.a = a

    def nothing(self):
        return "nothing"

    def one(self, a, *, k=2):
        return [self.a, a, k]


@ray.remote
def nothing():
    return trace.get_current_span().get_span_context().is_valid


def main():
    results = []
    for address in sys.argv[1:]:
        options = {"num_cpus": 2} if address == "local" else {}
        connect = lean.start if address == "local" else ray.init
        connect(address=address, log_to_driver=False, _tracing_startup_hook=os.environ.get("RTH_HOOK"), **options)
        first, second = Actor.remote(), Actor.remote(a=2)
        calls = [first.nothing.remote(), first.one.remote(3), second.one.remote(a=4, k=5)]
        is_traced = trace.get_current_span().get_span_context().is_valid
        results.append([is_traced, ray.get(nothing.remote()), *ray.get(calls)])
        ray.shutdown()
    print("RESULT " + json.dumps(results))


if __name__ == "__main__":
    main()
