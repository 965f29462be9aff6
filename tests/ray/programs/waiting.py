"""Waiting for objects in every way, and storing some."""

import inspect

import harness
import ray
from opentelemetry import trace

tracer = trace.get_tracer("waiting")


@ray.remote
def number(value):
    return value


@ray.remote
def fails():
    raise KeyError("no such key")


@ray.remote
def waits(ref):
    return ray.get(ref[0])


@ray.remote
class Slow:
    def never(self):
        import time

        time.sleep(3600)


def told(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def main():
    refs = [number.remote(value) for value in range(3)]
    slow = Slow.remote()
    never = slow.never.remote()
    results = [
        ray.get(refs[0]),
        ray.get(refs, timeout=60),
        told(lambda: ray.get(fails.remote())),
        told(lambda: ray.get(never, timeout=0.1)),
        [len(side) for side in ray.wait([refs[0], never], num_returns=1, timeout=60)],
        ray.get(ray.put([1, 2])),
        ray.get(waits.remote([refs[2]])),
        told(lambda: ray.get("nothing")),
        told(lambda: ray.wait("nothing")),
        str(inspect.signature(ray.get)) == str(inspect.signature(inspect.unwrap(ray.get))),
    ]
    ray.kill(slow)
    return results


if __name__ == "__main__":
    harness.run(main)
