"""Work that runs more than once: retries, a task whose worker dies, an actor that is made anew, an object that is made
again after its node has gone.
"""

import os
import sys
import tempfile

import harness
import lean
import numpy as np
import ray

MARKS = tempfile.mkdtemp(dir=sys.argv[1])


def first(what):
    try:
        os.close(os.open(os.path.join(MARKS, what), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@ray.remote
def leaf(i):
    return i


@ray.remote(max_retries=2, retry_exceptions=True)
def fails(what):
    got = ray.get([leaf.remote(i) for i in range(2)])
    if first(what):
        raise ValueError(what)
    return got


@ray.remote(max_retries=2)
def dies(what):
    got = ray.get([leaf.remote(i) for i in range(2)])
    if first(what):
        os._exit(1)
    return got


# Trying again before the actor is there again counts too.
@ray.remote(max_restarts=1, max_task_retries=20)
class Restarted:
    def __init__(self):
        self.got = ray.get([leaf.remote(i) for i in range(2)])

    def call(self, what):
        if first(what):
            os._exit(1)
        return self.got


@ray.remote(max_retries=2, resources={"second": 0.01})
def large():
    ray.get(leaf.remote(0))
    return np.zeros(1_000_000)


def main():
    results = [ray.get([fails.remote("fails"), dies.remote("dies")])]
    results.append(ray.get((_actor := Restarted.remote()).call.remote("restarted")))
    return results


def with_two_nodes():
    from ray.cluster_utils import Cluster

    with lean.processes():
        cluster = Cluster()
        cluster.add_node(num_cpus=2, include_dashboard=False, tracing_startup_hook=os.environ["RTH_HOOK"])
    os.environ["RTH_ADDRESS"] = cluster.address

    def main_and_lost():
        # A driver of an older Ray connects to any node that there is.
        with lean.processes():
            node = cluster.add_node(num_cpus=1, resources={"second": 1})
        results = main()
        made = large.remote()
        ray.wait([made], fetch_local=False)
        cluster.remove_node(node)
        with lean.processes():
            cluster.add_node(num_cpus=1, resources={"second": 1})
        return [*results, ray.get(made).shape[0]]

    harness.run(main_and_lost)
    cluster.shutdown()


if __name__ == "__main__":
    if "RTH_ADDRESS" in os.environ:
        harness.run(main)
    else:
        with_two_nodes()
