"""A small Ray Serve application: the trace of a request, and of a batch that several requests share.

Run it, in an environment with Serve (``pip install 'ray[serve]'``), then look at what it did:

    python examples/serve_app.py
    ray-tracing-hooks tree

``Shop`` receives HTTP requests. It calls ``Prices``, which answers several requests in one batch, and ``Stock``, which
calls a task. Only the hook in ``ray.init`` and the program's own spans are about tracing.
"""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
import requests
from opentelemetry import trace
from ray import serve
from starlette.requests import Request

tracer = trace.get_tracer("shop")

SMALL = {"num_cpus": 0}


@ray.remote(num_cpus=0)
def count(item: str) -> int:
    time.sleep(0.01)
    return len(item)


@serve.deployment(ray_actor_options=SMALL)
class Stock:
    async def left(self, item: str) -> int:
        return await count.remote(item)


@serve.deployment(ray_actor_options=SMALL)
class Prices:
    @serve.batch(max_batch_size=3, batch_wait_timeout_s=0.5)
    async def price(self, items: list[str]) -> list[float]:
        with tracer.start_as_current_span("look up prices") as span:
            span.set_attribute("items", items)
            return [float(len(item)) for item in items]


@serve.deployment(ray_actor_options=SMALL)
class Shop:
    def __init__(self, prices: Any, stock: Any) -> None:
        self.prices, self.stock = prices, stock

    async def __call__(self, request: Request) -> dict[str, Any]:
        item = request.query_params["item"]
        with tracer.start_as_current_span("offer") as span:
            span.set_attribute("item", item)
            price, left = self.prices.price.remote(item), self.stock.left.remote(item)
            return {"item": item, "price": await price, "left": await left}


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
        _tracing_startup_hook="ray_tracing_hooks.local:setup",
    )
    port = free_port()
    serve.start(http_options={"port": port})
    serve.run(Shop.bind(Prices.bind(), Stock.bind()))

    def offer(item: str) -> Any:
        return requests.get(f"http://127.0.0.1:{port}/", params={"item": item}, timeout=60).json()

    with ThreadPoolExecutor() as pool:
        for answer in pool.map(offer, ["tea", "bread", "cheese"]):
            print(answer)

    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
