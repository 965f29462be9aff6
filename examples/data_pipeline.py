"""A pipeline of Ray Data with one operator that holds all others back.

Run it, in an environment with Ray Data (``pip install 'ray[data]'``), then look at what it did:

    python examples/data_pipeline.py
    ray-tracing-hooks tree
    ray-tracing-hooks summary
    ray-tracing-hooks view --open

Orders are read and priced by tasks, and scored by a model that has to be loaded, so that it runs in actors. There is
only one of them, and all blocks wait for it: ``summary`` says so, and ``concurrency=3`` below would change it. Only the
hook in ``ray.init`` and the program's own span are about tracing.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from opentelemetry import trace
from ray import data

tracer = trace.get_tracer("orders")

Batch = dict[str, Any]


def price(batch: Batch) -> Batch:
    time.sleep(0.05)
    return {**batch, "price": batch["id"] * 0.5}


class Score:
    def __init__(self) -> None:
        time.sleep(0.5)  # stands for loading a model

    def __call__(self, batch: Batch) -> Batch:
        with tracer.start_as_current_span("infer") as span:
            span.set_attribute("rows", len(batch["id"]))
            time.sleep(0.2)
            return {**batch, "score": batch["price"] % 7}


def main() -> None:
    # "local": a cluster of its own, whatever else runs on this machine.
    ray.init(
        "local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        _tracing_startup_hook="ray_tracing_hooks.local:setup",
    )
    data.DataContext.get_current().enable_progress_bars = False
    orders = data.range(24_000, override_num_blocks=24).map_batches(price, num_cpus=1)
    scored = orders.map_batches(Score, concurrency=1, num_cpus=0.5)
    best = 0.0
    for batch in scored.iter_batches(batch_size=2000):
        best = max(best, batch["score"].max())
    print(f"the best score is {best}")
    ray.shutdown()


if __name__ == "__main__":
    main()
