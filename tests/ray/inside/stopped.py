"""Goes untraced, in a running driver and a running actor, and traced again."""

import json

import looking
import ray
from opentelemetry import trace
from ray import cloudpickle

from ray_tracing_hooks import _startup, local

tracer = trace.get_tracer("stopped")


@ray.remote
def double(a):
    with tracer.start_as_current_span("in task"):
        return 2 * a


@ray.remote
class Actor:
    def one(self, a=1):
        return a

    def look(self):
        return looking.changed()

    def go(self, way):
        {"untraced": _startup.stop, "traced": local.setup}[way]()


def main():
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _tracing_startup_hook="looking:setup")
    actor = Actor.remote()
    things = [double, double._function, Actor, actor, actor.one]

    def calls():
        with tracer.start_as_current_span("in driver"):
            return ray.get([double.remote(1), actor.one.remote(), actor.one.remote(a=3)])

    results = [calls()]
    found = {"traced": looking.changed(), "patched": looking.patched(), "traced actor": ray.get(actor.look.remote())}
    before = looking.things()
    local.setup()
    found["doubled"] = [name for name, thing in looking.things().items() if before.get(name, thing) is not thing]
    pickles = [cloudpickle.dumps(thing) for thing in things]

    _startup.stop()
    found |= {"stopped": looking.changed(), "process": looking.process_changed(), "called": hasattr(ray, "__traced__")}
    found["same pickles"] = [cloudpickle.dumps(thing) for thing in things] == pickles
    results.append(calls())
    ray.get(actor.go.remote("untraced"))
    results.append(calls())
    found["stopped actor"] = ray.get(actor.look.remote())

    local.setup()
    results.append(calls())
    ray.get(actor.go.remote("traced"))
    results.append(calls())
    found |= {"again": looking.changed(), "results": results}
    ray.shutdown()
    found["disconnected"] = looking.changed()
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
