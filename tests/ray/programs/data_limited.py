"""A dataset with many small blocks, waits of the program itself, and an iteration that it leaves behind."""

import harness
import ray
from opentelemetry import trace
from ray import data

BLOCKS = 60
KNOWS_2_60 = tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 60)

left_behind = []


def stuck_at_the_end(batch):
    """The execution cannot finish before the program does."""
    if batch["id"][-1] == 99:
        harness.until_killed_in_thread()
    return batch


def as_it_is(batch):
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
    with spanned("left behind"):
        # Older versions of Ray cannot bear that the program ends before the execution.
        function = stuck_at_the_end if KNOWS_2_60 else as_it_is
        numbers = data.range(100, override_num_blocks=4).map_batches(function, num_cpus=0.5)
        batches = iter(numbers.iter_batches(batch_size=5))
        next(batches)
        left_behind.append(batches)
    return {"blocks": BLOCKS, "rows": rows}


if __name__ == "__main__":
    harness.run(main)
