"""A task, an actor and a span of your own, in one trace.

Run it, then look at its trace:

    python examples/quickstart.py
    ray-tracing-hooks tree

You see each call with its time in the queue, and ``split`` below the task that it belongs to.
"""

import ray
from opentelemetry import trace

tracer = trace.get_tracer(__name__)

LINES = ["where does the time go", "into the queue", "or into the work"]


@ray.remote
class Total:
    def __init__(self):
        self.words = 0

    def add(self, count):
        self.words += count
        return self.words


@ray.remote
def count(line, total):
    with tracer.start_as_current_span("split") as span:
        words = line.split()
        span.set_attribute("words", len(words))
    return ray.get(total.add.remote(len(words)))


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    total = Total.remote()
    print("words:", max(ray.get([count.remote(line, total) for line in LINES])))
