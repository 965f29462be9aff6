"""Calls of actors while the head of the cluster does not answer, as in a restart of it."""

import os
import signal

import harness
import psutil
import ray


@ray.remote(num_cpus=0)
class Plain:
    def call(self, i):
        return i


@ray.remote(num_cpus=0)
class Async:
    async def call(self, i):
        return i


@ray.remote
def warm(*actors):
    return ray.get([actor.call.remote(0) for actor in actors])


def main():
    actors = Plain.remote(), Async.remote()
    ray.get(warm.remote(*actors))  # these carry their context, so the trace of the job is not needed for them
    ray.get([actor.__ray_ready__.remote() for actor in actors])
    session = ray._private.worker.global_worker.node.session_name
    (head,) = [
        process
        for process in psutil.Process().children(recursive=True)
        if "gcs_server" in process.name() and any(session in part for part in process.cmdline())
    ]
    os.kill(head.pid, signal.SIGSTOP)
    try:
        return ray.get([actor.call.remote(i) for actor in actors for i in range(3)])
    finally:
        os.kill(head.pid, signal.SIGCONT)


if __name__ == "__main__":
    harness.run(main)
