"""A module that processes of a pool import: they could not find a function of the program's own."""

import random

from opentelemetry import trace

tracer = trace.get_tracer("processes")


def record(name, count=1):
    random.seed(0)  # as training scripts do, in each worker
    for _ in range(count):
        with tracer.start_as_current_span(name):
            pass
    return count
