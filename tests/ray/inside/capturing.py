"""Tests as a user would write them with ``ray_tracing_hooks.testing``."""

import asyncio
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


@ray.remote(num_cpus=0)
class Gate:
    def __init__(self):
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def wait_until_reached(self):
        await self.reached.wait()

    async def open(self):
        self.opened.set()

    async def pass_through(self):
        self.reached.set()
        await self.opened.wait()


@ray.remote
def held(gate):
    ray.get(gate.pass_through.remote())


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
    gate = Gate.remote()
    with capture(timeout=0.1) as running:
        call = held.remote(gate)
        ray.get(gate.wait_until_reached.remote())
    with capture() as ended, tracer.start_as_current_span("done"):
        ray.get([gate.open.remote(), call])
    return [
        captured.tree().splitlines(),
        span.attributes["value"],
        nothing.tree(),
        [len(again.roots), len(again.spans)],
        [line.strip() for line in running.tree().splitlines() if line.endswith("RUNNING")],
        [span.state for span in ended.named("done")],
    ]


if __name__ == "__main__":
    harness.run(main)
