"""A detached actor is in the middle of a method when its driver ends. It goes on when another driver says so."""

import sys
import threading

import harness
import ray
from opentelemetry import trace


@ray.remote
def leaf():
    with trace.get_tracer("user").start_as_current_span("in leaf"):
        return ray.get_runtime_context().get_worker_id()


@ray.remote(num_cpus=0, max_concurrency=3)
class Stays:
    def __init__(self):
        self.began, self.may_go_on, self.is_over = threading.Event(), threading.Event(), threading.Event()
        self.found = None

    def work(self):
        self.began.set()
        self.may_go_on.wait()
        trace_id = trace.get_current_span().get_span_context().trace_id
        self.found = [f"{trace_id:032x}", ray.get(leaf.remote())]
        self.is_over.set()

    def has_begun(self):
        self.began.wait()

    def go_on(self):
        self.may_go_on.set()
        self.is_over.wait()
        return self.found


def leave():
    actor = Stays.options(name="stays", lifetime="detached").remote()
    actor.work.remote()
    ray.get(actor.has_begun.remote())


def come():
    actor = ray.get_actor("stays")
    found = ray.get(actor.go_on.remote())
    ray.kill(actor)
    return found


if __name__ == "__main__":
    harness.run(leave if sys.argv[1] == "leave" else come, namespace="left behind")
