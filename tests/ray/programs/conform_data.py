"""Ray Data: what pipelines of every kind come to. Each is in a span of its own, and functions of the user make spans.

A pipeline returns its rows, and what Ray Data's own ``stats()`` say of each operator.
"""

import contextlib
import contextvars
import gc
import signal
import tempfile
import threading

import ray
import scenarios
from opentelemetry import trace
from ray import data
from scenarios import attempt

BLOCKS, ROWS = 2, 40

context = data.DataContext.get_current()
context.enable_progress_bars = False
context.print_on_execution_start = False


def spanned(name):
    """A span of the user, below whatever is current where it is made."""
    return trace.get_tracer("user").start_as_current_span(f"user {name}")


def pipeline(function):
    """A scenario in a span of its name."""

    def run():
        with spanned(function.__name__):
            return function()

    run.__name__ = function.__name__
    return scenarios.scenario(run)


def numbers(rows=ROWS, blocks=BLOCKS):
    return data.range(rows, override_num_blocks=blocks)


def executed(dataset, *columns):
    """Execute a dataset: its rows in order, and the operators of its stats, with their rows and bytes."""
    done = dataset.materialize()
    rows = sorted(tuple(int(row[column]) for column in columns or row) for row in done.take_all())
    return [rows[:3], len(rows), stats_of(done)]


def stats_of(dataset):
    """The name, rows and bytes of each operator, as far as Ray Data has statistics of it."""
    of_dataset = getattr(dataset, "_get_stats_summary", None) or dataset._plan.stats().to_summary

    def found_in(summary):
        found = [each for parent in summary.parents for each in found_in(parent)]
        for each in summary.operators_stats:
            rows, size = (
                value["sum"] if isinstance(value, dict) else getattr(value, "sum", None)
                for value in (each.output_num_rows, each.output_size_bytes)
            )
            found.append([each.operator_name, rows and int(rows), size and int(size)])
        return found

    return found_in(of_dataset())


def pool(size=1):
    return data.ActorPoolStrategy(size=size)


def double(batch):
    with spanned("double"):
        return {"id": batch["id"] * 2}


def plus_one(row):
    return {"id": row["id"] + 1}


class Add:
    def __init__(self, number=1):
        with spanned("Add.__init__"):
            self.number = number

    def __call__(self, batch):
        with spanned("Add"):
            return {"id": batch["id"] + self.number}


class AddLater:
    async def __call__(self, batch):
        with spanned("AddLater"):
            return {"id": batch["id"] + 1}


@pipeline
def rows_one_by_one():
    return executed(numbers().map(plus_one).filter(lambda row: row["id"] % 2 == 0).flat_map(lambda row: [row, row]))


@pipeline
def batches_in_tasks():
    return executed(numbers().map_batches(double).map_batches(double, num_cpus=0.5))


@pipeline
def batches_in_actors():
    return executed(numbers().map_batches(double).map_batches(Add, fn_constructor_args=[3], compute=pool()))


@pipeline
def async_functions():
    return executed(numbers().map_batches(AddLater, compute=pool()))


@pipeline
def groups():
    keyed = numbers().map_batches(lambda batch: {"k": batch["id"] % 3, "v": batch["id"]})
    return executed(keyed.groupby("k", num_partitions=2).sum("v"), "k", "sum(v)")


@pipeline
def sorting():
    return executed(numbers().sort("id", descending=True))


@pipeline
def shuffling():
    """The user's function runs in the tasks of the shuffle."""
    return executed(numbers().map_batches(double).random_shuffle(seed=1))


@pipeline
def joining():
    left = numbers().map_batches(lambda batch: {"id": batch["id"], "left": batch["id"]})
    right = numbers().map_batches(lambda batch: {"id": batch["id"], "right": batch["id"]})
    return executed(left.join(right, join_type="inner", on=("id",), num_partitions=2), "id", "left", "right")


@pipeline
def union_and_zip():
    """Two inputs: the graph of the operators is none of a line."""
    other = numbers().map_batches(lambda batch: {"other": batch["id"]})
    return [executed(numbers().union(numbers())), executed(numbers().zip(other), "id", "other")]


@pipeline
def files():
    with tempfile.TemporaryDirectory() as folder:
        numbers().map_batches(double).write_parquet(folder)
        return executed(data.read_parquet(folder, override_num_blocks=2).map_batches(double))


@pipeline
def batches_for_the_program():
    """The body of the loop is the program's own."""
    found = []
    for batch in numbers().map_batches(double).iter_batches(batch_size=15):
        with spanned("body"):
            found.append(len(batch["id"]))
    return found


def collated(batch):
    with spanned("collate"):
        return len(batch["id"])


@pipeline
def batches_with_a_collate_function():
    # As `iter_torch_batches` does it, without Torch.
    batches = numbers().iterator()._iter_batches(batch_size=20, _collate_fn=collated)
    return list(batches)


@ray.remote(num_cpus=0)
class Trainer:
    def train(self, shard):
        with spanned("train"):
            return [sum(len(batch["id"]) for batch in shard.iter_batches(batch_size=10)) for _ in range(2)]


@pipeline
def splits_for_two_trainers():
    shards = numbers(blocks=4).map_batches(double).streaming_split(2, equal=True)
    trainers = [Trainer.remote() for _ in shards]
    return ray.get([trainer.train.remote(shard) for trainer, shard in zip(trainers, shards, strict=True)])


@pipeline
def two_at_once():
    """Each in a thread of the program, in a span of its own."""
    results = {}

    def run(name, batches):
        with spanned(name):
            results[name] = numbers().map_batches(batches).materialize().count()

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, name, batches))
        for name, batches in (("first", double), ("second", lambda batch: batch))
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return results


@pipeline
def a_dataset_with_a_name():
    dataset = numbers().map_batches(double)
    dataset.set_name("numbers")
    return [sum(len(batch["id"]) for batch in dataset.iter_batches()) for _ in range(2)]


@ray.remote(num_cpus=0)
def inside():
    return numbers().map_batches(double).materialize().count()


@pipeline
def in_a_task():
    return ray.get(inside.remote())


def failing(batch):
    if 30 in batch["id"]:
        raise ValueError("no 30, please")
    return batch


@pipeline
def a_failing_function():
    failed = attempt(lambda: numbers(blocks=1).map_batches(failing).materialize())
    return [failed[0], failed[1], failed[2].splitlines()[-1:]]


class FailsToStart:
    def __init__(self):
        raise ValueError("no start, please")

    def __call__(self, batch):
        return batch


@pipeline
def an_actor_that_does_not_start():
    failed = attempt(lambda: numbers().map_batches(FailsToStart, compute=pool()).materialize())
    return [failed[0], failed[1]]


def stuck(batch):
    threading.Event().wait()
    return batch


def stuck_at_the_end(batch):
    """The execution cannot finish before its consumer stops."""
    return stuck(batch) if batch["id"][-1] == ROWS - 1 else batch


@pipeline
def a_consumer_that_stops():
    for batch in numbers(blocks=4).map_batches(stuck_at_the_end).iter_batches(batch_size=5):
        return len(batch["id"])
    return None


@pipeline
def an_iterator_that_is_closed():
    batches = iter(numbers(blocks=4).map_batches(stuck_at_the_end).iter_batches(batch_size=5))
    first = len(next(batches)["id"])
    batches.close()
    with contextlib.suppress(StopIteration):
        next(batches)
    return first


@pipeline
def an_interrupt():
    """Ctrl-C while the program waits."""

    def interrupted(_signal, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    try:
        numbers(blocks=1).map_batches(stuck, num_cpus=0).materialize()
    except KeyboardInterrupt:
        return "interrupted"
    else:
        return "not interrupted"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pipeline
def callbacks_of_the_program():
    """They are called as they would be without tracing, and their errors are those of the execution."""
    seen = []
    try:
        from ray.data._internal.execution.execution_callback import ExecutionCallback
    except ImportError:
        return "this Ray has none"

    class Callback(ExecutionCallback):
        def before_execution_starts(self, executor):
            seen.append("before")

        def after_execution_succeeds(self, executor):
            seen.append("after")

    class Broken(ExecutionCallback):
        def before_execution_starts(self, executor):
            raise RuntimeError("no execution, please")

    if not hasattr(context, "custom_execution_callback_classes"):
        return "this Ray has none"
    try:
        context.custom_execution_callback_classes.append(Callback)
        count = numbers().materialize().count()
        context.custom_execution_callback_classes.append(Broken)
        failed = attempt(lambda: numbers().materialize())
    finally:
        context.custom_execution_callback_classes.clear()
    return [count, seen, failed[0], failed[2]]


@pipeline
def what_the_objects_look_like():
    """Nothing of ours is in what the program can see or pickle."""
    from ray import cloudpickle
    from ray.data._internal.execution.streaming_executor import StreamingExecutor

    dataset = numbers().map_batches(double)
    batches = dataset.iter_batches(batch_size=20)
    iterator = iter(batches)
    kinds = [type(batches).__name__, type(iterator).__name__, len(list(iterator))]
    alive = [each for each in gc.get_objects() if type(each) is StreamingExecutor and each.is_alive()]
    return [*kinds, len(alive), "tracing_hooks" in str(cloudpickle.dumps(dataset))]


if __name__ == "__main__":
    scenarios.run()
