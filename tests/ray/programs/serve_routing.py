"""Deployments that choose their replicas in a way of their own, have none to begin with, or are asked how they are."""

import asyncio
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import harness
import ray
from opentelemetry import trace
from ray import serve
from ray.serve.config import RequestRouterConfig
from serve_app import deployment, traced
from serve_scenarios import Gate

tracer = trace.get_tracer("serve_routing")

ASKING = 6
"""So many ask at once a replica that has room for one; Serve chooses for two of them at a time."""

CHECKS = 3


class Told:
    """Listens to the router, which says for which request it chooses."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.heard = queue.SimpleQueue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            connection, _ = self.server.accept()
            with connection, connection.makefile() as text:
                self.heard.put(text.read())

    def wait_for(self, request):
        while self.heard.get(timeout=60) != request:
            pass


def routed(port):
    return RequestRouterConfig(
        request_router_class="serve_routers:Telling",
        request_router_kwargs={"port": port},
        request_routing_stats_period_s=0.1,
    )


@deployment(max_ongoing_requests=1)
class Small:
    async def __call__(self, name, gate=None):
        if gate:
            await gate.passing.remote()
        return name


@deployment(
    autoscaling_config={
        "min_replicas": 0,
        "initial_replicas": 0,
        "max_replicas": 1,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0,
        "metrics_interval_s": 0.1,
        "look_back_period_s": 0.2,
    }
)
class FromZero:
    async def __call__(self):
        return "there"


@deployment()
class Asked:
    def __init__(self):
        self.asked = {"ping": 0, "stats": 0}

    async def ping(self, what):
        self.asked[what] += 1

    async def often(self):
        while min(self.asked.values()) < CHECKS:
            await asyncio.sleep(0.05)
        return "often"


@deployment(health_check_period_s=0.1)
class Checked:
    def __init__(self, asked):
        self.asked = asked

    async def check_health(self):
        with tracer.start_as_current_span("checks"):
            await self.asked.ping.remote("ping")

    async def record_routing_stats(self):
        await self.asked.ping.remote("stats")
        return {}


@ray.remote(num_cpus=0)
class Other:
    """A process with a router of its own, so that the driver's does not know what it sends."""

    def hold(self, gate):
        serve.get_app_handle("small").remote("other", gate).result()


def ask(handle, name, *rest):
    return traced(f"wants {name}", lambda: handle.remote(name, *rest).result())


def at_once(handle):
    gate = Gate.remote()
    with ThreadPoolExecutor(ASKING) as threads:
        answers = [threads.submit(ask, handle, f"{number}", gate) for number in range(ASKING)]
        ray.get(gate.arrival.remote())
        ray.get(gate.open.remote())
        return [answer.result() for answer in answers]


def refused(handle, told):
    """The driver's router thinks that there is room for a request, which is refused."""
    ask(handle, "first")
    gate, other = Gate.remote(), Other.remote()
    held = other.hold.remote(gate)
    ray.get(gate.arrival.remote())
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(ask, handle, "refused")
        for _ in range(2):
            told.wait_for("refused")
        ray.get(gate.open.remote())
        ray.get(held)
        return answer.result()


def from_zero():
    handle = serve.run(FromZero.bind(), name="zero", route_prefix=None)
    began = time.time()
    answer = traced("from zero", lambda: handle.remote().result())
    return [answer, time.time() - began]


def main():
    told = Told()
    router = routed(told.port)
    small = serve.run(Small.options(request_router_config=router).bind(), name="small", route_prefix=None)
    found = {"at once": at_once(small)}
    found["refused"] = refused(small, told)
    found["from zero"] = from_zero()
    asked = Asked.bind()
    serve.run(Checked.options(request_router_config=router).bind(asked), name="checked", route_prefix=None)
    found["asked"] = serve.get_deployment_handle("Asked", "checked").often.remote().result()
    serve.shutdown()
    return found


if __name__ == "__main__":
    harness.run(main)
