"""A program whose spans have everything that a span can have, for comparing what backends receive."""

import harness
import ray
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, StatusCode

tracer = trace.get_tracer("everything", "1.2", attributes={"scope": 1})


@ray.remote
def rich(number):
    current = trace.get_current_span()
    current.set_attribute("number", number)
    attributes = {
        "text": "tex\nt é 漢",
        "empty": "",
        "int": 2**40,
        "negative": -5,
        "double": 1.5,
        "true": True,
        "false": False,
        "bytes": b"\x00\xff",
        "texts": ["a", "b"],
        "ints": [1, 2],
    }
    link = Link(current.get_span_context(), {"why": "a link"})
    with tracer.start_as_current_span("rich", kind=SpanKind.CLIENT, attributes=attributes, links=[link]) as span:
        span.add_event("something", {"x": 1, "y": "two"})
        if number % 2:
            span.set_status(StatusCode.ERROR, "bad thing")
    return number


@ray.remote(max_retries=0)
def failing():
    raise ValueError("as expected")


@ray.remote
class Actor:
    def generate(self, count):
        for number in range(count):
            yield number

    async def wait(self):
        return 1


def main():
    results = ray.get([rich.remote(number) for number in range(20)])
    try:
        ray.get(failing.remote())
    except ValueError as error:
        results.append(str(error).splitlines()[-1])
    actor = Actor.remote()
    results += [ray.get(item) for item in actor.generate.options(num_returns="streaming").remote(3)]
    return [*results, ray.get(actor.wait.remote())]


if __name__ == "__main__":
    harness.run(main)
