"""Pipelines of Ray Data."""

from corpus import DRIVER, healthy, planted, spend
from corpus.running import main

MIB = 1 << 20
WITH = {"library": "data", "parts": "+get,wait"}


def rows(blocks, of_each=50, memory=0):
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    if memory:
        limits = ray.data.ExecutionResources.for_limits(cpu=5, object_store_memory=memory)
        context.execution_options.resource_limits = limits
    else:
        # Ray Data has actors of its own: workers for these have started, too.
        context.execution_options.exclude_resources = ray.data.ExecutionResources(cpu=4)
    return ray.data.range(blocks * of_each, override_num_blocks=blocks)


def consume(dataset):
    return sum(len(next(iter(batch.values()))) for batch in dataset.iter_batches(batch_size=None))


def taking(seconds, count=None):
    """A function of batches that takes so long."""

    def apply(batch):
        spend(seconds)
        return batch

    apply.__name__ = count or "apply"
    return apply


class Embedder:
    def __init__(self, seconds, loading=0.0):
        spend(loading)
        self.seconds = seconds

    def __call__(self, batch):
        spend(self.seconds)
        return batch


@planted("bottleneck-operator", says=("Embedder",), beside=("worker-start",), cluster={"num_cpus": 9}, **WITH)
def one_slow_actor(run):
    """One actor embeds all batches, three times slower than tasks prepare them."""
    prepared = rows(run.times(16)).map_batches(taking(0.1, "prepare"), num_cpus=2)
    slow = run.seconds(0.3, 0.01)
    with run.costing(less=0.5):
        consume(prepared.map_batches(Embedder, fn_constructor_args=(slow,), concurrency=1, num_cpus=0))


@planted("bottleneck-operator", says=("transcode",), beside=("worker-start",), cluster={"num_cpus": 9}, **WITH)
def slow_operator(run):
    """One of two stages takes eight times as long, and may run two tasks at a time."""
    read = rows(run.times(16)).map_batches(taking(0.05, "decode"), num_cpus=1)
    slow = taking(run.seconds(0.4, 0.02), "transcode")
    with run.costing(less=0.5):
        consume(read.map_batches(slow, num_cpus=1.5, concurrency=2))


@planted("slow-actor-start", says=("Embedder",), beside=("worker-start",), cluster={"num_cpus": 9}, **WITH)
def slow_start(run):
    """The actors of a pool load for four seconds, and then take little time for their batches."""
    prepared = rows(12).map_batches(taking(0.05, "prepare"), num_cpus=1)
    arguments = (0.02, run.seconds(4, 0.05))
    run.cost(arguments[1])
    consume(prepared.map_batches(Embedder, fn_constructor_args=arguments, concurrency=2, num_cpus=0))


def taking_for_each_row(seconds):
    def infer(batch):
        spend(len(batch["id"]) * seconds)
        return batch

    return infer


@planted(("skewed-blocks", "straggler"), says=("infer",), beside=("worker-start",), cluster={"num_cpus": 9}, **WITH)
def skewed_blocks(run):
    """One block has as many rows as twenty of the others."""
    import ray.data

    pace = run.seconds(0.004)
    many, large = rows(10), 50 if run.mended else 1000
    run.cost((large - 50) * pace)
    one = ray.data.range(large, override_num_blocks=1)
    consume(one.union(many).map_batches(taking_for_each_row(pace), batch_size=None, num_cpus=1))


@planted(
    "driver-code",
    beside=("worker-start",),
    cluster={"num_cpus": 9},
    **WITH,
)
def slow_consumer(run):
    """The loop of the driver takes a quarter of a second for each batch, which the pipeline has ready long before."""
    for _ in rows(run.times(16)).map_batches(taking(0.02, "prepare"), num_cpus=1).iter_batches(batch_size=None):
        run.cost(spend(run.seconds(0.25, 0.01)))


@planted(
    "tiny-tasks",
    beside=("worker-start", "bottleneck-operator"),
    cluster={"num_cpus": 9},
    **WITH,
)
def tiny_blocks(run):
    """A hundred blocks of ten rows that take no time."""
    with run.costing():
        consume(rows(4 if run.mended else run.times(100), 250 if run.mended else 10).map_batches(lambda batch: batch))


@planted(on_path="MapBatches(infer)", beside=("worker-start",), cluster={"num_cpus": 9}, **WITH)
def small_batches(run):
    """Batches of two rows, each with an overhead of twenty milliseconds."""
    with run.costing(less=0.5):
        consume(rows(8).map_batches(taking(0.02, "infer"), batch_size=50 if run.mended else 2, num_cpus=4))


@planted(
    "backpressure",
    beside=("worker-start", "bottleneck-operator"),
    cluster={"num_cpus": 9, "object_store_memory": 400 * MIB},
    **WITH,
)
def memory_holds_back(run):
    """Images are larger than the memory that the pipeline may use, so most of the processors have nothing to do."""
    import pyarrow as pa

    def large(batch):
        spend(0.1)
        return pa.table({"image": [bytes(4 * MIB) for _ in batch["id"]]})

    def label(batch):
        spend(0.15)
        return {"label": [len(image) for image in batch["image"]]}

    with run.costing(less=2.0):
        images = rows(24, 4, 0 if run.mended else 48 * MIB).map_batches(large, num_cpus=1, batch_size=None)
        consume(images.map_batches(label, num_cpus=0.5, batch_size=None))


@planted(
    "bottleneck-operator",
    "driver-code",
    beside=("worker-start",),
    cluster={"num_cpus": 9},
    **WITH,
)
def slow_operator_then_consumer(run):
    """A dataset that one actor holds up is materialized; then the driver works on each of its batches for long."""
    slow = run.seconds(0.25, 0.01)
    with run.costing(less=0.3):
        made = rows(12).map_batches(Embedder, fn_constructor_args=(slow,), concurrency=1, num_cpus=0).materialize()
    for _ in made.iter_batches(batch_size=None):
        run.cost(spend(run.seconds(0.25, 0.01)), 1)


@planted(
    on_path=DRIVER,
    at_most={"dataset": 0.2},
    beside=("worker-start", "bottleneck-operator"),
    cluster={"num_cpus": 9},
    **WITH,
)
def dataset_in_the_background(run):
    """A thread of the driver goes through a dataset that nobody waits for, while the driver works for five seconds."""
    import threading

    dataset = rows(8).map_batches(taking(0.3, "prepare"), num_cpus=4)
    if not run.mended:
        threading.Thread(target=consume, args=(dataset,), daemon=True).start()
    run.cost(spend(run.seconds(5, 0.3)))


@healthy(beside=("bottleneck-operator",), cluster={"num_cpus": 9}, **WITH)
def balanced_pipeline(run):
    """Two stages that keep all processors busy."""
    prepared = rows(16).map_batches(taking(0.3, "prepare"), num_cpus=2)
    consume(prepared.map_batches(taking(0.35, "enrich"), num_cpus=2.0, batch_size=None))


@healthy(cluster={"num_cpus": 9}, **WITH)
def overlapped_consumer(run):
    """The pipeline makes batches as fast as the driver uses them."""
    for _ in rows(20).map_batches(taking(0.4, "prepare"), num_cpus=2).iter_batches(batch_size=None, prefetch_batches=4):
        spend(0.18)


@planted("few-blocks", says=("1 task",), beside=("worker-start",), cluster={"num_cpus": 9}, **WITH)
def one_block(run):
    """All rows are in one block, so that one task transforms sixteen batches."""
    blocks, of_each = (16, 25) if run.mended else (1, 400)
    with run.costing(less=run.seconds(1)):
        consume(rows(blocks, of_each).map_batches(taking(run.seconds(0.25), "transform"), batch_size=25))


@planted("recomputed-dataset", says=("prepare",), beside=("worker-start",), cluster={"num_cpus": 9}, **WITH)
def computed_for_each_epoch(run):
    """Four epochs iterate over the same dataset, which is computed anew for each."""
    dataset = rows(10).map_batches(taking(run.seconds(0.5), "prepare"), num_cpus=1)
    dataset = dataset.materialize() if run.mended else dataset
    consume(dataset)
    for _ in range(3):
        with run.costing():
            consume(dataset)


if __name__ == "__main__":
    main()
