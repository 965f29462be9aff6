"""Applications that a configuration names, and requests to them. Each has a trace of its own, made of its name."""

import asyncio
import contextlib
import http.client
import json
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import harness
import ray
from opentelemetry import trace
from ports import free_port
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RequestCancelledError
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ServeDeploySchema
from serve_app import Client, trace_id

tracer = trace.get_tracer("serve_scenarios")

APPLICATIONS = {"shop": "shop", "starlette": "with_starlette", "raw": "with_raw", "function": "with_function"}


@ray.remote(num_cpus=0)
class Gate:
    """Holds up who passes until it is opened."""

    def __init__(self):
        self.arrived, self.opened = asyncio.Event(), asyncio.Event()

    async def passing(self):
        self.arrived.set()
        await self.opened.wait()

    async def arrival(self):
        await self.arrived.wait()

    async def open(self):
        self.opened.set()


@ray.remote(num_cpus=0)
def pickles_batching():
    """In a worker, which imports Serve after tracing has begun: whether the same class is pickled."""
    from ray import cloudpickle, serve

    class Batching:
        @serve.batch
        async def batched(self, items):
            return items

    return hasattr(cloudpickle.loads(cloudpickle.dumps(Batching)), "batched")


def deploy():
    applications = [
        {"name": name, "route_prefix": f"/{name}", "import_path": f"serve_kinds:{built}"}
        for name, built in APPLICATIONS.items()
    ]
    # What ``serve deploy`` sends to the controller.
    serve.context._get_global_client().deploy_apps(ServeDeploySchema(applications=applications))
    while {name: app.status.value for name, app in serve.status().applications.items()} != dict.fromkeys(
        APPLICATIONS, "RUNNING"
    ):
        time.sleep(0.05)


def by_http(client):
    paths = ["composed", "thread", "to-thread", "own-thread", "teapot", "broken", "caught"]
    found = {path: client.get(f"/shop/{path}", path) for path in paths}
    malformed = "00-00000000000000000000000000000000-00000000000000ff-01"
    return found | {
        "mounted": client.get("/shop/mounted/things/3", "mounted"),
        "routed": client.get("/shop/router/4", "routed"),
        "told": client.get("/shop/told", "told", tracestate="a=1,b=2", baggage="user=me,key=value%20two"),
        "malformed": [client.get("/shop/told", "", traceparent=given) for given in (malformed, "00-12-34-01", "x")],
        "starlette": client.get("/starlette/list/x", "starlette"),
        "starlette fails": client.get("/starlette/failing", "starlette fails"),
        "raw": client.get("/raw/any", "raw", method="PUT"),
        "raw fails": client.get("/raw/fails", "raw fails"),
        "configured": client.get("/function/any", "configured"),
    }


def ending_early(client):
    """A stream that breaks, and one whose client goes away."""
    with contextlib.suppress(http.client.HTTPException):
        client.get("/shop/breaking", "breaking")
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    connection.request("GET", "/shop/endless", headers={"traceparent": f"00-{trace_id('endless')}-00000000000000ff-01"})
    read = connection.getresponse().read(3).decode()
    connection.close()
    return read


def by_handles(steps):
    """In this program: from a thread, and given up."""
    answers = []
    with tracer.start_as_current_span("by handles"):
        thread = threading.Thread(target=lambda: answers.append(steps.add.remote(20).result()))
        thread.start()
        thread.join()
        response = steps.sleep.remote()
        try:
            response.result(timeout_s=1)
        except TimeoutError:
            answers.append("took too long")
        response.cancel()
        try:
            response.result()
        except (RequestCancelledError, RayError):
            answers.append("cancelled")
    return answers


async def choosing(handle):
    async with handle.choose_replica():
        return "chosen"


ASKING = 4
"""So many ask at once where one may wait: at least one is refused."""

HELD = 1.0
"""Seconds for which those wait, at least, that are not refused, and one that gives up."""


def back_pressure(client, full):
    """One request is held, one waits, and others are refused: what became of those that asked, by their numbers."""

    def ask(number):
        with tracer.start_as_current_span(f"asks {number}"):
            try:
                return full.ready.remote().result()
            except BackPressureError:
                return "refused"

    def ask_behind(number):
        # A handle counts what waits at it alone.
        return client.get("/shop/full", f"behind {number}")

    # Before its first request a handle does not know how many may wait at it.
    ask_behind("no others")
    gate = Gate.remote()
    with tracer.start_as_current_span("held"):
        held = full.hold.remote(gate)
    ray.get(gate.arrival.remote())
    with tracer.start_as_current_span("gives up"):
        response = full.ready.remote()
        with contextlib.suppress(TimeoutError):
            response.result(timeout_s=HELD)
        response.cancel()
        with contextlib.suppress(RequestCancelledError, RayError):
            response.result()
    with ThreadPoolExecutor(2 * ASKING) as threads:
        asked = [threads.submit(ask, number) for number in range(ASKING)]
        # The first to be answered is one that is refused: nothing else is, as long as the gate is closed.
        wait(asked, timeout=60, return_when=FIRST_COMPLETED)
        if hasattr(DeploymentHandle, "choose_replica"):
            with tracer.start_as_current_span("refused choice"), contextlib.suppress(BackPressureError):
                asyncio.run(choosing(full.ready))
        behind = [threads.submit(ask_behind, number) for number in range(ASKING)]
        wait(behind, timeout=60, return_when=FIRST_COMPLETED)
        time.sleep(HELD)  # it is measured how long those wait that were not refused
        ray.get(gate.open.remote())
        return [held.result(), [each.result() for each in asked], [each.result() for each in behind], HELD]


def main():
    port = free_port()
    # The worker of a task has to import Serve, which takes a busy machine some time.
    serve.start(http_options={"port": port, "request_timeout_s": 80})
    try:
        return scenarios(Client(port))
    finally:
        serve.shutdown()  # other programs begin it anew in this cluster


def scenarios(client):
    deploy()
    while client.get("/shop/told", "warm-up")[0] != 200:
        time.sleep(0.05)
    # First: what makes the stream is told that its client has gone, and has to end before the replicas do.
    read = ending_early(client)
    found = by_http(client) | {"read": read}
    found["handles"] = by_handles(serve.get_deployment_handle("Steps", "shop"))
    found["dies"] = client.get("/shop/dies", "dies")
    found["pickled in a worker"] = ray.get(pickles_batching.remote())
    found["back-pressure"] = back_pressure(client, serve.get_deployment_handle("Full", "shop"))
    serve.get_deployment_handle("Steps", "shop").endless_has_ended.remote().result(timeout_s=60)
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    harness.run(main)
