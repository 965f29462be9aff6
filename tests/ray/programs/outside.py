"""Calls that belong to no trace: of a driver that is not traced, to a detached actor of another job; of a thread
without a context, to a function that makes no span.
"""

import json
import os
import subprocess
import sys
import threading

import harness
import ray
from opentelemetry import trace


@ray.remote
def seen():
    return 1


@ray.remote
def hidden():
    with trace.get_tracer("user").start_as_current_span("in hidden") as span:
        ray.get(seen.remote())
        return f"{span.get_span_context().trace_id:032x}"


@ray.remote(num_cpus=0)
class Detached:
    def call(self):
        with trace.get_tracer("user").start_as_current_span("in detached") as span:
            ray.get(seen.remote())
            return f"{span.get_span_context().trace_id:032x}"

    def call_hidden(self):
        got = []
        thread = threading.Thread(target=lambda: got.append(ray.get(hidden.remote())))
        thread.start()
        thread.join()
        return got[0]


def main():
    actor = Detached.options(name="detached", lifetime="detached").remote()
    mine = ray.get(actor.call.remote())
    other = subprocess.run(
        [sys.executable, __file__, "other"],
        env={**os.environ, "OTEL_SDK_DISABLED": "true"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = {
        "mine": mine,
        "of another": json.loads(other.stdout.rpartition(harness.MARK)[2]),
        "hidden": ray.get(actor.call_hidden.remote()),
    }
    ray.kill(actor)
    return result


def of_another():
    # Methods of an older Ray do not hold their actor.
    actor = ray.get_actor("detached", namespace="outside")
    return ray.get(actor.call.remote())


if __name__ == "__main__":
    exclude = {"env_vars": {"RAY_TRACING_EXCLUDE": "*.hidden"}}
    if sys.argv[1:] == ["other"]:
        harness.run(of_another)
    else:
        harness.run(main, namespace="outside", runtime_env=exclude)
