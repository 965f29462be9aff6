"""Applications of Ray Serve of every kind, and requests to them by HTTP and by handles.

Each request has a trace of its own, whose id is made of its name.
"""

import asyncio
import contextlib
import http.client
import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor

import harness
import ray
from fastapi import FastAPI
from opentelemetry import baggage, trace
from opentelemetry.context import Context
from ports import free_port
from ray import serve
from ray.serve.exceptions import RayServeException
from starlette.responses import StreamingResponse

tracer = trace.get_tracer("serve_app")
api = FastAPI()

CONCURRENT = 24

SHARING = 3
"""The number of requests that need a model at the same time."""

UNLOADING = 0.1
"""Seconds."""


@ray.remote(num_cpus=0)
def square(x):
    return x * x


@ray.remote(num_cpus=0)
class Counter:
    def add(self, x):
        return x + 1


def deployment(**options):
    # Nothing is waited for when a replica ends.
    return serve.deployment(ray_actor_options={"num_cpus": 0}, graceful_shutdown_wait_loop_s=0.1, **options)


@deployment(max_ongoing_requests=100)
class Model:
    def __init__(self):
        self.counter = Counter.remote()

    async def predict(self, x):
        with tracer.start_as_current_span(f"predict {x}"):
            await asyncio.sleep(0.01)
            # Each task that runs at the same time would start a worker.
            squared = await square.remote(x) if x < CONCURRENT else x * x
            return squared + await self.counter.add.remote(x)

    def plain(self, x):
        with tracer.start_as_current_span("plain"):
            return x

    def stream(self, n):
        for i in range(n):
            with tracer.start_as_current_span(f"item {i}"):
                yield i

    async def fail(self):
        raise KeyError("model")


@deployment(max_ongoing_requests=100)
@serve.ingress(api)
class Api:
    def __init__(self, model):
        self.model = model

    @api.get("/predict/{x}")
    async def predict(self, x: int):
        with tracer.start_as_current_span(f"ingress {x}"):
            found = await self.model.predict.remote(x)
        span = trace.get_current_span().get_span_context()
        return {
            "found": found,
            "trace": f"{span.trace_id:032x}",
            "state": span.trace_state.to_header(),
            "baggage": dict(baggage.get_all()),
        }

    @api.get("/begin")
    async def begin(self):
        self.work = asyncio.create_task(self.go_on(trace.get_current_span()))

    async def go_on(self, around):
        while (end := getattr(around, "end_time", 0)) is None or time.time_ns() - end < 1_100_000_000:
            await asyncio.sleep(0.02)
        return await self.model.plain.remote(9)

    @api.get("/finish")
    async def finish(self):
        return await self.work

    @api.get("/sync")
    def sync(self):
        with tracer.start_as_current_span("sync"):
            return "sync"

    @api.get("/stream")
    def stream(self):
        async def body():
            async for item in self.model.options(stream=True).stream.remote(3):
                await asyncio.sleep(0.15)
                yield f"{item}\n"

        return StreamingResponse(body())

    @api.get("/fail")
    async def fail(self):
        return await self.model.fail.remote()

    @api.get("/slow")
    async def slow(self):
        with tracer.start_as_current_span("slow"):
            await asyncio.sleep(60)


class Loaded:
    """A model. What it does at its end is waited for by the one that takes its place."""

    def __init__(self, model_id):
        self.name = model_id.upper()

    async def __del__(self):
        with tracer.start_as_current_span(f"unloads {self.name}"):
            await asyncio.sleep(UNLOADING)


@deployment(max_ongoing_requests=100)
class Batching:
    def __init__(self):
        self.needing, self.all_need_it = 0, asyncio.Event()

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=5)
    async def double(self, xs):
        with tracer.start_as_current_span(f"doubles {len(xs)}"):
            return [2 * x for x in xs]

    @serve.batch(max_batch_size=2, batch_wait_timeout_s=5)
    async def count(self, xs):
        for i in range(2):
            with tracer.start_as_current_span(f"counts {i}"):
                yield [x + i for x in xs]

    @serve.batch(max_batch_size=2, batch_wait_timeout_s=5)
    async def fail(self, xs):
        raise KeyError("batch")

    @serve.batch(max_batch_size=2, batch_wait_timeout_s=5)
    async def miscount(self, xs):
        yield xs
        yield xs[:1]

    async def alone(self, xs):
        return await asyncio.gather(*(self.double(x) for x in xs))

    async def stream(self, x):
        async for item in self.count(x):
            yield item

    async def miscounted(self, x):
        try:
            return [item async for item in self.miscount(x)]
        except RayServeException:
            return "miscounted"

    @serve.multiplexed(max_num_models_per_replica=2)
    async def load(self, model_id):
        with tracer.start_as_current_span(f"loads {model_id}"):
            if model_id == "shared":
                await self.all_need_it.wait()
            return Loaded(model_id)

    async def model(self):
        if serve.get_multiplexed_model_id() == "shared":
            self.needing += 1
            if self.needing == SHARING:
                self.all_need_it.set()
        return (await self.load(serve.get_multiplexed_model_id())).name


@ray.remote(num_cpus=0)
def calling(handle):
    return handle.plain.remote(7).result()


def traced(name, call):
    """A call in a trace of its own."""
    with tracer.start_as_current_span(name, Context()):
        return call()


def batches(handle):
    doubled = [traced(f"batched {x}", lambda x=x: handle.double.remote(x)) for x in range(3)]
    streams = [traced(f"streamed {x}", lambda x=x: handle.options(stream=True).stream.remote(x)) for x in range(2)]
    failed = [traced(f"failing {x}", lambda x=x: handle.fail.remote(x)) for x in range(2)]
    miscounted = [traced(f"miscounted {x}", lambda x=x: handle.miscounted.remote(x)) for x in range(2)]
    errors = []
    for response in failed:
        try:
            response.result()
        except KeyError as error:
            errors.append(str(error.cause))

    def model(name, model_id):
        return traced(name, lambda: handle.options(multiplexed_model_id=model_id).model.remote())

    return {
        "batched": [response.result() for response in doubled],
        "streamed in batches": [list(response) for response in streams],
        "failed in batches": errors,
        "miscounted": [response.result() for response in miscounted],
        "batched alone": traced("alone", lambda: handle.alone.remote([1, 2, 3]).result()),
        "models": [model(f"multiplexed {i}", "model").result() for i in range(2)],
        "shared": [each.result() for each in [model(f"sharing {i}", "shared") for i in range(SHARING)]],
        "third": model("third", "third").result(),
    }


def trace_id(name):
    return name.encode().hex().zfill(32)


class Client:
    def __init__(self, port):
        self.port = port

    def get(self, path, name, method="GET", timeout=90, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if name:
            headers["traceparent"] = f"00-{trace_id(name)}-00000000000000ff-01"
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return [response.status, response.read().decode()]


def run_all(*applications):
    """Run applications, each with its name and prefix, at the same time where this Ray can; their handles."""
    if hasattr(serve, "run_many"):
        return serve.run_many([serve.RunTarget(*application) for application in applications])
    return [serve.run(built, name=name, route_prefix=prefix) for built, name, prefix in applications]


def gone(client):
    """A client that does not wait for its response."""
    with contextlib.suppress(TimeoutError):
        client.get("/api/slow", "gone", timeout=2)


def main():
    port = free_port()
    serve.start(http_options={"port": port, "request_timeout_s": 8})
    _, batching = run_all(
        (Api.bind(Model.bind()), "api", "/api"),
        (Batching.bind(), "batching", "/batching"),
    )
    client = Client(port)
    while client.get("/api/predict/2", "warm-up")[0] != 200:
        pass
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(client.get, "/api/slow", "time-out")
        threads.submit(gone, client)
        found = requests(client, batching) | {"time-out": slow.result()}
    found |= with_another_proxy(client)
    serve.shutdown()
    return json.loads(json.dumps(found))


def with_another_proxy(client):
    """The proxy is killed while the replicas run on: a request through the next one, which has its name."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    (proxy,) = [actor for actor in actors if "PROXY_ACTOR" in actor["name"]]
    handle = ray.get_actor(**proxy)
    ray.kill(handle)
    with contextlib.suppress(ray.exceptions.RayActorError):
        while ray.get(handle.__ray_ready__.remote()):
            pass
    until = time.monotonic() + 60
    for attempt in itertools.count():
        assert time.monotonic() < until
        # The one that ends may still answer, and the next one may not know its routes yet.
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            status, _ = client.get("/api/predict/6", f"attempt {attempt}")
            if status == 200 and ray.get_actor(**proxy)._actor_id != handle._actor_id:
                break
        time.sleep(0.02)
    return {"another proxy": f"attempt {attempt}"}


def requests(client, batching):
    found = {
        "predict": client.get("/api/predict/3", "predict", tracestate="vendor=value", baggage="user=me"),
        "unsampled": client.get("/api/predict/5", "", traceparent=f"00-{trace_id('unsampled')}-00000000000000ff-00"),
        "begin": client.get("/api/begin", "begin"),
        "sync": client.get("/api/sync", "sync"),
        "stream": client.get("/api/stream", "stream"),
        "fail": client.get("/api/fail", "fail"),
        "missing": client.get("/nowhere", "missing"),
        "own trace": client.get("/api/predict/4", ""),
        "health": client.get("/-/healthz", "health"),
        "finish": client.get("/api/finish", "finish"),
    }
    with ThreadPoolExecutor(CONCURRENT) as threads:
        found["concurrent"] = list(
            threads.map(lambda i: client.get(f"/api/predict/{CONCURRENT + i}", f"concurrent{i}"), range(CONCURRENT))
        )
    model_handle = serve.get_deployment_handle("Model", "api")
    with tracer.start_as_current_span("by driver"):
        found["by driver"] = model_handle.plain.remote(6).result()
        found["streamed"] = list(model_handle.options(stream=True).stream.remote(2))
        try:
            model_handle.fail.remote().result()
        except KeyError as error:
            found["error"] = isinstance(error, ray.exceptions.RayTaskError)
    found |= batches(batching)
    with tracer.start_as_current_span("in this process"):
        local = serve.run(Model.bind(), name="local", route_prefix=None, _local_testing_mode=True)
        found["in this process"] = local.plain.remote(8).result()
    with tracer.start_as_current_span("by task"):
        found["by task"] = ray.get(calling.remote(model_handle))
    return found


if __name__ == "__main__":
    harness.run(main)
