"""More objects than the object store holds, so that Ray starts the workers that write them to disk and read them back.

The hook says what it has imported and opened in each process, in a file of SPILLING_FOLDER.
"""

import contextlib
import json
import os
import sys
import threading

import ray

SIZE, COUNT = 20_000_000, 10


def opened():
    """The threads of Python, and our open files: Ray's own threads come and go, and so does what they open."""
    files = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            files.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return threading.active_count(), sorted(file for file in files if "ray_tracing_hooks" in file)


def setup():
    before = set(sys.modules), opened()
    from ray_tracing_hooks.local import setup

    setup()
    mode = ray._private.worker.global_worker.mode
    found = {"mode": mode, "modules": sorted(set(sys.modules) - before[0]), "same": opened() == before[1]}
    with open(os.path.join(os.environ["SPILLING_FOLDER"], f"{os.getpid()}.json"), "w") as file:
        json.dump(found, file)


@ray.remote
def length(data):
    return len(data)


if __name__ == "__main__":
    ray.init(
        "local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80_000_000,
        _tracing_startup_hook="spilling:setup",
    )
    objects = [ray.put(bytes(SIZE)) for _ in range(COUNT)]
    lengths = [ray.get(length.remote(data)) for data in objects]
    modes = [ray._private.worker.SPILL_WORKER_MODE, ray._private.worker.RESTORE_WORKER_MODE]
    ray.shutdown()
    print("RESULT", json.dumps([lengths == [SIZE] * COUNT, modes]))
