"""A Ray Client that calls the hook once it is connected, has spans of its own, and ends as its argument says."""

import json
import os
import signal
import sys
import threading

import looking
import ray
from opentelemetry import trace

from ray_tracing_hooks import _startup, local

tracer = trace.get_tracer("client_spans")


@ray.remote
def double(a):
    with tracer.start_as_current_span("in task"):
        return 2 * a


@ray.remote
def below(a):
    return ray.get(double.remote(a))


@ray.remote
def fail():
    raise ValueError("on purpose")


@ray.remote(num_returns="dynamic")
def count(n):
    yield from range(n)


@ray.remote
class Actor:
    def one(self):
        return 1

    async def later(self):
        return 2


def error_of(ref):
    try:
        ray.get(ref)
    except Exception as error:
        return type(error).__name__


def main():
    ray.init(os.environ["RTH_ADDRESS"], log_to_driver=False)
    found = {}
    early = double.remote(0) if "late" in sys.argv else None
    # Of Ray's own, what a client imports when it makes its first call is there.
    ray.get(early or ray.put(1))
    looking.note()
    local.setup()
    found["traced"] = looking.changed()
    local.setup()
    results = [ray.get(double.remote(1))]
    with tracer.start_as_current_span("first"):
        results += ray.get([double.remote(2), below.remote(a=3)])
        with tracer.start_as_current_span("failing"):
            results.append(error_of(fail.remote()))
    with tracer.start_as_current_span("second"):
        actor = Actor.remote()
        results += ray.get([actor.one.remote(), actor.later.remote()])
        results.append([ray.get(item) for item in ray.get(count.options(name="counting").remote(2))])
        # Larger than one message of Ray's may be: it goes in several.
        results.append(ray.get(double.remote(bytes(9 << 20))) == bytes(18 << 20))
    thread = threading.Thread(target=lambda: results.append(ray.get(double.remote(4))))
    thread.start()
    thread.join()
    if "stop" in sys.argv:
        _startup.stop()
        found["stopped"] = looking.changed()
        results.append(ray.get(double.remote(5)))
        local.setup()
        results.append(ray.get(double.remote(6)))
    if "kill" not in sys.argv:
        ray.shutdown()
        found["disconnected"] = looking.changed()
    print("RESULT " + json.dumps({**found, "results": results}), flush=True)
    if "kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
