"""Requests that go to replicas without a proxy of Serve's between, as the environment has it.

Each request has a trace of its own, whose id is made of its name.
"""

import contextlib
import csv
import http.client
import json
import os
import socket
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import harness
from fastapi import FastAPI, Request
from ports import free_port
from ray import serve
from serve_app import Client as HttpClient
from serve_app import deployment, run_all, trace_id
from serve_protocols import Client, Model, Sockets, Words, by_grpc, sockets

# Its code runs in a thread of its own, apart from the server's, and it has room for one request at work and one that
# waits.
InThreads = Sockets.options(
    max_ongoing_requests=1,
    max_queued_requests=1,
    ray_actor_options={
        "num_cpus": 0,
        "runtime_env": {
            "env_vars": {
                "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "1",
                "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",
            }
        },
    },
)


routing, chatting = FastAPI(), FastAPI()


@deployment()
@serve.ingress(chatting)
class Chat:
    @chatting.post("/say")
    def say(self, request: Request):
        return sorted(name for name in request.headers if name.startswith("x-serve-router-"))


@deployment()
@serve.ingress(routing)
class Router:
    """Chooses a replica for each request, which HAProxy then sends to it."""

    def __init__(self, chat):
        self.chat = chat
        chat._init()

    @routing.post("/internal/route")
    async def route(self):
        async with self.chat.choose_replica(_reserve=False) as selection:
            replica = selection._replica
            host, port = replica.backend_http_endpoint
            name = replica.replica_id.to_full_id_str()
        return {"host": host, "port": port, "replica_id": name, "request_headers": {"x-serve-router-own": "1"}}


def routed():
    """An application with an ingress request router; none where this Ray has no such thing."""
    chat = Chat.bind()
    add = getattr(chat, "_with_ingress_request_router", None)
    return [(add(Router.bind(chat)), "routed", "/routed")] if add is not None else []


def by_router(client):
    """Requests for which a router chooses the replica: with a trace of the client, and without one."""
    while client.get("/routed/say", "warm-up", "POST") != [200, '["x-serve-router-own"]']:
        time.sleep(0.1)  # until HAProxy knows the router
    return {
        "routed": client.get("/routed/say", "routed", "POST"),
        "routed alone": client.get("/routed/say", "", "POST", **{"x-request-id": "alone"}),
    }


def reached():
    """The backends of HAProxy that send requests to a replica by now."""
    for path in Path(os.environ["RAY_SERVE_HAPROXY_SERVER_STATE_BASE"]).rglob("admin.sock"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(path))
            admin.sendall(b"show stat\n")
            rows = list(csv.DictReader(admin.makefile()))
            return {
                row["# pxname"] for row in rows if row["svname"].startswith("SERVE_REPLICA") and row["status"] == "UP"
            }
    return set()


def wait_until_direct(*backends):
    """Before that requests go to Serve's own proxy, and so do later ones on connections from then."""
    while not reached().issuperset(backends):
        time.sleep(0.1)  # HAProxy tells nobody


def gone(client):
    """A client that does not wait for its response."""
    with contextlib.suppress(TimeoutError):
        client.get("/sockets/wait", "gone", timeout=2)


def broken_off(port):
    """A client that does not wait for the second part of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    told = {"traceparent": f"00-{trace_id('broken off')}-00000000000000ff-01"}
    connection.request("GET", "/sockets/parts?then=60", headers=told)
    read = connection.getresponse().read(5).decode()
    connection.close()
    return read


def too_long(client):
    """A response whose second part takes longer than Serve waits."""
    with contextlib.suppress(http.client.HTTPException):
        client.get("/sockets/parts?then=60", "second too long")


def full(client):
    """What becomes of three requests where there is room for one at work and one that waits."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        listener.settimeout(60)
        path = f"/threads/held?port={listener.getsockname()[1]}"

        def ask():
            return threads.submit(client.get, path, "full", **{"x-request-timeout-seconds": "0"})

        # Until it is at work a request counts as one that waits.
        first = ask()
        at_work, _ = listener.accept()
        others = [ask(), ask()]
        wait(others, return_when=FIRST_COMPLETED)
        at_work.close()
        listener.accept()[0].close()
        return sorted(request.result()[0] for request in (first, *others))


def main():
    port, grpc_port = free_port(), free_port()
    serve.start(
        http_options={"port": port, "request_timeout_s": 4},
        grpc_options={
            "port": grpc_port,
            "grpc_servicer_functions": ["words:add_to_server"],
            "request_timeout_s": 4,
        },
    )
    model = serve.get_deployment_handle("Model", "words", _check_exists=False)
    run_all(
        (Words.bind(Model.bind()), "words", "/words"),
        (Sockets.bind(model, None), "sockets", "/sockets"),
        (InThreads.bind(model, None), "threads", "/threads"),
        *(of_router := routed()),
    )
    wait_until_direct("grpc-words", "http-sockets", "http-threads")
    by_words, client = Client(grpc_port, "words"), HttpClient(port)
    while by_words.call("warm-up", "count", "1") != ["0"]:
        pass
    for path in ("/sockets/by-value", "/threads/by-value"):
        while client.get(path, "warm-up")[0] != 200:
            pass
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(client.get, "/sockets/wait", "wait")
        threads.submit(gone, client)
        threads.submit(too_long, client)
        found = {
            # First, since the replica is told later that its client has gone, and has to hear it before it ends.
            "broken off": broken_off(port),
            "one loop": client.get("/sockets/by-value", "one loop", tracestate="vendor=value"),
            "fail": client.get("/sockets/fail", "fail"),
            "missing": client.get("/sockets/missing", "missing"),
            **by_grpc(by_words),
            **sockets(port),
            "wait": slow.result(),
            "full": full(client),
            "parts": client.get("/sockets/parts", "parts"),
            "no method": Client(grpc_port, "sockets").call("no method", "say", ""),
        }
    if of_router:
        found |= by_router(client)
    found["threads"] = client.get("/threads/by-value", "threads")
    serve.shutdown()
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    harness.run(main)
