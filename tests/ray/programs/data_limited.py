"""A dataset with many small blocks, waits of the program itself, and an iteration that it leaves behind."""

import harness
import ray
from opentelemetry import trace
from ray import data

BLOCKS = 60

left_behind = []


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
        batches = iter(data.range(100, override_num_blocks=4).iter_batches(batch_size=5))
        next(batches)
        left_behind.append(batches)
    return {"blocks": BLOCKS, "rows": rows}


if __name__ == "__main__":
    harness.run(main)
