"""Tests as a user would write them with ``ray_tracing_hooks.testing``."""

import contextlib

import harness
import ray
from opentelemetry import trace

from ray_tracing_hooks.testing import capture

tracer = trace.get_tracer("capturing")


@ray.remote
def double(value):
    with tracer.start_as_current_span("multiply") as span:
        span.set_attribute("value", value)
        return 2 * value


@ray.remote
def outer(value):
    return ray.get(double.remote(value))


@ray.remote
def fails():
    raise KeyError("no such key")


def main():
    ray.get(double.remote(0))
    with capture() as captured:
        ray.get(outer.remote(1))
        with contextlib.suppress(KeyError):
            ray.get(fails.options(max_retries=0).remote())
    (span,) = captured.named("multiply")
    with capture() as nothing:
        pass
    with capture() as again:
        ray.get([double.remote(value) for value in range(3)])
    with capture(timeout=0.1) as running, tracer.start_as_current_span("done"):
        pass
    return [
        captured.tree().splitlines(),
        span.attributes["value"],
        nothing.tree(),
        [len(again.roots), len(again.spans)],
        running.tree(),
    ]


if __name__ == "__main__":
    harness.run(main)
