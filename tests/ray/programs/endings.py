"""A driver that ends in the way that the first argument names, while it and a worker of its record spans."""

import ctypes
import os
import signal
import sys

import harness
import lean
import ray
from recording import heard, recording, tracer

CALLS = 50
SIGNALS = {"sigterm": signal.SIGTERM, "sigkill": signal.SIGKILL, "interrupt": signal.SIGINT}


@ray.remote(num_cpus=0)
class Actor:
    def call(self, number):
        with tracer.start_as_current_span("in call"):
            return number

    def busy(self, how, folder):
        with recording(how, folder):
            harness.until_killed()


def end(how):
    if how == "shutdown":
        ray.shutdown()
    elif how == "exception":
        raise RuntimeError("the driver fails")
    elif how == "sys_exit":
        sys.exit(3)
    elif how == "os_exit":
        os._exit(4)
    elif how == "sigsegv":
        ctypes.string_at(0)
    elif how in SIGNALS:
        os.kill(os.getpid(), SIGNALS[how])
        harness.until_killed()
    elif how == "wait":
        harness.until_killed()


def main(how, folder):
    address = os.environ.get("RTH_ADDRESS")
    if address:
        ray.init(address=address, log_to_driver=False)
    else:
        hook = os.environ["RTH_HOOK"]
        lean.start(num_cpus=1, log_to_driver=False, _tracing_startup_hook=hook)
    actor = Actor.options(resources={os.environ["RTH_RESOURCE"]: 1} if "RTH_RESOURCE" in os.environ else {}).remote()
    results = ray.get([actor.call.remote(number) for number in range(CALLS)])
    _busy = actor.busy.remote(f"busy {how}", folder)
    heard(folder, f"busy {how}.pid")
    with recording(f"driver {how}", folder):
        print("RESULT", sum(results), flush=True)
        end(how)


if __name__ == "__main__":
    main(*sys.argv[1:])
