"""A dataset with many small blocks, waits of the program itself, and an iteration that it leaves behind."""

import os
import tempfile
import time
from functools import partial

import harness
import ray
from opentelemetry import trace
from ray import data

BLOCKS = 60
KNOWS_2_60 = tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 60)

if KNOWS_2_60:
    import held_executor

left_behind = []


def stuck_at_the_end(path, batch):
    """The execution cannot finish before the program does."""
    if batch["id"][-1] == 99:
        open(path, "w").close()
        harness.until_killed_in_thread()
    return batch


def noted_at_the_end(path, batch):
    if batch["id"][-1] == 99:
        open(path, "w").close()
    return batch


def spanned(name):
    return trace.get_tracer("user").start_as_current_span(f"user {name}")


def main():
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with spanned("many blocks"):
        rows = data.range(BLOCKS, override_num_blocks=BLOCKS).materialize().count()
    ray.get(ray.put(1))
    if KNOWS_2_60:
        context.custom_execution_callback_classes.append(held_executor.Held)
    with spanned("left behind"), tempfile.TemporaryDirectory() as folder:
        # Older versions of Ray cannot bear that the program ends before the execution.
        function = stuck_at_the_end if KNOWS_2_60 else noted_at_the_end
        path = os.path.join(folder, "all blocks are read")
        numbers = data.range(100, override_num_blocks=4)
        batches = iter(numbers.map_batches(partial(function, path), num_cpus=0.5).iter_batches(batch_size=5))
        next(batches)
        left_behind.append(batches)
        # Else a block could be submitted after the operator's span has ended, and count as left out only.
        while not os.path.exists(path):
            time.sleep(0.01)
        if KNOWS_2_60:
            held_executor.hold()
    return {"blocks": BLOCKS, "rows": rows}


if __name__ == "__main__":
    harness.run(main)
