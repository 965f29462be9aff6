"""Stops in the middle until it is told to continue, so that a test can inspect all its processes.

It says by the file ``ready`` that it does, in which is the process id of its actor.
"""

import os
import sys
import time

import harness
import ray
from opentelemetry import trace


def wait_until_looked_at(pid):
    folder = sys.argv[1]
    ready = os.path.join(folder, "ready")
    with open(f"{ready}.new", "w") as file:
        file.write(str(pid))
    os.rename(f"{ready}.new", ready)
    deadline = time.monotonic() + 60
    while not os.path.exists(os.path.join(folder, "go")) and time.monotonic() < deadline:
        time.sleep(0.05)


@ray.remote
class Actor:
    def pid(self):
        with trace.get_tracer(__name__).start_as_current_span("inside"):
            return os.getpid()


@ray.remote
def fail():
    raise ValueError("as it should")


def main():
    actor = Actor.remote()
    pid = ray.get(actor.pid.remote())
    try:
        ray.get(fail.remote())
    except ValueError:
        wait_until_looked_at(pid)
    return [pid, ray.get(actor.pid.remote()) == pid]


if __name__ == "__main__":
    harness.run(main)
