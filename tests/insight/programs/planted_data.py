"""Pipelines of Ray Data, each with one fault planted in it, or none: what the summary has to find, and not to find.

Each runs as ``planted_data.py NAME``. Work is sleep (``spend``), so that they show the same on any machine.
"""

import importlib
import socket
import sys

import numpy as np
import pyarrow as pa
import ray
import ray.data
from planted import HOOK, spend, start_all

MIB = 1 << 20


@ray.remote(num_cpus=0.5)
def start_up(port):
    """Hold a worker until the driver lets go, with what it would import at its first block."""
    for name in ("pandas", "pyarrow.compute", "ray.data.block", "ray.data._internal.execution.streaming_executor"):
        importlib.import_module(name)
    with socket.create_connection(("127.0.0.1", port)) as held:
        held.recv(1)


def rows(blocks, of_each=100):
    return ray.data.range(blocks * of_each, override_num_blocks=blocks)


def prepare(batch):
    spend(120)
    return {"text": batch["id"] * 2}


def consume(dataset):
    return sum(len(next(iter(batch.values()))) for batch in dataset.iter_batches(batch_size=None))


class Embedder:
    """A model that is loaded once, in an actor, and embeds a batch at a time."""

    def __init__(self):
        spend(50)

    def __call__(self, batch):
        spend(300)
        return batch


def data_bottleneck():
    """What is prepared by tasks is embedded by a single actor, which is what all wait for."""
    return consume(rows(30).map_batches(prepare, num_cpus=1).map_batches(Embedder, concurrency=1, num_cpus=0))


def by_user(rows):
    spend(len(rows["id"]) / 2)
    return {"user": rows["user"][:1], "events": [len(rows["id"])]}


def with_user(batch):
    # One of the users has made half of all events.
    return {"id": batch["id"], "user": np.where(batch["id"] % 2 == 0, 0, batch["id"] % 97)}


def data_skewed():
    """Events are grouped by their user, one of whom has half of them."""
    events = rows(8, 1000).map_batches(with_user, num_cpus=1)
    return events.groupby("user", num_partitions=12).map_groups(by_user, num_cpus=1).sum("events")


def large(batch):
    spend(100)
    return pa.table({"image": [bytes(4 * MIB) for _ in batch["id"]]})


def classify(batch):
    spend(150)
    return {"label": [len(image) for image in batch["image"]]}


def data_backpressure():
    """Images are larger than the memory that the pipeline may use, so most of the processors have nothing to do."""
    limits = ray.data.ExecutionResources.for_limits(object_store_memory=48 * MIB)
    ray.data.DataContext.get_current().execution_options.resource_limits = limits
    images = rows(40, 4).map_batches(large, num_cpus=1, batch_size=None)
    return consume(images.map_batches(classify, num_cpus=0.5, batch_size=None))


def data_spill():
    """All of the images are kept before any is used: four times what the object store holds."""
    images = rows(40, 2).map_batches(large, num_cpus=1, batch_size=None).materialize()
    return consume(images.map_batches(classify, num_cpus=0.5, batch_size=None))


STORES = {"data_backpressure": 400 * MIB, "data_spill": 90 * MIB}
"""Bytes of the object store, if not Ray's default."""


def main():
    name = sys.argv[1]
    store = {"object_store_memory": STORES[name]} if name in STORES else {}
    ray.init("local", num_cpus=4, include_dashboard=False, _tracing_startup_hook=HOOK, **store)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Ray Data has actors of its own.
    start_all([start_up] * 8)
    print(name, globals()[name]())
    ray.shutdown()


if __name__ == "__main__":
    main()
