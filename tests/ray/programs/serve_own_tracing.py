"""Requests to two deployments, with Serve's own tracing as the environment or ``TRACING`` has it: one, and those whose
headers are in the argument.
"""

import json
import os
import sys
import urllib.request

import harness
from opentelemetry import trace
from ports import free_port
from ray import serve
from serve_app import deployment


@deployment()
class Inner:
    async def __call__(self, x):
        return x + 1


@deployment()
class Outer:
    def __init__(self, inner):
        self.inner = inner

    async def __call__(self, _request):
        with trace.get_tracer("user").start_as_current_span("user"):
            return await self.inner.remote(1)


def answer(port, headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers=headers)
    with urllib.request.urlopen(request) as response:
        return response.read().decode()


def main():
    port = free_port()
    options = {"http_options": {"port": port}}
    if "TRACING" in os.environ:
        options["tracing_config"] = serve.TracingConfig(**json.loads(os.environ["TRACING"]))
    serve.start(**options)
    serve.run(Outer.bind(Inner.bind()))
    answers = [answer(port, headers) for headers in [{}, *json.loads("".join(sys.argv[1:]) or "[]")]]
    serve.shutdown()
    exported = os.environ.get("EXPORTED")
    if exported is None:
        return [answers, []]
    with open(exported) as file:
        return [answers, file.read().splitlines()]


if __name__ == "__main__":
    harness.run(main)
