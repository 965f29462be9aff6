"""Runs tasks on all nodes of a cluster until the file ``RTH_STOP`` exists.

Each task notes in a file of its process, in the folder ``RTH_TRUTH``, that it has begun and ended, with the id of its
span: what must be found, whatever happens to its node. Gives how many calls were made, and on how many nodes.
"""

import os
import time

import harness
import ray
from opentelemetry import trace

AT_ONCE = 12


def note(what):
    context = trace.get_current_span().get_span_context()
    path = os.path.join(
        os.environ["RTH_TRUTH"], f"{os.uname().nodename}-{ray.get_runtime_context().get_node_id()}-{os.getpid()}"
    )
    with open(path, "a") as file:
        file.write(f"{what} {context.span_id:016x}\n")


@ray.remote(num_cpus=1, max_retries=-1, scheduling_strategy="SPREAD")
def work(seconds):
    note("began")
    time.sleep(seconds)
    note("ended")
    return ray.get_runtime_context().get_node_id()


def main():
    made, nodes, running = 0, set(), []
    stop = os.environ["RTH_STOP"]
    while running or not os.path.exists(stop):
        while len(running) < AT_ONCE and not os.path.exists(stop):
            running.append(work.remote(float(os.environ.get("RTH_SECONDS", "0.2"))))
            made += 1
        done, running = ray.wait(running, timeout=1)
        nodes.update(ray.get(done))
    return [made, len(nodes)]


if __name__ == "__main__":
    harness.run(main)
