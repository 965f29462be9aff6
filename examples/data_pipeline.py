"""A pipeline of Ray Data with one operator that holds all others back.

Run it, then look for the reason:

    pip install 'ray[data]' pandas
    python examples/data_pipeline.py
    ray-tracing-hooks summary
    ray-tracing-hooks view --open

Orders are read and priced by tasks. A model scores them in an actor, since it has to be loaded. You see that all blocks
wait for this one actor. Run it with ``mended`` for three actors.
"""

import sys
import time

import ray
from opentelemetry import trace

tracer = trace.get_tracer("orders")


def price(batch):
    time.sleep(0.05)
    return {**batch, "price": batch["id"] * 0.5}


class Score:
    def __init__(self):
        time.sleep(0.5)  # stands for loading a model

    def __call__(self, batch):
        with tracer.start_as_current_span("infer") as span:
            span.set_attribute("rows", len(batch["id"]))
            time.sleep(0.2)
            return {**batch, "score": batch["price"] % 7}


if __name__ == "__main__":
    ray.init(num_cpus=4, _tracing_startup_hook="ray_tracing_hooks.local:setup")
    actors = 3 if "mended" in sys.argv else 1
    orders = ray.data.range(24_000, override_num_blocks=24).map_batches(price)
    scored = orders.map_batches(Score, concurrency=actors, num_cpus=0.5)
    print("the best score:", max(batch["score"].max() for batch in scored.iter_batches(batch_size=2000)))
