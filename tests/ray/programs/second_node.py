"""Calls tasks and actors on the node that has the resource ``second``, in every way that contexts travel."""

import harness
import ray
from opentelemetry import trace


def on_second(number):
    return {"num_cpus": 0, "resources": {"second": number}}


@ray.remote
def nothing():
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Actor:
    def nothing(self):
        return [ray.get_runtime_context().get_node_id(), ray.get(nothing.remote())]

    def keyword(self, *, k):
        with trace.get_tracer("second").start_as_current_span("in second"):
            return k


def main():
    here = ray.get(nothing.options(num_cpus=0, resources={"first": 0.1}).remote())
    actor = Actor.options(**on_second(0.1)).remote()
    there = ray.get(nothing.options(**on_second(0.1)).remote())
    node, _ = ray.get(actor.nothing.remote())
    return [there == node != here, ray.get(actor.keyword.remote(k=2))]


if __name__ == "__main__":
    harness.run(main)
