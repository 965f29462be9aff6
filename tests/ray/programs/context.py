"""What travels with a call: baggage, trace state, the decision not to sample."""

import asyncio
import time

import harness
import ray
from opentelemetry import baggage, context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

tracer = trace.get_tracer("context")


@ray.remote
def inside(deeper=0):
    if deeper:
        return ray.get(inside.remote(deeper - 1))
    with tracer.start_as_current_span("deepest"):
        current = trace.get_current_span().get_span_context()
        return [
            f"{current.trace_id:032x}",
            current.trace_flags.sampled,
            current.trace_state.to_header(),
            dict(baggage.get_all()),
        ]


@ray.remote
class Actor:
    def __init__(self):
        self.at_creation = dict(baggage.get_all())

    async def call(self):
        return [self.at_creation, dict(baggage.get_all()), await inside.remote()]


async def until_over(span):
    """When a span of a traced process has ended more than a second ago."""
    while (end := getattr(span, "end_time", 0)) is None or time.time_ns() - end < 1_100_000_000:
        await asyncio.sleep(0.02)


@ray.remote(num_cpus=0)
class Loop:
    """Its first call starts what goes on for as long as the actor lives."""

    async def start(self):
        self.work = asyncio.create_task(self.go_on(trace.get_current_span()))

    async def go_on(self, around):
        await inside.remote()
        await until_over(around)
        with tracer.start_as_current_span("later"):
            within = await inside.remote()
        return [within[0], (await inside.remote())[0]]

    async def finish(self):
        return await self.work


def outlived():
    actor = Loop.remote()
    ray.get(actor.start.remote())
    return ray.get(actor.finish.remote())


def within(trace_id, flags, call):
    parent = SpanContext(trace_id, 7, True, TraceFlags(flags), TraceState([("vendor", "value")]))
    carried = baggage.set_baggage("user", "zoë=1", trace.set_span_in_context(NonRecordingSpan(parent)))
    token = context.attach(carried)
    try:
        return call()
    finally:
        context.detach(token)


def main():
    return {
        "sampled": within(11, 1, lambda: ray.get(inside.remote(1))),
        "actor": within(12, 1, lambda: ray.get((_actor := Actor.remote()).call.remote())),
        "not sampled": within(13, 0, lambda: ray.get(inside.remote(1))),
        "after": ray.get(inside.remote()),
        "outlived": outlived(),
    }


if __name__ == "__main__":
    harness.run(main)
