"""Requests through deployments of which one may find modules in a folder of its own, which the second argument names.
The first one names a hook that is called by hand. ``BETWEEN`` are further variables of that deployment.
"""

import importlib
import json
import os
import sys

import harness
from opentelemetry import trace
from ports import free_port
from ray import serve
from serve_app import Client

tracer = trace.get_tracer("serve_mixed")


def deployment(folder="", of_between=None):
    path = os.pathsep.join(filter(None, [folder, os.environ["PYTHONPATH"]]))
    variables = {"PYTHONPATH": path, **(of_between or {})} if folder or of_between else {}
    of_its_own = {"runtime_env": {"env_vars": variables}} if variables else {}
    return serve.deployment(ray_actor_options={"num_cpus": 0, **of_its_own}, graceful_shutdown_wait_loop_s=0.1)


class Last:
    async def add(self, x):
        with tracer.start_as_current_span(f"mixed add {x}"):
            return x + 1

    def items(self, n):
        yield from range(n)


class Between:
    def __init__(self, last):
        self.last = last

    async def add(self, x):
        return 10 * await self.last.add.remote(x)

    async def items(self, n):
        async for item in self.last.options(stream=True).items.remote(n):
            yield item


class First:
    def __init__(self, between):
        self.between = between

    async def call(self, x):
        with tracer.start_as_current_span(f"mixed call {x}"):
            return await self.between.add.remote(x)

    async def __call__(self, _request):
        items = [item async for item in self.between.options(stream=True).items.remote(2)]
        return [await self.call(2), items]


def requests(folder, port):
    last = deployment()(Last).bind()
    between = deployment(folder, json.loads(os.environ.get("BETWEEN", "{}")))(Between).bind(last)
    try:
        handle = serve.run(deployment()(First).bind(between), name="mixed", route_prefix="/mixed")
    except RuntimeError as error:
        return str(error)
    client = Client(port)
    while client.get("/mixed", "")[0] == 404:
        pass
    with tracer.start_as_current_span("by handle"):
        answer = handle.call.remote(1).result()
    return [answer, client.get("/mixed", "mixed by http")]


def main():
    hook, folder = sys.argv[1:]
    if hook:
        module, _, name = hook.partition(":")
        getattr(importlib.import_module(module), name)()
    port = free_port()
    serve.start(http_options={"port": port})
    found = requests(folder, port)
    serve.shutdown()
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    harness.run(main)
