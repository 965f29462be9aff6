"""Objects: large ones passed by value, captured by functions, returned or kept until they spill."""

import os
import time

import ray

from corpus import planted, spend
from corpus.running import main

MIB = 1 << 20


@ray.remote(num_cpus=1)
def measure(data, number):
    spend(0.02)
    return len(data) + number


@planted("large-arguments", says=("measure",), cluster={"object_store_memory": 2000 * MIB})
def large_by_value(run):
    """The same hundred MiB are passed by value to each of twenty calls, instead of once by ray.put."""
    data = os.urandom(100 * MIB)
    given = ray.put(data) if run.mended else data
    refs = []
    for number in range(run.times(16)):
        with run.costing():
            refs.append(measure.remote(given, number))
    ray.get(refs)


@ray.remote(num_cpus=0)
class Index:
    def search(self, table, number):
        return spend(0.01)


@planted(
    "large-arguments", says=("Index.search",), beside=("get-in-loop",), cluster={"object_store_memory": 2000 * MIB}
)
def large_argument_of_a_method(run):
    """A list of many objects is pickled anew for each call of an actor."""
    table = [(number, str(number)) for number in range(300_000)]
    index = Index.remote()
    given = ray.put(table) if run.mended else table
    for number in range(run.times(6)):
        begun = time.perf_counter()
        ref = index.search.remote(given, number)
        run.cost(time.perf_counter() - begun)
        ray.get(ref)


@planted("large-closure", says=("annotate",))
def large_closure(run):
    """Functions that capture a table of many objects, which is pickled with each of them."""
    table = {number: (number, str(number)) for number in range(300_000)}
    small = {number: table[number] for number in range(10)}
    captured = small if run.mended else table

    refs = []
    for _ in range(run.times(8)):

        @ray.remote
        def annotate(number):
            return captured.get(number)

        begun = time.perf_counter()
        refs.append(annotate.remote(1))
        run.cost(time.perf_counter() - begun)
    ray.get(refs)


class SlowResult:
    """Takes long to unpickle, as millions of small objects do."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __reduce__(self):
        return spend, (self.seconds,)


@ray.remote
def many_objects(seconds):
    spend(0.2)
    return SlowResult(seconds)


@planted("slow-results", says=("many_objects",))
def slow_fetch(run):
    """Results take the driver longer to unpickle than the tasks to make."""
    refs = [many_objects.remote(run.seconds(0.9, 0.01)) for _ in range(4)]
    ray.wait(refs, num_returns=4)
    for ref in refs:
        run.cost(ray.get(ref))


@ray.remote(num_cpus=1)
def image(number):
    spend(0.05)
    return bytes(12 * MIB)


@ray.remote(num_cpus=1)
def classify(data):
    spend(0.05)
    return len(data)


# Calls that find the store full do take longer than the others.
@planted("slow-results", cluster={"object_store_memory": 100 * MIB}, beside=("straggler",), states=True)
def spilled_objects(run):
    """Three times more results are kept than the object store holds, before any is used."""
    begun = time.perf_counter()
    if run.mended:
        for first in range(0, 28, 4):
            ray.get([classify.remote(image.remote(number)) for number in range(first, first + 4)])
        return
    images = [image.remote(number) for number in range(28)]
    ray.wait(images, num_returns=len(images))
    ray.get([classify.remote(each) for each in images])
    run.cost(time.perf_counter() - begun - 0.7)


@planted("large-arguments", "straggler", cluster={"object_store_memory": 2000 * MIB})
def large_by_value_and_straggler(run):
    """A large value passed by value ten times, and one call that takes two seconds longer than the others."""
    data = os.urandom(100 * MIB)
    given = ray.put(data) if run.mended else data
    with run.costing(less=0.1):
        ray.get([measure.remote(given, number) for number in range(16)])
    took = ray.get([weigh.remote(number, run.seconds(2.2, 0.2) if number == 4 else 0.2) for number in range(12)])
    run.cost(max(took) - 0.2, 1)


@ray.remote(num_cpus=1)
def weigh(number, seconds):
    return spend(seconds)


if __name__ == "__main__":
    main()
