"""Three calls that wait: one for its argument, one for resources, and one for an actor that is busy."""

import time

import harness
import ray

SECONDS = 1.0


@ray.remote
def late():
    time.sleep(SECONDS)


@ray.remote
def for_argument(_value):
    pass


@ray.remote
def holds(seconds):
    time.sleep(seconds)


@ray.remote
def for_resources():
    pass


@ray.remote(num_cpus=0)
class Actor:
    def ready(self):
        pass

    def holds(self):
        time.sleep(SECONDS)

    def for_actor(self):
        pass


def main():
    actor = Actor.remote()
    ray.get(actor.ready.remote())
    ray.get(for_argument.remote(late.remote()))
    everything = ray.cluster_resources()["CPU"]
    held = holds.options(num_cpus=everything).remote(SECONDS)
    ray.get([held, for_resources.options(num_cpus=everything).remote()])
    ray.get([actor.holds.remote(), actor.for_actor.remote()])


if __name__ == "__main__":
    harness.run(main)
