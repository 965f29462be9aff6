"""A loop of calls, few of which are to make spans, in a driver and in an actor; returns how many calls were made."""

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("limited")
IN_DRIVER, IN_ACTOR = 20, 10


@ray.remote
def below():
    return 1


@ray.remote
def leaf():
    return ray.get(below.remote())


@ray.remote
class Actor:
    def loop(self):
        with tracer.start_as_current_span("inner"):
            return sum(ray.get(leaf.remote()) for _ in range(IN_ACTOR))

    def nothing(self):
        return 0


def main():
    actor = Actor.remote()
    calls = sum(ray.get(leaf.remote()) for _ in range(IN_DRIVER))
    return calls + ray.get(actor.loop.remote()) + sum(ray.get([actor.nothing.remote() for _ in range(5)]))


if __name__ == "__main__":
    variables = {"RAY_TRACING_RATE_LIMIT": "__main__.leaf=0.001,Actor.nothing=0.001", "RAY_TRACING_ARGUMENTS": "1"}
    harness.run(main, runtime_env={"env_vars": variables})
