"""Makes spans with the API, in a driver and in tasks."""

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("traced")


@ray.remote
def double(a):
    with tracer.start_as_current_span("in task"):
        return 2 * a


def main():
    with tracer.start_as_current_span("in driver"):
        return ray.get([double.remote(i) for i in range(3)])


if __name__ == "__main__":
    harness.run(main)
