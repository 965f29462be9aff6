"""A thousand calls that are each the root of a trace, through two actors."""

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("many_roots")


@ray.remote(num_cpus=0)
class Inner:
    def call(self, number):
        with tracer.start_as_current_span("deep"):
            return number


@ray.remote(num_cpus=0)
class Outer:
    def __init__(self, inner):
        self.inner = inner

    def call(self, number):
        with tracer.start_as_current_span("around"):
            return ray.get(self.inner.call.remote(number))


def main():
    outer = Outer.remote(Inner.remote())
    return sum(ray.get([outer.call.remote(number) for number in range(1000)]))


if __name__ == "__main__":
    harness.run(main)
