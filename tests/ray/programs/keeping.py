"""Calls from one node to another, each call of the driver in a trace of its own where there is no root span: many that
are quick and succeed, and a few chains that fail or are slow. Returns how each chain ended.

A chain whose trace is sampled is tried again, since it would be recorded as a whole.
"""

import os
import signal
import time

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("keeping")
SLOW, AGAIN = 4, "again"


@ray.remote(num_cpus=0, resources={"second": 0.5})
def leaf(what):
    with tracer.start_as_current_span("in leaf", attributes={"what": what}):
        if what == "slow":
            time.sleep(SLOW)
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what in {"fail", "caught"}:
            raise ValueError(what)
        return is_sampled()


@ray.remote(num_cpus=0, resources={"first": 0.5})
def branch(what):
    calls = [leaf.remote("good"), leaf.options(max_retries=0, name=f"a {what} leaf").remote(what)]
    try:
        return ray.get(calls)
    except ValueError:
        if what != "caught":
            raise
        return [False]


@ray.remote(num_cpus=0, resources={"first": 0.01})
class Actor:
    def call(self, what):
        if is_sampled():
            return AGAIN
        return ray.get(branch.remote(what))


def is_sampled():
    return trace.get_current_span().get_span_context().trace_flags.sampled


def ends(actor, what):
    try:
        while (result := ray.get(actor.call.remote(what))) == AGAIN:
            pass
        return sum(result)
    except ray.exceptions.RayError as error:
        return type(error).__name__


def main():
    # From the leaves up, so that no call waits for a worker that starts: that would be slow.
    ray.get([leaf.remote("good") for _ in range(400)])
    ray.get(branch.remote("good"))
    actor = Actor.remote()
    ends(actor, "good")
    return [ends(actor, what) for what in ("fail", "fail", "fail", "slow", "slow", "caught", "die")]


if __name__ == "__main__":
    harness.run(main)
