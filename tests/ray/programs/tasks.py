"""Tasks: nested, with options, with every kind of arguments and returns, failing, retried, with custom spans."""

import harness
import library
import numpy as np
import ray
from opentelemetry import trace

tracer = trace.get_tracer("tasks")


@ray.remote
def add(a, b=1, *rest, c=0, **more):
    return a + b + sum(rest) + c + sum(more.values())


@ray.remote
def no_arguments():
    return "none"


@ray.remote
def nested(depth):
    return 1 + ray.get(nested.remote(depth - 1)) if depth else 0


@ray.remote(num_returns=3)
def three():
    return 1, 2, 3


@ray.remote(num_returns=0)
def nothing():
    return None


@ray.remote
def spans():
    with tracer.start_as_current_span("outer", attributes={"size": 3}):
        value = ray.get(add.remote(1))
        with tracer.start_as_current_span("inner"):
            return value + ray.get(add.remote(2))


@ray.remote
def current_span():
    span = trace.get_current_span()
    span.set_attribute("mine", "yes")
    span.set_attributes({"n": 1, "list": [1, 2]})
    span.add_event("step", {"at": 1})
    span.add_link(trace.SpanContext(1, 2, is_remote=True))
    return isinstance(span, trace.Span)


@ray.remote
def renamed():
    span = trace.get_current_span()
    span.update_name("a better name")
    span.set_status(trace.StatusCode.OK)
    try:
        raise ValueError("caught")
    except ValueError as error:
        span.record_exception(error)


@ray.remote
def mean(array):
    return float(array.mean())


@ray.remote
def first(refs):
    return ray.get(refs[0])


def plain(a):
    return a


def main():
    results = [
        ray.get(add.remote(1)),
        ray.get(add.remote(1, 2, 3, c=4, d=5)),
        ray.get(add.options(name="named", num_cpus=0).remote(b=5, a=1)),
        ray.get(add._remote(args=[1])),
        ray.get(add._remote(args=(1,), kwargs={"b": 3}, num_cpus=0)),
        ray.get(no_arguments.remote()),
        ray.get(nested.remote(2)),
        ray.get(three.remote()),
        nothing.remote(),
        ray.get(spans.remote()),
        ray.get(current_span.remote()),
        ray.get(renamed.remote()),
        ray.get(mean.remote(np.ones(500_000))),
        ray.get(first.remote([ray.put("put")])),
        ray.get(add.remote(ray.put(4), add.remote(5))),
        ray.get(ray.remote(plain).remote("plain")),
        ray.get(ray.remote(lambda: "lambda").remote()),
        ray.get(library.in_library.remote(3)),
    ]
    ray.get(no_arguments.remote())  # the call without returns has been executed before this one
    return results


if __name__ == "__main__":
    harness.run(main)
