"""A driver that is started within a trace: what its calls see of it, also those of another thread."""

from concurrent.futures import ThreadPoolExecutor

import harness
import ray
from opentelemetry import baggage, trace


@ray.remote
def inside():
    context = trace.get_current_span().get_span_context()
    return [f"{context.trace_id:032x}", bool(context.trace_flags.sampled), context.trace_state.to_header(), *below()]


def below():
    return [dict(baggage.get_all())]


def main():
    with ThreadPoolExecutor(1) as pool:
        return [ray.get(inside.remote()), pool.submit(lambda: ray.get(inside.remote())).result()[0]]


if __name__ == "__main__":
    harness.run(main)
