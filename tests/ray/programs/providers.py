"""Sets a TracerProvider, a propagator and a sampler of its own, in the driver and in each worker, at a time that its
argument says; its exporter writes a line for each span that it is given.
"""

import os

import harness
import ray
from opentelemetry import context, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import set_tracer_provider

KEY = "providers.mine"


class Lines(SpanExporter):
    def __init__(self, path):
        self.path = path

    def export(self, spans):
        with open(self.path, "a") as file:
            file.writelines(f"{span.name}|{span.context.span_id:016x}\n" for span in spans)
        return SpanExportResult.SUCCESS


class Mine(propagate.textmap.TextMapPropagator):
    fields = frozenset({"x-mine"})

    def inject(self, carrier, context=None, setter=propagate.textmap.default_setter):
        value = (context or {}).get(KEY)
        if value is not None:
            setter.set(carrier, "x-mine", value)

    def extract(self, carrier, context=None, getter=propagate.textmap.default_getter):
        values = getter.get(carrier, "x-mine")
        return globals()["context"].set_value(KEY, values[0], context) if values else context


def provide():
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(float(os.environ.get("RTH_RATIO", "1")))))
    provider.add_span_processor(SimpleSpanProcessor(Lines(os.environ["RTH_LINES"])))
    set_tracer_provider(provider)
    propagate.set_global_textmap(Mine())


def worker_setup():
    if os.environ["RTH_ORDER"] == "before":
        provide()


@ray.remote
class Actor:
    def provide(self):
        if os.environ["RTH_ORDER"] == "after":
            provide()

    def call(self):
        with trace.get_tracer("in actor").start_as_current_span("in actor"):
            ray.get(inside.remote())
            return context.get_value(KEY)


@ray.remote
def inside():
    if os.environ["RTH_ORDER"] == "after" and not isinstance(propagate.get_global_textmap(), Mine):
        provide()
    with tracer.start_as_current_span("in task"):
        pass


tracer = trace.get_tracer("module")


def main():
    if os.environ["RTH_ORDER"] == "after":
        provide()
    actor = Actor.remote()
    ray.get(actor.provide.remote())
    token = context.attach(context.set_value(KEY, "carried"))
    with tracer.start_as_current_span("in driver"):
        carried = ray.get(actor.call.remote())
    context.detach(token)
    return carried


if __name__ == "__main__":
    if os.environ["RTH_ORDER"] == "before":
        provide()
    passed = {name: value for name, value in os.environ.items() if name.startswith("RTH_")}
    harness.run(main, runtime_env={"env_vars": passed, "worker_process_setup_hook": "providers.worker_setup"})
