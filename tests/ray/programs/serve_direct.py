"""Requests that go to replicas without a proxy of Serve's between, as the environment has it.

Each request has a trace of its own, whose id is made of its name.
"""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import harness
from ray import serve
from serve_app import Client as HttpClient
from serve_app import free_port
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
    serve.run(Words.bind(Model.bind()), name="words", route_prefix="/words")
    model = serve.get_deployment_handle("Model", "words")
    serve.run(Sockets.bind(model, None), name="sockets", route_prefix="/sockets")
    serve.run(InThreads.bind(model, None), name="threads", route_prefix="/threads")
    client, http = Client(grpc_port, "words"), HttpClient(port)
    while client.call("warm-up", "count", "1") != ["0"]:
        pass
    for path in ("/sockets/by-value", "/threads/by-value"):
        while http.get(path, "warm-up")[0] != 200:
            pass
    found = {
        "one loop": http.get("/sockets/by-value", "one loop", tracestate="vendor=value"),
        "threads": http.get("/threads/by-value", "threads"),
        "fail": http.get("/sockets/fail", "fail"),
        "wait": http.get("/sockets/wait", "wait"),
        "missing": http.get("/sockets/missing", "missing"),
        **by_grpc(client),
        **sockets(port),
    }
    with contextlib.suppress(TimeoutError):
        http.get("/sockets/wait", "gone", timeout=0.5)
    with ThreadPoolExecutor(3) as threads:
        answers = threads.map(lambda _: http.get("/threads/nap", "full"), range(3))
        found["full"] = sorted(status for status, _ in answers)
    serve.shutdown()
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    harness.run(main)
