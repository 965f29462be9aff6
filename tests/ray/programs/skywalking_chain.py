"""A caller that SkyWalking's agent traces calls a Serve application, which calls a task, which calls a service that the
agent traces too.

It makes ``RTH_CALLS`` more calls, and tells which headers two tasks would send, the second one called by the first.
``RTH_SERVICE`` is the address of that service, ``RTH_CALLER`` the program that calls, and ``RTH_AGENT`` the folder with
the packages of the agent.
"""

import contextlib
import logging
import os
import subprocess
import sys

import harness
import ray
import requests
from opentelemetry import propagate
from ports import free_port
from ray import serve
from starlette.requests import Request

CALLER = os.path.join(os.path.dirname(__file__), os.environ["RTH_CALLER"])


@ray.remote(num_cpus=0)
def fetch(url):
    return requests.get(url, timeout=60).text


@ray.remote(num_cpus=0)
def sent(more):
    headers = {}
    propagate.inject(headers)
    return [headers, *(ray.get(sent.remote(more - 1)) if more else [])]


@ray.remote(num_cpus=0)
class Counter:
    def count(self, n):
        for i in range(n):
            yield i

    def one(self):
        return 1

    def fail(self):
        raise ValueError("no")


@ray.remote(num_cpus=0, max_retries=0)
def die():
    os._exit(1)


@serve.deployment(ray_actor_options={"num_cpus": 0}, graceful_shutdown_wait_loop_s=0.1)
class Downstream:
    async def hello(self):
        return await fetch.remote(os.environ["RTH_SERVICE"])


@serve.deployment(ray_actor_options={"num_cpus": 0}, graceful_shutdown_wait_loop_s=0.1)
class Upstream:
    def __init__(self, downstream):
        self.downstream = downstream

    async def __call__(self, request: Request):
        record = logging.makeLogRecord({"msg": "here"})
        logging.getLogger("chain").filter(record)
        answer = await self.downstream.hello.remote()
        seen = {name: request.headers.get(name) for name in ("sw8", "sw6", "sw8-correlation")}
        return {"answer": answer, "tid": getattr(record, "tid", None), **seen}


def main():
    port = free_port()
    serve.start(http_options={"port": port})
    serve.run(Upstream.bind(Downstream.bind()), route_prefix="/hello-ray")
    done = subprocess.run(
        ["node" if CALLER.endswith(".js") else sys.executable, CALLER, "call", f"http://127.0.0.1:{port}/hello-ray"],
        env={**os.environ, "SW_AGENT_NAME": "caller", "SW_AGENT_INSTANCE_NAME": "caller-1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    serve.shutdown()
    counter = Counter.remote()
    assert [ray.get(ref) for ref in counter.count.options(num_returns="streaming").remote(3)] == [0, 1, 2]
    calls = int(os.environ.get("RTH_CALLS", "0"))
    assert sum(ray.get([counter.one.remote() for _ in range(calls)])) == calls
    for ref in (counter.fail.remote(), die.remote()):
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(ref)
    answered = {"caller": done.stdout, "problems": done.stderr, "code": done.returncode}
    return {**answered, "sent": ray.get(sent.remote(1))}


harness.run(main)
