"""What of Serve is replaced: in a driver that has imported all of it, while it is traced, after that, and when it is
traced again; and in a replica.
"""

import contextlib
import importlib
import inspect
import json
import sys

import lean
import looking
import ray
from opentelemetry import trace
from opentelemetry.context import Context
from ports import free_port
from ray import serve
from serve_app import deployment

from ray_tracing_hooks import _startup, local
from ray_tracing_hooks._libraries import SERVE
from ray_tracing_hooks._safety.patching import _MARK

tracer = trace.get_tracer("serve_undone")

for module in {row.of for row in SERVE.wraps}:
    # Older versions of Ray have not all of them.
    with contextlib.suppress(ImportError):
        importlib.import_module(module)

HOOK = "ray_tracing_hooks.local:setup"


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
                    # Imported from Ray's core, by their names, while they were replaced there.
                    if attribute not in {"flatten_args", "recover_args"} and (times := wrapped(value)):
                        owned = "" if owner is module else f".{owner.__name__}"
                        found[f"{name}{owned} {attribute}"] = times
    return found


def of_serve(names):
    return [name for name in names if name.startswith("ray.serve.")]


@deployment()
class Model:
    async def predict(self, x):
        return x + 1

    async def look(self):
        return replaced()

    async def go(self, way):
        {"untraced": _startup.stop, "traced": local.setup}[way]()


def traced(name):
    lean.start(num_cpus=2, log_to_driver=False, _tracing_startup_hook=HOOK)
    # The first time Serve has not yet changed anything of its own.
    found = {"patched": of_serve(looking.patched()), "changed": of_serve(looking.changed())}
    serve.start(http_options={"port": free_port()})
    handle = serve.run(Model.bind())

    def predicted(name):
        with tracer.start_as_current_span(name, Context()):
            return handle.predict.remote(1).result()

    found["answers"] = [predicted(name)]
    local.setup()
    found |= {"replaced": replaced(), "in replica": handle.look.remote().result()}
    _startup.stop()
    handle.go.remote("untraced").result()
    found |= {"stopped": replaced(), "stopped in replica": handle.look.remote().result()}
    found["left"] = [each for each in looking.changed() if each in found["patched"]]
    found["answers"].append(predicted(f"{name} untraced"))
    local.setup()
    handle.go.remote("traced").result()
    found["answers"].append(predicted(f"{name} again"))
    found |= {"again": replaced(), "again in replica": handle.look.remote().result()}
    serve.shutdown()
    ray.shutdown()
    found |= {"disconnected": replaced()}
    return found


if __name__ == "__main__":
    looking.note()
    print("RESULT " + json.dumps([traced("first"), traced("second")]))
