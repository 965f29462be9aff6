"""Generators: tasks and methods, sync and async, of every kind of returns, drained, left early, failing."""

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("generators")


@ray.remote
def one(a):
    return a


@ray.remote
def streaming(n):
    for i in range(n):
        with tracer.start_as_current_span(f"item {i}"):
            yield ray.get(one.remote(i))


@ray.remote
def empty():
    yield from ()


@ray.remote(num_returns=2)
def fixed():
    yield 1
    yield 2


@ray.remote(num_returns="dynamic")
def dynamic(n):
    yield from range(n)


@ray.remote(max_retries=0)
def failing():
    yield 1
    raise ValueError("in the middle")


@ray.remote(_generator_backpressure_num_objects=1)
def endless():
    i = 0
    while True:
        yield i
        i += 1


@ray.remote
class Actor:
    def generate(self, n):
        for i in range(n):
            yield i

    def span_across_yields(self):
        with tracer.start_as_current_span("across"):
            trace.get_current_span().set_attribute("before", True)
            yield 1
            trace.get_current_span().set_attribute("after", True)
            yield 2

    def with_kwargs(self, **kwargs):
        yield sorted(kwargs)

    @staticmethod
    def static(n):
        return n


@ray.remote
class AsyncActor:
    async def generate(self, n):
        for i in range(n):
            with tracer.start_as_current_span(f"async item {i}"):
                yield await one.remote(i)

    async def span_across_yields(self):
        with tracer.start_as_current_span("across"):
            trace.get_current_span().set_attribute("before", True)
            yield 1
            trace.get_current_span().set_attribute("after", True)
            yield 2

    async def failing(self):
        yield 1
        raise KeyError("async")


def drain(refs):
    out = []
    try:
        for ref in refs:
            out.append(ray.get(ref))
    except Exception as error:
        out.append(type(error).__name__)
    return out


def main():
    actor, asynchronous = Actor.remote(), AsyncActor.remote()
    results = [
        drain(streaming.remote(2)),
        drain(empty.remote()),
        drain(fixed.remote()),
        drain(ray.get(dynamic.remote(3))),
        drain(failing.remote()),
        drain(streaming.options(num_returns="streaming").remote(1)),
        drain(actor.generate.remote(3)),
        drain(actor.span_across_yields.remote()),
        drain(actor.with_kwargs.remote(x=1)),
        ray.get(actor.static.remote(4)),
        drain(asynchronous.generate.remote(2)),
        drain(asynchronous.span_across_yields.remote()),
        drain(asynchronous.failing.remote()),
    ]
    left = endless.remote()
    results.append([ray.get(next(left)), ray.get(next(left))])
    ray.cancel(left)
    # Until it has ended: with the driver's end its worker is killed.
    drain(left)
    return results


if __name__ == "__main__":
    harness.run(main)
