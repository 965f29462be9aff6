"""Calls as in the first pages of Ray's guide."""

import ray
import scenarios
from scenarios import attempt, scenario


@ray.remote
def add(a, b=1, *rest, c=2, **more):
    return [a, b, list(rest), c, more]


@scenario
def arguments_of_every_kind():
    return [
        ray.get(add.remote(1)),
        ray.get(add.remote(1, 2, 3, c=4, d=5)),
        ray.get(add.remote(a=1, b=2)),
        ray.get(add.remote(ray.put(1), b=ray.put([2]))),
    ]


@scenario
def wrong_arguments():
    return [attempt(lambda: add.remote()), attempt(lambda: add.remote(1, a=2))]


if __name__ == "__main__":
    scenarios.run()
