"""300 tasks and two actors with 300 calls each, ended in the way that the first argument names."""

import os
import signal
import sys
import time

import ray
from opentelemetry import trace

tracer = trace.get_tracer("endings")
CALLS = 300


@ray.remote
def task(i):
    return i


@ray.remote(max_calls=1)
def only_once(i):
    return i


@ray.remote(num_cpus=0)
class Actor:
    def call(self, i):
        with tracer.start_as_current_span("in call"):
            return i

    def pid(self):
        return os.getpid()


@ray.remote(num_cpus=0, max_retries=0)
def cut_off(path):
    with tracer.start_as_current_span("cut off too"):
        with open(path + ".tmp", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".tmp", path)
        time.sleep(120)


def main(how, path):
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _tracing_startup_hook=os.environ["RTH_HOOK"])
    if how == "max_calls":
        results = ray.get([only_once.remote(i) for i in range(20)])
    else:
        results = ray.get([task.remote(i) for i in range(CALLS)])
    actors = [Actor.remote(), Actor.remote()]
    for actor in actors:
        results += ray.get([actor.call.remote(i) for i in range(CALLS)])
    print("RESULT", sum(results), flush=True)
    if how == "kill_actor":
        ray.kill(actors[0])
    elif how == "sigkill_worker":
        cut_off.remote(path)
        while not os.path.exists(path):
            time.sleep(0.01)
        with open(path) as file:
            os.kill(int(file.read()), signal.SIGKILL)
    elif how == "os_exit":
        os._exit(0)
    elif how == "sigkill_driver":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    elif how == "exception":
        raise RuntimeError("the driver fails")
    if how not in {"fall_off", "exception", "interrupt"}:
        ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
