"""Three calls that wait: one for its argument, one for resources, and one for an actor that is busy."""

import time

import harness
import ray
from shared import eventually
from task_states import states_of, tasks_of_this_job

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


def all_told():
    """Whether the cluster knows of each of them what this process and what the worker has to tell."""
    told = [task["func_or_class_name"] for task in tasks_of_this_job() if {"RUNNING", "FINISHED"} <= {*states_of(task)}]
    return {"for_argument", "for_resources", "Actor.for_actor"} <= {*told}


def main():
    actor = Actor.remote()
    ray.get(actor.ready.remote())
    ray.get(for_argument.remote(late.remote()))
    everything = ray.cluster_resources()["CPU"]
    held = holds.options(num_cpus=everything).remote(SECONDS)
    ray.get([held, for_resources.options(num_cpus=everything).remote()])
    ray.get([actor.holds.remote(), actor.for_actor.remote()])
    eventually(all_told)


if __name__ == "__main__":
    harness.run(main)
