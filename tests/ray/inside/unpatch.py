"""Takes every patch out of a running driver and looks at what was patched before, between and after."""

import importlib
import json

import ray
from ray import cloudpickle

from ray_tracing_hooks import _startup, local
from ray_tracing_hooks._patching import _MARK
from ray_tracing_hooks._ray import arguments

HOOK = "ray_tracing_hooks.local:setup"
SIGNATURE = arguments.signature_module().__name__
TARGETS = [
    f"{SIGNATURE} flatten_args",
    f"{SIGNATURE} recover_args",
    "ray._private.serialization.SerializationContext serialize",
    "ray._private.serialization.SerializationContext deserialize_objects",
    "ray_tracing_hooks._ray.arguments deliver",
    "ray.remote_function.RemoteFunction _remote",
    "ray.actor.ActorClass _remote",
    "ray.actor.ActorMethod _remote",
    "ray._private.function_manager.FunctionActorManager get_execution_info",
    "ray._private.utils format_error_message",
    "ray._private.worker.Worker set_mode",
    "ray._private.worker disconnect",
    "ray.util.tracing.tracing_helper _enable_tracing",
    "opentelemetry.trace set_tracer_provider",
]


def look():
    found = {}
    for target in TARGETS:
        path, name = target.split()
        try:
            owner = importlib.import_module(path)
        except ImportError:
            module, _, cls = path.rpartition(".")
            owner = getattr(importlib.import_module(module), cls)
        found[target] = vars(owner)[name]
    return found


def name_of(owner):
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


@ray.remote
def double(a):
    return 2 * a


@ray.remote
class Actor:
    def one(self, a=1):
        return a


def main():
    before = look()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _tracing_startup_hook=HOOK)
    wrapped = look()
    local.setup()
    again = look()
    handle = Actor.remote()
    results = [ray.get(double.remote(1)), ray.get(handle.one.remote())]
    things = [double, double._function, Actor, handle, handle.one]
    traced = [cloudpickle.dumps(thing) for thing in things]
    patched = sorted(f"{name_of(owner)} {name}" for owner, name in _startup._patches.targets())
    _startup.stop()
    after = look()
    results += [ray.get(double.remote(1)), ray.get(handle.one.remote(3))]
    print(
        "RESULT "
        + json.dumps(
            {
                "results": results,
                "listed": patched == sorted(TARGETS),
                "wrapped": [target for target in TARGETS if getattr(wrapped[target], _MARK, None) is before[target]],
                "not doubled": [target for target in TARGETS if again[target] is wrapped[target]],
                "unwrapped": [target for target in TARGETS if after[target] is before[target]],
                "same pickles": [
                    cloudpickle.dumps(thing) == pickled for thing, pickled in zip(things, traced, strict=True)
                ],
            }
        )
    )
    ray.shutdown()


if __name__ == "__main__":
    main()
