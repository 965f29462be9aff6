"""Actors with and without a name, resources and a placement group."""

import harness
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Plain:
    def work(self):
        return 1


@ray.remote
class Placed:
    def work(self):
        return 2


def main():
    group = placement_group([{"CPU": 1, "GPU": 1}])
    ray.get(group.ready())
    placed = Placed.options(
        name="the placed one",
        num_cpus=0.5,
        num_gpus=1,
        scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group),
    ).remote()
    plain = Plain.remote()
    results = ray.get([plain.work.remote(), placed.work.remote()])
    remove_placement_group(group)
    return [results, group.id.hex()]


if __name__ == "__main__":
    harness.run(main, num_gpus=1)
