"""Tasks that are put into a queue of Celery's and handled by a deployment, and what becomes of them.

The queue is a folder, which the argument names. Each request has a trace of its own, made of its name, that
no other program has.
"""

import inspect
import json
import os
import sys
import time

import harness
import ray
from celery import Celery
from opentelemetry import baggage, trace
from opentelemetry.context import Context
from ports import free_port
from ray import serve
from ray.serve.schema import CeleryAdapterConfig, TaskProcessorConfig
from ray.serve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler
from serve_app import Client, deployment, run_all

tracer = trace.get_tracer("serve_tasks")

QUEUE = "summaries"
TRANSPORT = "serve_queue:Transport"


def folders(folder):
    made = {name: os.path.join(folder, name) for name in ("messages", "control", "results")}
    for path in made.values():
        os.makedirs(path, exist_ok=True)
    return made


def celery_of(folder):
    paths = folders(folder)
    return {
        "broker_url": "filesystem://",
        "backend_url": f"file://{paths['results']}",
        "broker_transport_options": {
            "data_folder_in": paths["messages"],
            "data_folder_out": paths["messages"],
            "control_folder": paths["control"],
        },
    }


def configuration(folder):
    at_once = {"retry_backoff": False, "retry_kwargs": {"max_retries": 2, "countdown": 0}}
    return TaskProcessorConfig(
        queue_name=QUEUE,
        adapter_config=CeleryAdapterConfig(
            **celery_of(folder), app_custom_config={"broker_transport": TRANSPORT}, task_custom_config=at_once
        ),
    )


@ray.remote(num_cpus=0)
def square(x):
    return x * x


@ray.remote(num_cpus=0)
def enqueuing(config, x):
    """From a task that takes no other part in Serve."""
    return instantiate_adapter_from_config(config).enqueue_task_sync("summarize", args=[x]).id


def consumer(config):
    # One thread: Celery says that a task is tried again after it has put it into the queue, and a thread beside could
    # have ended it for good by then.
    @deployment(max_ongoing_requests=1)
    @task_consumer(task_processor_config=config)
    class Summaries:
        def __init__(self):
            self.failed = set()

        @task_handler(name="summarize")
        def summary(self, x, plus=0):
            with tracer.start_as_current_span(f"summarizes {x}"):
                return [ray.get(square.remote(x)) + plus, baggage.get_baggage("user")]

        @task_handler
        def fail_once(self, x):
            if x in self.failed:
                return x
            self.failed.add(x)
            raise KeyError(x)

        @task_handler
        def fail(self, x):
            raise ValueError(x)

    return Summaries


@deployment()
class Front:
    def __init__(self, config):
        self.adapter = instantiate_adapter_from_config(config)

    async def __call__(self, request):
        asked = request.query_params
        with tracer.start_as_current_span(f"asks for {asked['task']}"):
            return self.adapter.enqueue_task_sync(asked["task"], args=[int(asked["x"])]).id


def results(adapter, tasks, timeout=150):
    """What became of each task: how it ended, and its result or the text of its error."""
    deadline = time.monotonic() + timeout
    found = {}
    while len(found) < len(tasks) and time.monotonic() < deadline:
        for name, task_id in tasks.items():
            status = adapter.get_task_status_sync(task_id)
            if status.status in {"SUCCESS", "FAILURE"}:
                # The result is read before the status, and may be that of a moment before.
                status = adapter.get_task_status_sync(task_id)
                found[name] = [status.status, status.result if status.status == "SUCCESS" else repr(status.result)]
        time.sleep(0.05)
    return found


def main():
    port = free_port()
    config = configuration(sys.argv[1])
    serve.start(http_options={"port": port})
    run_all((consumer(config).bind(), "tasks", None), (Front.bind(config), "front", "/front"))
    client = Client(port)
    while client.get("/front?task=summarize&x=1", "warm-up")[0] != 200:
        pass
    tasks = {
        name: client.get(f"/front?task={task}&x={x}", name, **more)[1]
        for name, task, x, more in (
            ("by request", "summarize", 3, {"baggage": "user=me"}),
            ("task retried", "fail_once", 4, {}),
            ("task failed", "fail", 5, {}),
        )
    }
    adapter = instantiate_adapter_from_config(config)
    with tracer.start_as_current_span("by program", Context()):
        tasks["by program"] = adapter.enqueue_task_sync("summarize", args=[6], kwargs={"plus": 1}).id
    with tracer.start_as_current_span("by task", Context()):
        tasks["by task"] = ray.get(enqueuing.remote(config, 7))
    untraced = celery_of(sys.argv[1])
    app = Celery("untraced", broker=untraced["broker_url"], backend=untraced["backend_url"])
    app.conf.update(broker_transport=TRANSPORT, broker_transport_options=untraced["broker_transport_options"])
    tasks["untraced"] = app.send_task("summarize", args=[8], queue=QUEUE).id
    signature = str(inspect.signature(adapter.enqueue_task_sync))
    found = {"tasks": tasks, "results": results(adapter, tasks), "signature": signature}
    serve.shutdown()
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    harness.run(main)
