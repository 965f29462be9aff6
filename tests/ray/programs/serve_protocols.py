"""Requests to Serve by gRPC and by WebSocket, and calls of deployments in other ways than the usual one.

Each request has a trace of its own, whose id is made of its name: at most 16 letters, and none that `serve_app` has.
"""

import asyncio
import contextlib
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import harness
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from google.protobuf.wrappers_pb2 import StringValue
from opentelemetry import baggage, trace
from ports import free_port
from ray import serve
from ray.serve.handle import DeploymentHandle
from serve_app import Client as HttpClient
from serve_app import deployment, run_all, trace_id
from starlette.responses import PlainTextResponse, StreamingResponse
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from words import stub

tracer = trace.get_tracer("serve_protocols")
api = FastAPI()


@deployment()
class Model:
    async def predict(self, x):
        with tracer.start_as_current_span(f"predict {x}"):
            return x * 2


@deployment(num_replicas=2)
class Store:
    def put(self, key):
        with tracer.start_as_current_span(f"put {key}"):
            return key


@deployment(max_ongoing_requests=100)
@serve.ingress(api)
class Sockets:
    def __init__(self, model, store):
        self.model, self.store = model, store

    @api.websocket("/chat/{room}")
    async def chat(self, socket: WebSocket, room: str):
        if room == "closed":
            await socket.close(1008)
            return
        if room == "unknown":
            await socket.send_denial_response(PlainTextResponse("who?", 401))
            return
        await socket.accept()
        while room == "endless":
            await socket.send_text("more")
            await asyncio.sleep(0.02)
        with contextlib.suppress(WebSocketDisconnect):
            async for text in socket.iter_text():
                with tracer.start_as_current_span(f"message {text}"):
                    if text == "fail":
                        raise KeyError(text)
                    if text.isdigit():
                        await socket.close(int(text))
                        return
                    await socket.send_text(f"{room}: {await self.model.predict.remote(len(text))}")

    @api.get("/fail")
    async def fail(self):
        raise KeyError("fail")

    @api.get("/parts")
    async def parts(self, then: float = 0):
        """A response in two parts, with so many seconds between them."""

        async def parts():
            yield "first "
            await asyncio.sleep(then)
            yield "second"

        return StreamingResponse(parts())

    @api.get("/wait")
    async def wait(self):
        await asyncio.sleep(60)

    @api.get("/held")
    async def held(self, port: int):
        """At work until the one that listens at the port has hung up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.read()
        writer.close()

    @api.get("/by-value")
    async def by_value(self):
        """Calls that go by gRPC and not by actor calls."""
        model = self.model.options(_by_reference=False)
        return await model.predict.remote(3)

    @api.get("/all")
    def all(self):
        """A call of every replica; of the versions of Ray that have it."""
        return self.store.broadcast("put", "everywhere").results()

    @api.get("/chosen")
    async def chosen(self):
        async with self.store.put.choose_replica("chosen") as selection:
            return await self.store.put.dispatch(selection, "chosen")


@deployment(max_ongoing_requests=100)
class Words:
    def __init__(self, model):
        self.model = model

    async def say(self, request):
        with tracer.start_as_current_span("say"):
            found = await self.model.predict.remote(2)
            told = [request.value, found, trace.get_current_span().get_span_context().trace_state.to_header()]
            return StringValue(value=json.dumps([*told, dict(baggage.get_all())]))

    async def count(self, request):
        for i in range(int(request.value)):
            with tracer.start_as_current_span(f"item {i}"):
                item = StringValue(value=str(i))
            yield item

    async def join(self, requests):
        with tracer.start_as_current_span("join"):
            return StringValue(value=" ".join([request.value async for request in requests]))

    async def echo(self, requests):
        async for request in requests:
            with tracer.start_as_current_span(f"echo {request.value}"):
                answer = StringValue(value=request.value)
            yield answer

    async def refuse(self, request, grpc_context):
        grpc_context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
        raise ValueError(request.value)

    async def find(self, request, grpc_context):
        grpc_context.set_code(grpc.StatusCode.NOT_FOUND)
        return request

    async def fail(self, request):
        raise KeyError(request.value)

    async def wait(self, _request):
        with tracer.start_as_current_span("wait"):
            await asyncio.sleep(60)


class Chat:
    """A WebSocket, in a trace of its own."""

    def __init__(self, port, name, room="lobby"):
        headers = {"traceparent": f"00-{trace_id(name)}-00000000000000ff-01"}
        connecting = connect(f"ws://127.0.0.1:{port}/sockets/chat/{room}", additional_headers=headers)
        self.socket = contextlib.ExitStack().enter_context(connecting)

    def say(self, text):
        """The answer, or the code that the other side has closed with."""
        self.socket.send(text)
        return self.hear()

    def hear(self):
        try:
            return self.socket.recv(timeout=30)
        except ConnectionClosed:
            return self.socket.close_code

    def leave(self, code=1000):
        self.socket.close(code)
        return code

    def vanish(self):
        """Without a word."""
        self.socket.socket.shutdown(socket.SHUT_RDWR)


def sockets(port):
    found = {}
    chat = Chat(port, "socket")
    found["socket"] = [chat.say("hi"), chat.say("there"), chat.leave()]
    for text in ("1000", "4001", "1011", "fail"):
        found[f"socket {text}"] = Chat(port, f"socket {text}").say(text)
    found["socket gone"] = Chat(port, "socket gone").vanish()
    endless = Chat(port, "socket left", room="endless")
    found["socket left"] = [endless.hear(), endless.vanish()]
    for room in ("closed", "unknown"):
        try:
            Chat(port, f"socket {room}", room=room)
        except InvalidStatus as error:
            found[f"socket {room}"] = error.response.status_code
    return found


class Client:
    """Calls by gRPC, each in a trace of its own."""

    def __init__(self, port, application):
        self.channel, self.application = grpc.insecure_channel(f"127.0.0.1:{port}"), application

    def metadata(self, name, **more):
        told = {"application": self.application, "traceparent": f"00-{trace_id(name)}-00000000000000ff-01", **more}
        return tuple(told.items())

    def call(self, name, method, value, timeout=60, **more):
        """What it answers: a message, several, or the code of an error."""
        try:
            if isinstance(value, list):
                value = iter([StringValue(value=each) for each in value])
            else:
                value = StringValue(value=value)
            answer = stub(self.channel, method)(value, timeout=timeout, metadata=self.metadata(name, **more))
            return answer.value if isinstance(answer, StringValue) else [each.value for each in answer]
        except grpc.RpcError as error:
            return error.code().name

    def cancelled(self, name):
        call = stub(self.channel, "wait").future(StringValue(), metadata=self.metadata(name))
        threading.Timer(2, call.cancel).start()
        try:
            call.result()
        except grpc.FutureCancelledError:
            return "CANCELLED"


def by_grpc(client):
    with ThreadPoolExecutor() as threads:
        waiting = {
            "deadline": threads.submit(client.call, "deadline", "wait", "", timeout=2),
            "cancelled": threads.submit(client.cancelled, "cancelled"),
            "too long": threads.submit(client.call, "too long", "wait", ""),
        }
        found = {
            "unary": client.call("unary", "say", "hello", tracestate="vendor=value", baggage="user=me"),
            "server stream": client.call("server stream", "count", "3"),
            "client stream": client.call("client stream", "join", ["a", "b"]),
            "both streams": client.call("both streams", "echo", ["a", "b"]),
            "refused": client.call("refused", "refuse", "no"),
            "not found": client.call("not found", "find", ""),
            "failed": client.call("failed", "fail", "word"),
        }
        return found | {name: call.result() for name, call in waiting.items()}


def main():
    port, grpc_port = free_port(), free_port()
    serve.start(
        http_options={"port": port},
        grpc_options={
            "port": grpc_port,
            "grpc_servicer_functions": ["words:add_to_server"],
            "request_timeout_s": 4,
        },
    )
    run_all(
        (Words.bind(Model.bind()), "words", "/words"),
        (Sockets.bind(Model.bind(), Store.bind()), "sockets", "/sockets"),
    )
    client, http = Client(grpc_port, "words"), HttpClient(port)
    while client.call("warm-up", "count", "1") != ["0"]:
        pass
    found = {
        **by_grpc(client),
        "nowhere": Client(grpc_port, "nowhere").call("nowhere", "say", ""),
        **sockets(port),
        "by value": http.get("/sockets/by-value", "by value"),
    }
    for name in ("all", "chosen"):
        if hasattr(DeploymentHandle, {"all": "broadcast", "chosen": "choose_replica"}[name]):
            found[name] = http.get(f"/sockets/{name}", name)
    serve.shutdown()
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    harness.run(main)
