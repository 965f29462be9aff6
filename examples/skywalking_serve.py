"""A Ray Serve application that joins the traces of SkyWalking: the trace of a caller goes through two deployments and a
task, and on to the services that they call.

Run it, in an environment with Serve (``pip install 'ray[serve]'``), then look at what it did:

    python examples/skywalking_serve.py
    ray-tracing-hooks tree

It needs no SkyWalking: traces are only joined by headers, and the spans go to local files. With a back end (OAP) they
go there too:

    export RAY_TRACING_SKYWALKING_TRANSPORT=grpc SW_AGENT_COLLECTOR_BACKEND_SERVICES=oap:11800 SW_AGENT_NAME=ray-demo
    RAY_TRACING_EXPORTERS=local,skywalking python examples/skywalking_serve.py

The client stands for any service with an agent of SkyWalking: it sends the header ``sw8``. Set
``RAY_TRACING_SKYWALKING_PROTOCOL=sw6`` for SkyWalking 6.x and 7.x.
"""

import os
import socket
from typing import Any

# Workers get the environment of the process that starts the cluster.
os.environ.setdefault("RAY_TRACING_SKYWALKING_TRANSPORT", "none")
os.environ.setdefault("RAY_TRACING_EXPORTERS", "local,skywalking")

import ray
import requests
from fastapi import FastAPI, Request
from opentelemetry import propagate, trace
from ray import serve

tracer = trace.get_tracer("demo")
# FastAPI reads annotations in the replica, which knows no names that only annotations use: hence no
# ``from __future__ import annotations``.
app = FastAPI()

SMALL = {"num_cpus": 0}
HEADERS = ("sw8", "sw6")


@ray.remote(num_cpus=0)
def user_code(text: str) -> str:
    return text.upper()


@serve.deployment(ray_actor_options=SMALL)
class Downstream:
    async def hello(self) -> str:
        return await user_code.remote("i'm downstream")


@serve.deployment(ray_actor_options=SMALL)
@serve.ingress(app)
class Upstream:
    def __init__(self, downstream: Any) -> None:
        self.downstream = downstream

    @app.post("/upstream")
    async def upstream(self, request: Request) -> dict[str, str]:
        found = [name for name in HEADERS if name in request.headers]
        return {"downstream says": await self.downstream.hello.remote(), "joined by": found[0] if found else "nothing"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    # "local": a cluster of its own, whatever else runs on this machine.
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _tracing_startup_hook="ray_tracing_hooks:setup",
    )
    port = free_port()
    serve.start(http_options={"port": port})
    serve.run(Upstream.bind(Downstream.bind()), route_prefix="/hello-ray")

    with tracer.start_as_current_span("POST", kind=trace.SpanKind.CLIENT):
        headers: dict[str, str] = {}
        propagate.inject(headers)
        print("the client sends", next(header for header in headers if header in HEADERS))
        answer = requests.post(f"http://127.0.0.1:{port}/hello-ray/upstream", headers=headers, timeout=60)
        answer.raise_for_status()
        print(answer.json())

    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
