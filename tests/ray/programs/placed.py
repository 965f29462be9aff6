"""What tasks and actors hold and are given: names, resources, a placement group, concurrency, arguments."""

import harness
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Plain:
    def work(self):
        return 1


@ray.remote(concurrency_groups={"io": 2})
class Placed:
    async def work(self):
        return 2

    @ray.method(concurrency_group="io")
    async def read(self):
        return 3


@ray.remote
def held(number):
    ids = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    return ray.get(one.remote()) + number, len(ids)


@ray.remote(num_cpus=0.25)
def one():
    return 1


@ray.remote(num_cpus=0)
def add(*numbers, last):
    return sum(numbers) + last


def main():
    group = placement_group([{"CPU": 1, "GPU": 1}])
    ray.get(group.ready())
    within = PlacementGroupSchedulingStrategy(placement_group=group)
    placed = Placed.options(
        name="the placed one", num_cpus=0.5, num_gpus=0.5, max_concurrency=3, scheduling_strategy=within
    ).remote()
    plain = Plain.remote()
    reading = placed.read.options(name="a read", concurrency_group="io").remote()
    results = ray.get([plain.work.remote(), placed.work.remote(), reading])
    results += ray.get([held.remote(1), held.options(num_gpus=1).remote(2)])
    results.append(ray.get(one.options(name="the one", scheduling_strategy=within).remote()))
    first, second = one.remote(), ray.put(5)
    results.append(ray.get(add.remote(first, 10, last=second)))
    results.append(ray.get(add.remote(10, last=1)))
    remove_placement_group(group)
    return [results, group.id.hex(), first.hex(), second.hex()]


if __name__ == "__main__":
    harness.run(main, num_gpus=2)
