"""A task that Ray's memory monitor kills while it records spans, as the environment asks it to do with every task."""

import os
import signal
import sys

import harness
import ray
from ray.exceptions import OutOfMemoryError
from recording import recording


@ray.remote(max_retries=0)
def task(how, folder):
    # The raylet sends SIGTERM a moment before SIGKILL: without this, a worker that is quick has time to obey.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    with recording(how, folder):
        harness.until_killed()


def main():
    folder = sys.argv[1]
    for attempt in range(20):
        how = f"out_of_memory_{attempt}"
        try:
            ray.get(task.remote(how, folder))
        except OutOfMemoryError:
            # Some are killed before they have recorded what is to be looked at.
            if os.path.exists(os.path.join(folder, f"{how}.pid")):
                return [how, "OutOfMemoryError"]
    return None


if __name__ == "__main__":
    harness.run(main)
