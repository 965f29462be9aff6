"""A Ray Serve application: each HTTP request is a trace through two deployments, a batch and a task.

Run it, then look at the traces:

    pip install 'ray[serve]' requests
    python examples/serve_app.py
    ray-tracing-hooks tree

You see ``GET /`` and all that it caused, and one batch that answers several requests, with links to them.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import ray
import requests
from opentelemetry import trace
from ray import serve

tracer = trace.get_tracer("shop")
PORT = int(os.environ.get("PORT", "8000"))


@ray.remote
def count(item):
    time.sleep(0.01)
    return len(item)


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Stock:
    async def left(self, item):
        return await count.remote(item)


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Prices:
    @serve.batch(max_batch_size=3, batch_wait_timeout_s=0.5)
    async def price(self, items):
        with tracer.start_as_current_span("look up prices"):
            return [float(len(item)) for item in items]


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Shop:
    def __init__(self, prices, stock):
        self.prices, self.stock = prices, stock

    async def __call__(self, request):
        item = request.query_params["item"]
        with tracer.start_as_current_span("offer") as span:
            span.set_attribute("item", item)
            price, left = self.prices.price.remote(item), self.stock.left.remote(item)
            return {"item": item, "price": await price, "left": await left}


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    serve.start(http_options={"port": PORT})
    serve.run(Shop.bind(Prices.bind(), Stock.bind()))
    urls = [f"http://127.0.0.1:{PORT}/?item={item}" for item in ("tea", "bread", "cheese")]
    with ThreadPoolExecutor() as pool:
        print(*pool.map(lambda url: requests.get(url, timeout=60).json(), urls), sep="\n")
    serve.shutdown()
