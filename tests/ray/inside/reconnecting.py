"""Connects again and again to a cluster, and ends a span of the first connection after the last one.

Prints what each connection has left behind, and which variables of the environment were set or removed from the end of
``ray.init`` to that of ``ray.shutdown``.
"""

import atexit
import gc
import json
import os
import sys

import ray
from opentelemetry import trace

TIMES = 6


def kept():
    """What each connection might leave behind."""
    from ray_tracing_hooks._spool import writer

    gc.collect()
    numbers = os.listdir("/proc/self/fd")
    null = sum(os.path.realpath(f"/proc/self/fd/{number}") == os.devnull for number in numbers)
    return [null, len(writer._writers), atexit._ncallbacks()]


def main():
    found, changed = [], []
    held, is_connected = None, False

    def audit(event, arguments):
        if is_connected and event in {"os.putenv", "os.unsetenv"}:
            changed.append([event, str(arguments)])

    sys.addaudithook(audit)
    for _ in range(TIMES):
        ray.init(address=os.environ["RTH_ADDRESS"], log_to_driver=False)
        is_connected = True
        tracer = trace.get_tracer("program")
        held = held or tracer.start_span("held")
        with tracer.start_as_current_span("step"):
            pass
        ray.shutdown()
        is_connected = False
        found.append(kept())
    held.end()
    print("RESULT " + json.dumps([found, changed]))


if __name__ == "__main__":
    main()
