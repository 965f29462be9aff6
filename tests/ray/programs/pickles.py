"""What Ray and users can see of functions, classes and handles: signatures, and the bytes that they pickle to."""

import hashlib
import inspect
import pickletools
import re

import harness
import ray
from opentelemetry import trace
from ray import cloudpickle

tracer = trace.get_tracer("pickles")


@ray.remote
def function(a, b: int = 1, *args, key=None, **kwargs):
    """Its documentation."""
    with tracer.start_as_current_span("inside"):
        return a


class Plain:
    def __init__(self, a, b=2):
        self.a = a

    def method(self, x, *, y=1):
        return x

    @staticmethod
    def static(x):
        return x

    @classmethod
    def of_class(cls, x):
        return x

    async def coroutine(self, x):
        return x

    def generator(self, n):
        yield n


Actor = ray.remote(Plain)


@ray.remote
def hold(*things):
    return len(things)


def content(thing):
    """The digest of everything in a pickle but the ids that differ from run to run, and its number of operations."""
    operations = []
    for operation, argument, _ in pickletools.genops(cloudpickle.dumps(thing)):
        if operation.name == "FRAME":
            continue
        text = re.sub(r"session_[0-9_-]+|[0-9a-f]{32,56}", "?", str(argument))
        operations.append([operation.name, "?" if isinstance(argument, (bytes, int)) and len(text) > 12 else text])
    return [len(operations), hashlib.sha256(repr(operations).encode()).hexdigest()]


def main():
    handle = Actor.remote(1)
    ray.get([function.remote(1), handle.method.remote(1), hold.remote(handle, function, Actor)])
    return {
        "signatures": {
            "function": str(inspect.signature(function._function)),
            "remote": str(inspect.signature(function.remote)),
            **{
                name: str(inspect.signature(getattr(Plain, name)))
                for name in ("__init__", "method", "static", "of_class", "coroutine", "generator")
            },
            "handle": str(inspect.signature(handle.method.remote)),
            "handle methods": sorted(handle._ray_method_signatures),
            "handle signatures": {name: str(value) for name, value in handle._ray_method_signatures.items()},
        },
        "exported function": [len(function._pickled_function), hashlib.sha256(function._pickled_function).hexdigest()],
        "plain function": content(function._function),
        "function": content(function),
        "class": content(Actor.__ray_metadata__.modified_class),
        "actor class": content(Actor),
        "handle": content(handle),
        "kinds": [
            inspect.iscoroutinefunction(Plain.coroutine),
            inspect.isgeneratorfunction(Plain.generator),
            type(function).__name__,
            type(Actor).__name__,
            sorted(vars(function)),
        ],
        "result types": [type(function.remote(1)).__name__, type(handle.generator.remote(1)).__name__],
        "doc": function.__doc__ or function._function.__doc__,
    }


if __name__ == "__main__":
    harness.run(main)
