"""What of Serve is replaced in a driver, while it is traced, after that, and when it is traced again."""

import inspect
import sys

import ray
from opentelemetry import trace
from opentelemetry.context import Context
from ray import serve
from serve_app import free_port

from ray_tracing_hooks._patching import _MARK

tracer = trace.get_tracer("serve_undone")


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Model:
    async def predict(self, x):
        return x + 1


def wrapped(value):
    return 1 + wrapped(getattr(value, _MARK)) if hasattr(value, _MARK) else 0


def replaced():
    """The functions and methods of Serve's that are ours, and how often each is wrapped."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("ray.serve.") and module is not None:
            owners = [
                module,
                *(cls for _, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == name),
            ]
            for owner in owners:
                for attribute, value in vars(owner).items():
                    if times := wrapped(value):
                        owned = "" if owner is module else f".{owner.__name__}"
                        found[f"{name}{owned}.{attribute}"] = times
    return found


def traced(name):
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _tracing_startup_hook="ray_tracing_hooks.local:setup",
    )
    serve.start(http_options={"port": free_port()})
    handle = serve.run(Model.bind())
    with tracer.start_as_current_span(name, Context()):
        answer = handle.predict.remote(1).result()
    during = replaced()
    serve.shutdown()
    ray.shutdown()
    return [answer, during, replaced()]


if __name__ == "__main__":
    import json

    print("RESULT " + json.dumps([traced("first"), traced("second")]))
