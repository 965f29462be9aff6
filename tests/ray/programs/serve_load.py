"""Many requests at once through three deployments with two replicas each, and through one of them being killed.

Each request has a number, a trace and a client's span of its own, both made of the number, and a baggage that says it.
"""

import asyncio
import json
import os
import signal
import sys

import aiohttp
import harness
import ray
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import attach
from ports import free_port
from ray import serve
from serve_app import Client, deployment
from starlette.responses import JSONResponse

tracer = trace.get_tracer("serve_load")

TWO = {"num_replicas": 2, "max_ongoing_requests": 5000}


@ray.remote(num_cpus=0, max_concurrency=1000)
class Gate:
    """Holds up who passes until it is opened."""

    def __init__(self):
        self.arrived = {}
        self.opened, self.changed = asyncio.Event(), asyncio.Condition()

    async def passing(self, number, pid):
        async with self.changed:
            self.arrived[number] = pid
            self.changed.notify_all()
        await self.opened.wait()

    async def wait(self, count):
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.arrived) >= count)
        return self.arrived

    async def open(self):
        self.opened.set()


@deployment(**TWO)
class Chunks:
    def __init__(self, gate):
        self.gate = gate

    async def items(self, number, held):
        for item in range(2):
            with tracer.start_as_current_span(f"item {item} of {number}"):
                if held and item:
                    await self.gate.passing.remote(number, os.getpid())
                trace_id = trace.get_current_span().get_span_context().trace_id
                told = [number, baggage.get_baggage("number"), f"{trace_id:032x}"]
            yield told


@deployment(**TWO)
class Model:
    def __init__(self, chunks):
        self.chunks = chunks.options(stream=True)

    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.02)
    async def doubled(self, numbers):
        with tracer.start_as_current_span("doubles", attributes={"numbers": numbers}):
            return [2 * number for number in numbers]

    async def predict(self, number, held):
        with tracer.start_as_current_span(f"model {number}"):
            double = await self.doubled(number)
            return [double, *[told async for told in self.chunks.items.remote(number, held)]]


@deployment(**TWO)
class Ingress:
    def __init__(self, model):
        self.model = model

    async def predict(self, number, held=False):
        with tracer.start_as_current_span(f"ingress {number}"):
            return await self.model.predict.remote(number, held)

    async def __call__(self, request):
        number = int(request.query_params["number"])
        return JSONResponse(await self.predict(number, "held" in request.query_params))


def headers(number):
    return {"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01", "baggage": f"number={number}"}


async def by_http(url, numbers, query=""):
    """The status and the response of each of these requests, which are sent concurrently."""

    async def request(session, number):
        async with session.get(f"{url}?number={number}{query}", headers=headers(number)) as response:
            return [response.status, await (response.json() if response.status == 200 else response.text())]

    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        return await asyncio.gather(*(request(session, number) for number in numbers))


async def by_handle(handle, numbers):
    """The same in this process, where the contexts of all of them are there at once."""

    async def request(number):
        attach(propagate.extract(headers(number)))  # to the asyncio task, which has a context of its own
        return [200, await handle.predict.remote(number)]

    return await asyncio.gather(*map(request, numbers))


async def load(url, handle, count):
    half = count // 2
    first, second = await asyncio.gather(by_http(url, range(half)), by_handle(handle, range(half, count)))
    return first + second


async def with_a_death(url, gate, numbers):
    """Requests of which one in two is in a replica when that is killed, and as many that come right after."""
    half = len(numbers) // 2
    held = asyncio.ensure_future(by_http(url, numbers[:half], "&held"))
    arrived = await gate.wait.remote(half)
    killed = arrived[numbers[0]]
    os.kill(killed, signal.SIGKILL)
    after = asyncio.ensure_future(by_http(url, numbers[half:]))
    await asyncio.sleep(0.2)
    await gate.open.remote()
    return [[number for number, pid in arrived.items() if pid == killed], await held, await after]


def main():
    count, with_death = map(int, sys.argv[1:])
    port = free_port()
    serve.start(http_options={"port": port})
    gate = Gate.remote()
    handle = serve.run(Ingress.bind(Model.bind(Chunks.bind(gate))), name="load", route_prefix="/load")
    url = f"http://127.0.0.1:{port}/load"
    found = {"load": asyncio.run(load(url, handle, count))}
    found["death"] = asyncio.run(with_a_death(url, gate, range(count, count + with_death)))
    # Once the proxy has answered this, it is done with all before.
    Client(port).get("/-/healthz", "")
    serve.shutdown()
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    harness.run(main)
