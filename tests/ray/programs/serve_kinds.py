"""Deployments of every kind, built by a configuration; :mod:`serve_scenarios` makes requests to them."""

import asyncio
import os
import signal
import threading

from fastapi import APIRouter, FastAPI, HTTPException
from opentelemetry import baggage, trace
from ray import serve
from serve_app import deployment
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

tracer = trace.get_tracer("serve_kinds")
api, mounted, router = FastAPI(), FastAPI(), APIRouter(prefix="/router")

MANY = {"max_ongoing_requests": 100}


def context():
    """What the code that calls this can see of the client's context."""
    span = trace.get_current_span().get_span_context()
    return {
        "trace": f"{span.trace_id:032x}",
        "state": span.trace_state.to_header(),
        "baggage": dict(baggage.get_all()),
    }


@deployment(**MANY)
class Steps:
    def __init__(self):
        self.ended = asyncio.Event()

    async def add(self, x):
        with tracer.start_as_current_span(f"adds to {x}"):
            return x + 1

    def told(self):
        return context()

    async def breaking(self):
        yield 0
        raise KeyError("midway")

    async def endless(self):
        try:
            while True:
                await asyncio.sleep(0.01)
                yield b"x"
        finally:
            self.ended.set()

    async def endless_has_ended(self):
        await self.ended.wait()

    async def sleep(self):
        with tracer.start_as_current_span("sleeps"):
            await asyncio.sleep(60)


@deployment(max_ongoing_requests=1, max_queued_requests=1)
class Full:
    """Takes one request at a time; one more may wait."""

    def ready(self):
        return True

    async def hold(self, gate):
        return await gate.passing.remote()

    async def __call__(self, _request):
        return "taken"


@deployment(**MANY)
class Mortal:
    def dies(self):
        os.kill(os.getpid(), signal.SIGKILL)


@mounted.get("/things/{y}")
async def things(y: int):
    with tracer.start_as_current_span("thing"):
        return y


@router.get("/{x}")
def routed(x: int):
    with tracer.start_as_current_span("routed"):
        return x


api.mount("/mounted", mounted)
api.include_router(router)


@deployment(**MANY)
@serve.ingress(api)
class Shop:
    def __init__(self, steps, full, mortal):
        self.steps, self.full, self.mortal = steps, full, mortal

    @api.get("/told")
    async def told(self):
        return [context(), await self.steps.told.remote()]

    @api.get("/composed")
    async def composed(self):
        first = self.steps.add.remote(1)
        return await self.steps.add.remote(first)

    @api.get("/thread")
    def thread(self):
        """As FastAPI runs any function that is not async."""
        return self.steps.add.remote(7).result(_skip_asyncio_check=True)

    @api.get("/to-thread")
    async def to_thread(self):
        return await asyncio.to_thread(lambda: self.steps.add.remote(8).result(_skip_asyncio_check=True))

    @api.get("/own-thread")
    async def own_thread(self):
        """A thread that was given no context."""
        got = asyncio.get_running_loop().create_future()

        def run():
            answer = self.steps.add.remote(9).result(_skip_asyncio_check=True)
            got.get_loop().call_soon_threadsafe(got.set_result, answer)

        threading.Thread(target=run).start()
        return await got

    @api.get("/breaking")
    def breaking(self):
        async def body():
            async for item in self.steps.options(stream=True).breaking.remote():
                yield f"{item}\n"

        return StreamingResponse(body())

    @api.get("/endless")
    def endless(self):
        stream = self.steps.options(stream=True).endless.remote()

        async def end():
            # Serve cancels what a cancelled request has called. If the application learns first that its client left,
            # its request ends as usual, and nothing else would end the stream.
            stream.cancel()

        return StreamingResponse(stream, background=BackgroundTask(end))

    @api.get("/teapot")
    async def teapot(self):
        raise HTTPException(418)

    @api.get("/broken")
    async def broken(self):
        raise HTTPException(503)

    @api.get("/caught")
    async def caught(self):
        try:
            return [item async for item in self.steps.options(stream=True).breaking.remote()]
        except KeyError:
            return "caught"

    @api.get("/dies")
    async def dies(self):
        return await self.mortal.dies.remote()

    @api.get("/full")
    async def behind(self):
        return await self.full.ready.remote()


async def listed(_request):
    with tracer.start_as_current_span("listed"):
        return JSONResponse([1, 2])


async def failing(_request):
    raise KeyError("starlette")


@deployment(**MANY)
@serve.ingress(Starlette(routes=[Route("/list/{of}", listed), Route("/failing", failing)]))
class WithStarlette:
    pass


class Raw:
    """An ASGI application that no framework makes."""

    def add_exception_handler(self, *_):
        """Some versions of Ray call it on any application."""

    async def __call__(self, scope, receive, send):
        while scope["type"] == "lifespan":
            asked = (await receive())["type"]
            await send({"type": f"{asked}.complete"})
            if asked == "lifespan.shutdown":
                return
        with tracer.start_as_current_span("raw"):
            body = (await receive())["body"]
            status = 500 if scope["path"].endswith("/fails") else 200
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": body})


@deployment(**MANY)
@serve.ingress(Raw())
class WithRaw:
    pass


@deployment(**MANY)
def function(request):
    with tracer.start_as_current_span("function"):
        return PlainTextResponse(request.url.path)


full = Full.bind()
shop = Shop.bind(Steps.bind(), full, Mortal.bind())
with_starlette, with_raw, with_function = WithStarlette.bind(), WithRaw.bind(), function.bind()
