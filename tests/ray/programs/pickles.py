"""What Ray and users can see of functions, classes and handles: signatures, and the bytes that they pickle to; the same
of exceptions and loggers. And what an actor's process has imported.
"""

import hashlib
import inspect
import logging
import pickletools
import re
import sys

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

    def imported(self):
        return [name for name in ("google.protobuf", "grpc", "http.client", "requests", "yaml") if name in sys.modules]

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


@ray.remote
def fails():
    raise KeyError("wrong")


def error_of(reference):
    try:
        return ray.get(reference)
    except KeyError as error:
        return error


def content(thing):
    """The digest of everything in a pickle but the ids that differ from run to run, and its number of operations."""
    operations = []
    for operation, argument, _ in pickletools.genops(cloudpickle.dumps(thing)):
        if operation.name == "FRAME":
            continue
        text = re.sub(r"session_[0-9_-]+|[0-9a-f]{32,56}", "?", str(argument))
        operations.append([operation.name, "?" if isinstance(argument, (bytes, int)) and len(text) > 12 else text])
    return [len(operations), hashlib.sha256(repr(operations).encode()).hexdigest(), size(thing)]


def size(thing):
    """The size of what is in its pickle but numbers, of which some are random; and what it names of tracing."""
    pickled = cloudpickle.dumps(thing)
    parts = [part for _, part, _ in pickletools.genops(pickled) if isinstance(part, (bytes, str))]
    texts = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
    # A traceback of Ray has the id of the process, of as many digits as it happens to have.
    return [sum(len(re.sub(rb"pid=\d+", b"", text)) for text in texts), str(re.findall(rb"\w*tracing\w*", pickled))]


def main():
    handle = Actor.remote(1)
    imported = ray.get(handle.imported.remote())
    error = error_of(fails.remote())
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
        "error": [content(error.cause), [each.__name__ for each in type(error).__mro__], size(type(error))],
        "loggers": [content(logging.getLogger()), content(logging.getLogger("ray")), content(logging.LogRecord)],
        "imported": imported,
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
