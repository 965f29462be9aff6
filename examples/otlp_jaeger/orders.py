"""Spans of a cluster in Jaeger, through an OpenTelemetry Collector.

Start both, then a cluster that sends its spans to the Collector, and run this program on it:

    docker compose -f examples/otlp_jaeger/compose.yaml up -d
    export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 OTEL_SERVICE_NAME=orders
    ray start --head --tracing-startup-hook=ray_tracing_hooks.otlp:setup
    python examples/otlp_jaeger/orders.py

Open http://localhost:16686 and choose the service ``orders``: you see one trace with all calls. The program has no line
about tracing, since the cluster has the hook. ``ray-tracing-hooks doctor`` says why if no spans arrive.

To send to Jaeger without a Collector, take its own hook:

    export RAY_TRACING_JAEGER_ENDPOINT=http://localhost:14317
    ray start --head --tracing-startup-hook=ray_tracing_hooks.jaeger:setup
"""

import time

import ray


@ray.remote
def pick(item):
    time.sleep(0.02)
    return item


@ray.remote
def pack(*items):
    time.sleep(0.05)
    return f"a parcel with {', '.join(items)}"


if __name__ == "__main__":
    ray.init()  # joins the cluster that `ray start` has started on this machine
    orders = [("tea", "bread"), ("cheese",)]
    print(*ray.get([pack.remote(*[pick.remote(item) for item in order]) for order in orders]), sep="\n")
