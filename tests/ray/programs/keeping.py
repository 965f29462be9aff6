"""Calls from one node to another of which some fail, some are slow, and some do neither, each call of the driver in a
trace of its own where there is no root span. Returns how each of them ended.

One leaf says by the file ``began`` in the folder of the first argument that it runs, and fails when there is ``go``.
"""

import os
import signal
import sys
import time

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("keeping")
SLOW = 3


@ray.remote(num_cpus=0, resources={"second": 0.01})
def leaf(what, folder=""):
    with tracer.start_as_current_span("in leaf", attributes={"what": what}) as span:
        if what == "slow":
            time.sleep(SLOW)
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "late":
            open(os.path.join(folder, "began"), "w").close()
            while not os.path.exists(os.path.join(folder, "go")):
                time.sleep(0.05)
        if what in {"fail", "caught", "late"}:
            raise ValueError(what)
        # What anybody would be told who is called from here.
        return span.get_span_context().trace_flags.sampled


@ray.remote(num_cpus=0, resources={"first": 0.01})
def branch(what, folder):
    calls = [leaf.remote("good"), leaf.options(max_retries=0).remote(what, folder)]
    try:
        return ray.get(calls)
    except ValueError:
        if what != "caught":
            raise
        return [0]


@ray.remote(num_cpus=0, resources={"first": 0.01})
class Actor:
    def __init__(self, folder):
        self.folder = folder

    def call(self, what):
        trace.get_current_span().set_attribute("what", what)
        return ray.get(branch.remote(what, self.folder))


def ends(actor, what):
    try:
        return sum(ray.get(actor.call.remote(what)))
    except ray.exceptions.RayError as error:
        return type(error).__name__


def main():
    actor = Actor.remote(sys.argv[1])
    for _ in range(2):
        ends(actor, "warm")
    return {what: ends(actor, what) for what in ("good", "fail", "slow", "caught", "late", "die")}


if __name__ == "__main__":
    harness.run(main)
