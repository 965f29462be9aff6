"""Executions of datasets that end in different ways, each in a span of its own."""

import contextlib
import os
import signal
import tempfile
import threading
import time
from functools import partial

import harness
import ray
from opentelemetry import trace
from ray import data

BLOCKS, ROWS = 3, 60


def spanned(function):
    with trace.get_tracer("user").start_as_current_span(f"user {function.__name__}"):
        try:
            return function()
        except BaseException as error:
            return type(error).__name__


def numbers():
    return data.range(ROWS, override_num_blocks=BLOCKS)


def stuck_at_the_end(folder, batch):
    """The execution cannot finish before its consumer stops, and no other block is there before the last has begun."""
    begun = os.path.join(folder, "begun")
    if batch["id"][-1] == ROWS - 1:
        open(begun, "w").close()
        harness.until_killed_in_thread()
    while not os.path.exists(begun):
        time.sleep(0.01)
    return batch


@contextlib.contextmanager
def endless():
    """A dataset that does not end by itself."""
    with tempfile.TemporaryDirectory() as folder:
        # Another dataset, even one whose driver was killed a minute ago, may have nearly all processors.
        yield numbers().map_batches(partial(stuck_at_the_end, folder), batch_size=None, num_cpus=0)


def taken():
    with endless() as dataset:
        return len(dataset.take(3))


def left_by_break():
    with endless() as dataset:
        for batch in dataset.iter_batches(batch_size=5):
            return len(batch["id"])
    return None


def left_by_an_error():
    with endless() as dataset:
        for _ in dataset.iter_batches(batch_size=5):
            raise ValueError("the body of the loop fails")


def left_by_break_in_a_handler():
    try:
        raise KeyError("handled")
    except KeyError:
        return left_by_break()


def interrupted():
    """Ctrl-C while the program waits for a batch."""

    def interrupt(batch):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return batch

    with endless() as dataset:
        list(dataset.iterator()._iter_batches(batch_size=5, _collate_fn=interrupt))


def failing_collate_function():
    def fail(batch):
        raise ValueError("no batch, please")

    with endless() as dataset:
        list(dataset.iterator()._iter_batches(batch_size=5, _collate_fn=fail))


def fail_in_a_chain(batch):
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("no 30, please\n  with a second line") from error


def failing_function():
    numbers().map_batches(fail_in_a_chain).materialize()


class Sink(data.Datasink):
    def __init__(self, error):
        self.error = error

    def write(self, blocks, ctx):
        raise self.error


def failing_write():
    numbers().write_datasink(Sink(OSError("the disk is full")))


def failing_write_with_a_quoted_message():
    numbers().write_datasink(Sink(KeyError("name")))


def failing_write_without_a_message():
    numbers().write_datasink(Sink(ValueError()))


@ray.remote(num_cpus=0)
def total(batches):
    return sum(len(batch["id"]) for batch in batches)


def sent_to_a_task():
    return ray.get(total.remote(numbers().iter_batches(batch_size=5)))


def main():
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    ways = (
        taken,
        left_by_break,
        left_by_an_error,
        left_by_break_in_a_handler,
        interrupted,
        failing_collate_function,
        failing_function,
        failing_write,
        failing_write_with_a_quoted_message,
        failing_write_without_a_message,
        sent_to_a_task,
    )
    return {each.__name__: spanned(each) for each in ways}


if __name__ == "__main__":
    harness.run(main)
