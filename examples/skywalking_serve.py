"""A Ray Serve application in the trace of a caller with an agent of SkyWalking: deployments, a task, and back.

It needs no SkyWalking: traces are joined by headers, and the spans go to local files.

    pip install 'ray[serve]' requests
    RAY_TRACING_SKYWALKING_TRANSPORT=none python examples/skywalking_serve.py
    ray-tracing-hooks tree

You see one trace from the client's ``POST`` to the task. With a back end (OAP), spans go there instead:

    SW_AGENT_COLLECTOR_BACKEND_SERVICES=oap:11800 SW_AGENT_NAME=my-ray python examples/skywalking_serve.py

For SkyWalking 6.x and 7.x, set ``RAY_TRACING_SKYWALKING_PROTOCOL=sw6`` too.
"""

import os

import ray
import requests
from fastapi import FastAPI, Request
from opentelemetry import propagate, trace
from ray import serve

tracer = trace.get_tracer("demo")
PORT = int(os.environ.get("PORT", "8000"))
api = FastAPI()


@ray.remote
def user_code(text):
    return text.upper()


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Downstream:
    async def hello(self):
        return await user_code.remote("i'm downstream")


@serve.deployment(ray_actor_options={"num_cpus": 0})
@serve.ingress(api)
class Upstream:
    def __init__(self, downstream):
        self.downstream = downstream

    @api.post("/upstream")
    async def upstream(self, request: Request):
        return {"downstream says": await self.downstream.hello.remote(), "sw8": request.headers.get("sw8")}


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.skywalking:setup")
    serve.start(http_options={"port": PORT})
    serve.run(Upstream.bind(Downstream.bind()), route_prefix="/hello-ray")
    # The client stands for a service with an agent, which sends the header itself.
    with tracer.start_as_current_span("POST", kind=trace.SpanKind.CLIENT):
        headers = {}
        propagate.inject(headers)
        url = f"http://127.0.0.1:{PORT}/hello-ray/upstream"
        print(requests.post(url, headers=headers, timeout=60).json())
    serve.shutdown()
